#include "config.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tsscheduler {

namespace {

std::string at_least(const std::string& name, std::int64_t value, std::int64_t least) {
    if (value >= least) return {};
    return name + " is " + std::to_string(value) + ", which must be at least " +
           std::to_string(least);
}

std::string group_problem(const Config& config, std::int32_t index) {
    const CacheGroupConfig& group = config.groups[index];
    const std::string name = "group '" + group.name + "': ";
    if (auto text = at_least("pages", group.pages, 2); !text.empty())
        return name + text + " (one is the null page)";
    if (!group.window) return {};
    if (auto text = at_least("window", *group.window, 2); !text.empty()) return name + text;
    const std::int32_t peak = config.peak_pages(index, config.max_model_len);
    if (group.pages - 1 < peak)
        return name + "pages is " + std::to_string(group.pages) + ", but its window of " +
               std::to_string(*group.window) + " tokens and a chunk of token_budget " +
               std::to_string(config.token_budget) + " need " + std::to_string(peak + 1);
    return {};
}

} // namespace

std::string Config::problem() const {
    for (const auto& text :
         {at_least("page_size", page_size, 1), at_least("max_batch", max_batch, 1),
          at_least("max_model_len", max_model_len, 2), at_least("host_pages", host_pages, 0),
          at_least("tokens_per_step", tokens_per_step, 1), at_least("ageing", ageing, 1),
          at_least("prefix_hash_bits", prefix_hash_bits, 0)})
        if (!text.empty()) return text;
    const std::int64_t least = std::int64_t{max_batch} * tokens_per_step + page_size;
    if (token_budget < least)
        return "token_budget is " + std::to_string(token_budget) + ", but max_batch " +
               std::to_string(max_batch) + " x tokens_per_step " + std::to_string(tokens_per_step) +
               " + page_size " + std::to_string(page_size) + " need " + std::to_string(least);
    if (prefix_hash_bits > 32)
        return "prefix_hash_bits is " + std::to_string(prefix_hash_bits) +
               ", which must be at most 32";
    if (!(watermark >= 0.0 && watermark < 1.0)) return "watermark must be in [0, 1)";
    if (groups.empty() || to_i32(groups.size()) > kMaxGroups)
        return "groups holds " + std::to_string(groups.size()) + " groups, which must be 1 to " +
               std::to_string(kMaxGroups);
    std::set<std::string> names;
    for (std::int32_t g = 0; g < to_i32(groups.size()); ++g) {
        if (!names.insert(groups[g].name).second)
            return "group '" + groups[g].name + "' is named twice";
        if (auto text = group_problem(*this, g); !text.empty()) return text;
    }
    return {};
}

std::int32_t Config::peak_pages(std::int32_t group, std::int32_t positions) const {
    const auto& window = groups[group].window;
    if (!window) return pages_for(positions);
    // The window before a chunk, the chunk, and the pages that both ends are cut by.
    const std::int64_t held = std::int64_t{*window} + token_budget;
    if (held >= positions) return pages_for(positions);
    return std::min(pages_for(positions), pages_for(to_i32(held)) + 2);
}

std::int32_t Config::watermark_pages(std::int32_t group) const {
    return to_i32(std::ceil(watermark * static_cast<double>(groups[group].pages - 1)));
}

} // namespace tsscheduler
