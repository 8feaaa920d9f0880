// Steps sorted by counting; there are too few placements for a heap to pay.
#include "steps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace tssearch {

Steps::Steps(std::size_t placements, const std::vector<Step>& steps)
    : starts_(placements + 1), steps_(steps.size()), numbers_(steps.size()), where_(steps.size()) {
    for (const Step& step : steps)
        ++starts_[at(step.source) + 1];
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    std::vector<std::size_t> next(starts_.begin(), starts_.end() - 1);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::size_t place = next[at(steps[i].source)]++;
        steps_[place] = steps[i];
        numbers_[place] = i;
        where_[i] = place;
    }
}

Steps Steps::reversed() const {
    std::vector<Step> turned(steps_.size());
    for (std::size_t i = 0; i < steps_.size(); ++i)
        turned[numbers_[i]] = {steps_[i].target, steps_[i].source, steps_[i].price};
    return {placements(), turned};
}

void Steps::spread(Prices& prices, Placements open) const {
    std::vector<bool> waits(prices.size());
    for (const Placement place : open)
        waits[at(place)] = true;
    while (!open.empty()) {
        const auto cheapest =
            std::min_element(open.begin(), open.end(), [&](Placement one, Placement other) {
                return prices[at(one)] < prices[at(other)];
            });
        const Placement place = std::exchange(*cheapest, open.back());
        open.pop_back();
        waits[at(place)] = false;
        const Price left = prices[at(place)];
        for (std::size_t i = starts_[at(place)]; i < starts_[at(place) + 1]; ++i) {
            const std::size_t target = at(steps_[i].target);
            const Price price = left + steps_[i].price;
            if (!(price < prices[target])) continue;
            prices[target] = price;
            if (!waits[target]) open.push_back(steps_[i].target);
            waits[target] = true;
        }
    }
}

std::size_t Steps::next(Placement place, const Prices& prices) const {
    for (std::size_t i = starts_[at(place)]; i < starts_[at(place) + 1]; ++i)
        if (steps_[i].price + prices[at(steps_[i].target)] == prices[at(place)]) return numbers_[i];
    throw std::logic_error("no step leaves a placement towards those that are wanted");
}

} // namespace tssearch
