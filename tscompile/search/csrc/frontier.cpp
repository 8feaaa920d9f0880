// States are told apart as they come and sorted once.
#include "frontier.h"

#include <algorithm>
#include <numeric>

namespace tssearch {

Frontier Frontier::only(const std::vector<std::size_t>& rows) const {
    Frontier some{{states.width, {}, {}}, {}};
    for (const std::size_t row : rows) {
        const Row state = states[row];
        some.states.holdings.insert(some.states.holdings.end(), state.begin(), state.end());
        some.states.prices.push_back(states.prices[row]);
        some.origins.push_back(origins[row]);
    }
    return some;
}

void Pool::add(Row state, const Price& price, const Origin& origin) {
    const auto [number, fresh] = rows_.add(state);
    if (fresh) {
        prices_.push_back(price);
        origins_.push_back(origin);
        when_.push_back(added_);
    } else if (price < prices_[number]) {
        prices_[number] = price;
        origins_[number] = origin;
        when_[number] = added_;
    }
    ++added_;
}

Frontier Pool::by_price() const {
    std::vector<std::size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
        if (prices_[a] == prices_[b]) return when_[a] < when_[b];
        return prices_[a] < prices_[b];
    });
    Frontier all{{width_, {}, {}}, {}};
    for (const std::size_t number : order) {
        const Row state = rows_[number];
        all.states.holdings.insert(all.states.holdings.end(), state.begin(), state.end());
        all.states.prices.push_back(prices_[number]);
        all.origins.push_back(origins_[number]);
    }
    return all;
}

} // namespace tssearch
