// Options are compared from the cheapest one on.
#include "options.h"

#include <algorithm>
#include <numeric>

namespace tssearch {

namespace {

Values sorted_values(const std::vector<Operand>& operands) {
    Values values;
    for (const Operand& operand : operands)
        values.push_back(operand.value);
    std::sort(values.begin(), values.end());
    return values;
}

void append_to(std::vector<Operand>& operands, const std::vector<Operand>& others) {
    for (Operand& operand : operands) {
        const auto same = std::find_if(others.begin(), others.end(), [&](const Operand& other) {
            return other.value == operand.value;
        });
        operand.placements.insert(operand.placements.end(), same->placements.begin(),
                                  same->placements.end());
    }
}

template <class T>
std::vector<T> chosen(const std::vector<T>& items, const std::vector<std::size_t>& kept) {
    std::vector<T> some;
    some.reserve(kept.size());
    for (const std::size_t item : kept)
        some.push_back(items[item]);
    return some;
}

std::vector<Operand> chosen_of(const std::vector<Operand>& operands,
                               const std::vector<std::size_t>& kept) {
    std::vector<Operand> some;
    for (const Operand& operand : operands)
        some.push_back({operand.value, chosen(operand.placements, kept)});
    return some;
}

} // namespace

bool Options::alike(const Options& other) const {
    return span == other.span && sorted_values(reads) == sorted_values(other.reads) &&
           sorted_values(gives) == sorted_values(other.gives);
}

void Options::append(const Options& other) {
    append_to(reads, other.reads);
    append_to(gives, other.gives);
    prices.insert(prices.end(), other.prices.begin(), other.prices.end());
    batch.insert(batch.end(), other.batch.begin(), other.batch.end());
    column.insert(column.end(), other.column.begin(), other.column.end());
}

Options Options::only(const std::vector<std::size_t>& kept) const {
    return {span,
            chosen_of(reads, kept),
            chosen_of(gives, kept),
            chosen(prices, kept),
            chosen(batch, kept),
            chosen(column, kept)};
}

std::vector<std::size_t> by_price(const Prices& prices) {
    std::vector<std::size_t> order(prices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return prices[a] < prices[b]; });
    return order;
}

std::vector<std::size_t> undominated(const Options& options, const std::vector<Trees*>& trees,
                                     Rivals& gives) {
    std::vector<std::size_t> kept;
    const std::vector<std::size_t> order = by_price(options.prices);
    for (std::size_t option = 0; option < options.size(); ++option) {
        const Price limit = sooner_than(options.prices[option].time + gives.ease(option).time);
        const auto better = [&](std::size_t rival) {
            Price price = options.prices[rival];
            for (std::size_t i = 0; i < trees.size(); ++i) {
                const Placements& read = options.reads[i].placements;
                if (limit < price + trees[i]->least(read[option], read[rival])) return false;
                price = price + trees[i]->path(read[option], read[rival]);
            }
            return gives.within(price, rival, option, limit);
        };
        if (std::none_of(order.begin(), order.end(), better)) kept.push_back(option);
    }
    return kept;
}

} // namespace tssearch
