// Steps sorted by counting. Few steps in a row are ever cheaper than one, so that a price is seldom
// lowered twice, and looking for the lowest one to go on from does not pay.
#include "steps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tssearch {

Steps::Steps(std::size_t placements, const std::vector<Step>& steps)
    : starts_(placements + 1), steps_(steps.size()), numbers_(steps.size()), where_(steps.size()),
      least_(placements, UNREACHABLE) {
    for (const Step& step : steps) {
        ++starts_[at(step.source) + 1];
        least_[at(step.source)] = std::min(least_[at(step.source)], step.price);
    }
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
    std::vector<char> waits(prices.size());
    for (const Placement place : open)
        waits[at(place)] = 1;
    for (std::size_t next = 0; next < open.size(); ++next) {
        const std::size_t place = at(open[next]);
        waits[place] = 0;
        const Price left = prices[place];
        for (std::size_t i = starts_[place]; i < starts_[place + 1]; ++i) {
            const std::size_t target = at(steps_[i].target);
            const Price price = left + steps_[i].price;
            if (!(price < prices[target])) continue;
            prices[target] = price;
            if (!waits[target]) open.push_back(steps_[i].target);
            waits[target] = 1;
        }
    }
}

std::size_t Steps::next(Placement place, const Prices& prices) const {
    for (std::size_t i = starts_[at(place)]; i < starts_[at(place) + 1]; ++i)
        if (steps_[i].price + prices[at(steps_[i].target)] == prices[at(place)]) return numbers_[i];
    throw std::logic_error("no step leaves a placement towards those that are wanted");
}

} // namespace tssearch
