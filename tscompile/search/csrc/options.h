// What kernels can do with the operations before which a state is: reads, gives, price.
#pragma once

#include "rivals.h"

namespace tssearch {

// A value, and the placement that it has in each option.
struct Operand {
    Value value = 0;
    Placements placements;
};

// Options, each of which takes `span` operations; `batch` and `column` tell where one comes from.
struct Options {
    std::size_t span = 1;
    std::vector<Operand> reads;
    std::vector<Operand> gives;
    Prices prices;
    std::vector<std::int32_t> batch;
    std::vector<std::int32_t> column;

    [[nodiscard]] std::size_t size() const { return prices.size(); }

    [[nodiscard]] bool alike(const Options& other) const;

    // Takes those of another that is alike, behind its own.
    void append(const Options& other);

    [[nodiscard]] Options only(const std::vector<std::size_t>& kept) const;
};

// The options for which there is no better one whatever state they start in: what reshards from the
// placements that it reads, and to those that it gives, cost with the other is less than what it
// costs more. `trees` are those of the values that are read, `gives` compares what is given.
std::vector<std::size_t> undominated(const Options& options, const std::vector<Trees*>& trees,
                                     Rivals& gives);

// Options by price.
std::vector<std::size_t> by_price(const Prices& prices);

} // namespace tssearch
