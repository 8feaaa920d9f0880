// The states before one op: what live values are held as, prices, ways there.
#pragma once

#include "ids.h"
#include "price.h"
#include "rows.h"

#include <compare>

namespace tssearch {

// States, each what the live values are held as, in order of the values' numbers; and their prices.
struct States {
    std::size_t width = 0; // live values
    Holdings holdings;
    Prices prices;

    [[nodiscard]] std::size_t size() const { return prices.size(); }

    [[nodiscard]] Row operator[](std::size_t row) const {
        return {holdings.data() + row * width, width};
    }

    friend bool operator==(const States&, const States&) = default;

    friend bool operator<(const States& a, const States& b) {
        if (a.prices != b.prices) return a.prices < b.prices;
        return a.holdings < b.holdings;
    }
};

// How a state came about: before the op at `position` it was in `row`, and took the stage's batch
// and option. One at the segment's entry was in `row` of those that were given.
struct Origin {
    static constexpr std::int32_t ENTRY = -1;

    std::int32_t position = ENTRY;
    std::int32_t row = 0;
    std::int32_t batch = 0;
    std::int32_t option = 0;
};

struct Frontier {
    States states;
    std::vector<Origin> origins;

    // Some of the rows, in this order.
    [[nodiscard]] Frontier only(const std::vector<std::size_t>& rows) const;
};

// Gathers states: of equal ones the cheapest, of equally cheap ones the first.
class Pool {
  public:
    explicit Pool(std::size_t width) : rows_(width), width_(width) {}

    void add(Row state, const Price& price, const Origin& origin);

    // All of them by price, those that were added first first where it is equal.
    [[nodiscard]] Frontier by_price() const;

  private:
    Rows rows_;
    std::size_t width_;
    std::size_t added_ = 0;
    Prices prices_;
    std::vector<Origin> origins_;
    std::vector<std::size_t> when_;
};

} // namespace tssearch
