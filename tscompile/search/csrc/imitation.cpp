// Holdings that are equal share their costs.
#include "imitation.h"

#include <algorithm>

namespace tssearch {

Imitation::Imitation(const Uses& uses, const Holdings& holdings)
    : stock_(uses.stock), once_(uses.needs.has_value()) {
    Holdings sorted = holdings;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const Holding holding : sorted)
        distinct_.push_back(told_apart(uses, holding));
    for (const Holding holding : holdings)
        which_.push_back(static_cast<std::int32_t>(
            std::lower_bound(sorted.begin(), sorted.end(), holding) - sorted.begin()));
    costs_.assign(sorted.size() * sorted.size(), {UNKNOWN, 0});
}

Imitation::Distinct Imitation::told_apart(const Uses& uses, Holding holding) const {
    Distinct made{holding, {}, {}};
    if (!once_) return made;
    for (const Placement placement : *uses.needs)
        made.reach.push_back(stock_->reach(holding, placement));
    made.ease = *std::min_element(made.reach.begin(), made.reach.end());
    return made;
}

Price Imitation::worked_out(const Distinct& one, const Distinct& other) const {
    if (!once_) {
        if (one.holding == other.holding) return {};
        return stock_->reach(one.holding, stock_->root(other.holding)) +
               stock_->spent(other.holding);
    }
    Price most = one.reach.front() - other.reach.front();
    for (std::size_t i = 1; i < one.reach.size(); ++i)
        most = std::max(most, one.reach[i] - other.reach[i]);
    return most + other.ease;
}

} // namespace tssearch
