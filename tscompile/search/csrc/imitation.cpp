// Holdings that are equal share their costs.
#include "imitation.h"

#include <algorithm>

namespace tssearch {

Imitation::Imitation(const Uses& uses, const Holdings& holdings)
    : stock_(uses.stock), once_(uses.needs.has_value()) {
    std::vector<std::int32_t> numbers(stock_->size(), NONE);
    which_.reserve(holdings.size());
    for (const Holding holding : holdings) {
        std::int32_t& number = numbers[at(holding)];
        if (number == NONE) {
            number = static_cast<std::int32_t>(distinct_.size());
            distinct_.push_back(told_apart(uses, holding));
        }
        which_.push_back(number);
    }
    costs_.assign(distinct_.size() * distinct_.size(), {UNKNOWN, 0});
}

Imitation::Distinct Imitation::told_apart(const Uses& uses, Holding holding) const {
    Distinct made{holding, {}, {}};
    if (!once_) return made;
    made.reach = stock_->reaches(holding, *uses.needs);
    made.ease = *std::min_element(made.reach.begin(), made.reach.end());
    return made;
}

Price Imitation::worked_out(const Distinct& one, const Distinct& other) const {
    if (!once_) {
        if (one.holding == other.holding) return {};
        return stock_->imitated(one.holding, other.holding);
    }
    Price most = one.reach.front() - other.reach.front();
    for (std::size_t i = 1; i < one.reach.size(); ++i)
        most = std::max(most, one.reach[i] - other.reach[i]);
    return most + other.ease;
}

} // namespace tssearch
