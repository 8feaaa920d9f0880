// Steps sorted by counting; prices spread along them from a heap.
#include "steps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tssearch {

namespace {

struct Reached {
    Price price;
    Placement place;

    // The cheapest one lies on top of a heap.
    friend bool operator<(const Reached& a, const Reached& b) { return b.price < a.price; }
};

} // namespace

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

void Steps::spread(Prices& prices) const {
    std::vector<Reached> heap;
    const auto leave = [&](Placement place) {
        const Price left = prices[at(place)];
        for (std::size_t i = starts_[at(place)]; i < starts_[at(place) + 1]; ++i) {
            const Price price = left + steps_[i].price;
            Price& known = prices[at(steps_[i].target)];
            if (!(price < known)) continue;
            known = price;
            heap.push_back({price, steps_[i].target});
            std::push_heap(heap.begin(), heap.end());
        }
    };
    for (std::size_t place = 0; place < prices.size(); ++place)
        if (prices[place] < UNREACHABLE) leave(static_cast<Placement>(place));
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end());
        const Reached cheapest = heap.back();
        heap.pop_back();
        if (cheapest.price == prices[at(cheapest.place)]) leave(cheapest.place);
    }
}

std::size_t Steps::next(Placement place, const Prices& prices) const {
    for (std::size_t i = starts_[at(place)]; i < starts_[at(place) + 1]; ++i)
        if (steps_[i].price + prices[at(steps_[i].target)] == prices[at(place)]) return numbers_[i];
    throw std::logic_error("no step leaves a placement towards those that are wanted");
}

} // namespace tssearch
