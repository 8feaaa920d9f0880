// Stages are made from the last one on, since a value's needs depend on those behind.
#include "segment.h"

#include "dominance.h"

#include <algorithm>

namespace tssearch {

namespace {

bool contains(const Values& values, Value value) {
    return std::find(values.begin(), values.end(), value) != values.end();
}

} // namespace

Explored::Passage Explored::passage(std::size_t row) const {
    Passage found;
    Origin origin = origins.back()[row];
    while (origin.position != Origin::ENTRY) {
        found.origins.push_back(origin);
        origin = origins[at(origin.position)][at(origin.row)];
    }
    std::reverse(found.origins.begin(), found.origins.end());
    found.entry = at(origin.row);
    return found;
}

Segment::Segment(Stocks stocks, std::vector<Values> live, const std::vector<Values>& once,
                 const Stages& stages)
    : stocks_(std::move(stocks)), live_(std::move(live)), ways_(stages.size()),
      uses_(live_.size()) {
    for (std::size_t position = live_.size(); position-- > 0;) {
        if (position < stages.size()) ways_[position] = ways_at(position, stages[position]);
        for (const Value value : live_[position]) {
            Uses left{stocks_[at(value)].get(), std::nullopt};
            if (contains(once[position], value)) left.needs = needs(position, value);
            uses_[position].push_back(std::move(left));
        }
    }
}

std::vector<Ways> Segment::ways_at(std::size_t position, const std::vector<Options>& stage) const {
    std::vector<Options> together;
    for (std::size_t batch = 0; batch < stage.size(); ++batch) {
        Options options = stage[batch];
        const Values& after = live_[position + options.span];
        std::erase_if(options.gives,
                      [&](const Operand& operand) { return !contains(after, operand.value); });
        options.batch.assign(options.size(), static_cast<std::int32_t>(batch));
        for (std::size_t column = 0; column < options.size(); ++column)
            options.column.push_back(static_cast<std::int32_t>(column));
        options = undominated_of(std::move(options), std::nullopt);
        const auto same = std::find_if(together.begin(), together.end(),
                                       [&](const Options& other) { return other.alike(options); });
        if (same == together.end())
            together.push_back(std::move(options));
        else
            same->append(options);
    }
    std::vector<Ways> ways;
    for (Options& options : together) {
        const std::size_t behind = position + options.span;
        Options kept = undominated_of(std::move(options), behind);
        Rivals given = gives(kept, behind);
        ways.emplace_back(std::move(kept), live_[position], live_[behind], stocks_,
                          std::move(given));
    }
    return ways;
}

Placements Segment::needs(std::size_t position, Value value) const {
    Placements found;
    bool read = false;
    for (; position < ways_.size(); ++position) {
        for (const Ways& ways : ways_[position]) {
            for (const Operand& operand : ways.options().reads) {
                if (operand.value != value) continue;
                read = true;
                found.insert(found.end(), operand.placements.begin(), operand.placements.end());
            }
        }
    }
    if (!read)
        for (std::size_t all = 0; all < stocks_[at(value)]->trees().placements(); ++all)
            found.push_back(static_cast<Placement>(all));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

Rivals Segment::gives(const Options& options, std::optional<std::size_t> position) const {
    std::vector<Imitation> found;
    for (const Operand& operand : options.gives) {
        Stock& stock = *stocks_[at(operand.value)];
        Holdings holdings;
        for (const Placement placement : operand.placements)
            holdings.push_back(stock.start(placement));
        if (!position) {
            found.emplace_back(Uses{&stock, std::nullopt}, holdings);
            continue;
        }
        const Values& live = live_[*position];
        const auto column = std::find(live.begin(), live.end(), operand.value) - live.begin();
        found.emplace_back(uses_[*position][static_cast<std::size_t>(column)], holdings);
    }
    return Rivals(std::move(found));
}

Options Segment::undominated_of(Options options, std::optional<std::size_t> position) const {
    std::vector<Trees*> trees;
    for (const Operand& operand : options.reads)
        trees.push_back(&stocks_[at(operand.value)]->trees());
    Rivals given = gives(options, position);
    const auto kept = undominated(options, trees, given);
    return kept.size() == options.size() ? std::move(options) : options.only(kept);
}

bool Segment::takes(const States& entry) const {
    const Values& live = live_.front();
    if (entry.width != live.size()) return false;
    for (std::size_t row = 0; row < entry.size(); ++row)
        for (std::size_t k = 0; k < live.size(); ++k)
            if (!stocks_[at(live[k])]->has(entry[row][k])) return false;
    return true;
}

std::shared_ptr<const Explored> Segment::explore(const States& entry) {
    const auto found = explored_.find(entry);
    if (found != explored_.end()) return found->second;
    auto made = std::make_shared<const Explored>(worked_out(entry));
    explored_.emplace(entry, made);
    return made;
}

Explored Segment::worked_out(const States& entry) {
    std::vector<Pool> pools;
    for (const Values& values : live_)
        pools.emplace_back(values.size());
    for (std::size_t row = 0; row < entry.size(); ++row)
        pools.front().add(entry[row], entry.prices[row],
                          {Origin::ENTRY, static_cast<std::int32_t>(row), 0, 0});
    Explored explored;
    for (std::size_t position = 0; position < pools.size(); ++position) {
        Frontier frontier = undominated(pools[position].by_price(), uses_[position]);
        pools[position] = Pool(0); // its memory is needed no more
        if (position < ways_.size())
            for (Ways& ways : ways_[position])
                ways.expand(static_cast<std::int32_t>(position), frontier.states,
                            pools[position + ways.options().span]);
        explored.origins.push_back(std::move(frontier.origins));
        explored.exit = std::move(frontier.states);
    }
    if (explored.exit.size() > 0) explored.least = explored.exit.prices.front();
    for (Price& price : explored.exit.prices)
        price = price - explored.least;
    return explored;
}

} // namespace tssearch
