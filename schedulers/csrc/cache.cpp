#include "cache.h"

#include <algorithm>

namespace tsscheduler {

namespace {

std::unique_ptr<Tree> make_tree(const std::vector<std::unique_ptr<Pool>>& pools,
                                const Config& config, const Clock& clock) {
    std::vector<Tree::Group> groups;
    for (std::size_t g = 0; g < pools.size(); ++g)
        groups.push_back({pools[g].get(), config.groups[g].window.has_value()});
    return std::make_unique<Tree>(groups, config.page_size, config.prefix_hash_bits, clock);
}

} // namespace

// Positions beyond the present ones for which a new table has room.
constexpr std::int32_t kRoom = 4096;

Cache::Cache(const Config& config, const Clock& clock) : config_(config), clock_(clock) {
    for (const CacheGroupConfig& group : config.groups) {
        windowed_ = windowed_ || group.window;
        pools_.push_back(std::make_unique<Pool>(group.pages, clock));
        if (config.host_pages > 0)
            host_pools_.push_back(std::make_unique<Pool>(config.host_pages + 1, host_clock_));
    }
    if (config.prefix_cache) tree_ = make_tree(pools_, config, clock);
    if (config.host_pages > 0) host_tree_ = make_tree(host_pools_, config, clock);
}

void Cache::pass(Step step) {
    for (const auto& pool : pools_)
        pool->pass(step);
}

std::span<const TokenId> Cache::page_tokens(const Request& request, std::int32_t index) const {
    const auto size = static_cast<std::size_t>(config_.page_size);
    return request.tokens.all().subspan(static_cast<std::size_t>(index) * size, size);
}

Hit Cache::find(const Request& request) const {
    const std::int32_t most = (request.known() - 1) / config_.page_size;
    Hit hit;
    if (tree_) find_on_device(request, most, hit);
    if (host_tree_ && !request.load_failed) find_on_host(request, most, hit);
    return hit;
}

void Cache::find_on_device(const Request& request, std::int32_t most, Hit& hit) const {
    NodeId node = tree_->find_root(request.salt);
    if (node != kNoNode) hit.device_path.reserve(static_cast<std::size_t>(most));
    while (node != kNoNode && to_i32(hit.device_path.size()) < most) {
        node = tree_->child(node, page_tokens(request, to_i32(hit.device_path.size())));
        if (node != kNoNode) hit.device_path.push_back(node);
    }
    hit.device = longest(*tree_, hit.device_path, 0);
    hit.device_path.resize(static_cast<std::size_t>(hit.device));
    for (std::int32_t g = 0; g < groups(); ++g)
        for (std::int32_t i = config_.first_page(g, hit.device * config_.page_size); i < hit.device;
             ++i)
            if (tree_->listed(hit.device_path[i], g)) ++hit.listed[g];
}

// The longest usable prefix of a path: groups without a window need every page, the others those of
// the last window. `runs` counts the pages that a group holds without a gap.
std::int32_t Cache::longest(const Tree& tree, const std::vector<NodeId>& path,
                            std::int32_t begin) const {
    std::array<std::int32_t, kMaxGroups> runs{};
    std::int32_t best = begin;
    for (std::int32_t i = begin; i < to_i32(path.size()); ++i) {
        bool usable = true;
        for (std::int32_t g = 0; g < groups(); ++g) {
            runs[g] = tree.holds(path[i], g) ? runs[g] + 1 : 0;
            const std::int32_t first = config_.first_page(g, (i + 1) * config_.page_size);
            if (runs[g] == 0 && !config_.groups[g].window) return best;
            usable = usable && runs[g] >= i + 1 - std::max(begin, first);
        }
        if (usable) best = i + 1;
    }
    return best;
}

std::int32_t Cache::need(const Request& request, const Hit& hit, std::int32_t group) const {
    const std::int32_t held =
        hit.device - config_.first_page(group, hit.device * config_.page_size);
    return std::max(0, config_.peak_pages(group, request.known()) - held);
}

void Cache::append_hit(Table& table, Tree& tree, const std::vector<NodeId>& path,
                       std::int32_t group, std::int32_t end) {
    const std::int32_t first = config_.first_page(group, end * config_.page_size);
    for (std::int32_t i = table.size(); i < end; ++i) {
        if (i < first)
            table.append_gone();
        else
            table.append(tree.share(path[i], group));
    }
}

void Cache::take(Residence& home, const Request& request, const Hit& hit) {
    for (std::int32_t g = 0; g < groups(); ++g) {
        Table& table = home.tables.add(*pools_[g]);
        table.reserve(config_.pages_for(request.known() + std::min(request.remaining(), kRoom)));
        if (tree_) append_hit(table, *tree_, hit.device_path, g, hit.device);
    }
    if (tree_) {
        const NodeId node = hit.device == 0 ? tree_->root(request.salt) : hit.device_path.back();
        home.anchor = Anchor(*tree_, node);
    }
    home.published = hit.device;
    home.planned = home.committed = hit.device * config_.page_size;
}

bool Cache::fork(Residence& home, const Request& request, const Residence& parent) {
    const std::int32_t most = (request.known() - 1) / config_.page_size;
    const auto has = [&](std::int32_t index, std::int32_t group) {
        return index < parent.tables[group].size() && parent.tables[group].page(index) != kNullPage;
    };
    const auto has_all = [&](std::int32_t index) {
        for (std::int32_t g = 0; g < groups(); ++g)
            if (!has(index, g)) return false;
        return true;
    };
    std::int32_t index = home.committed / config_.page_size;
    for (; index < most && index < parent.tables[0].sealed() && has_all(index); ++index)
        for (std::int32_t g = 0; g < groups(); ++g)
            home.tables[g].append(parent.tables[g].share(index));
    home.planned = home.committed = index * config_.page_size;
    const std::int32_t common = std::min(parent.committed, request.known() - 1);
    if (common <= home.committed || !has_all(index)) return false;
    home.planned = home.committed = std::min(common, home.committed + config_.page_size);
    return true;
}

std::int32_t Cache::missing(const Table& table, std::int32_t end) const {
    // Mostly nothing is missing, and a product is cheaper than a quotient.
    if (end <= table.size() * config_.page_size) return 0;
    return config_.pages_for(end) - table.size();
}

void Cache::grow(Table& table, std::int32_t group, std::int32_t end) {
    for (std::int32_t n = missing(table, end); n > 0; --n)
        table.append(pools_[group]->allocate());
}

void Cache::settle(Residence& home, const Request& request) {
    for (; (home.published + 1) * config_.page_size <= home.committed; ++home.published) {
        const std::int32_t index = home.published;
        for (std::int32_t g = 0; g < groups(); ++g)
            if (home.tables[g].sealed() == index) home.tables[g].seal_next();
        if (!tree_) continue;
        const NodeId node = tree_->extend(home.anchor.node(), page_tokens(request, index));
        for (std::int32_t g = 0; g < groups(); ++g) {
            // A duplicate of a published page stays private.
            const bool offers = home.tables[g].page(index) != kNullPage;
            if (offers && !tree_->holds(node, g))
                tree_->adopt(node, g, home.tables[g].share(index));
        }
        home.anchor = Anchor(*tree_, node);
    }
    home.settle_at = (home.published + 1) * config_.page_size;
    for (std::int32_t g = 0; windowed_ && g < groups(); ++g) {
        home.tables[g].slide_to(config_.first_page(g, home.committed), home.last);
        home.settle_at = std::min(home.settle_at, config_.next_slide(g, home.committed));
    }
}

void Cache::prefetch(const Residence& home, const Request& request) const {
    request.tokens.prefetch();
    for (std::int32_t g = 0; g < home.tables.count(); ++g)
        home.tables[g].prefetch(home.published);
    if (tree_) tree_->prefetch(home.anchor.node());
}

void Cache::remember_page(Residence& home) const {
    const std::int32_t index = home.planned / config_.page_size;
    home.page_end = 0;
    for (std::int32_t g = 0; g < groups(); ++g) {
        if (index >= home.tables[g].size()) return;
        home.bases[g] = home.tables[g].base(index, config_.page_size);
    }
    home.page_end = (index + 1) * config_.page_size;
}

} // namespace tsscheduler
