// What something costs, in whole numbers that add and compare exactly.
#pragma once

#include <cstdint>
#include <vector>

namespace tssearch {

// Picoseconds; where they are equal, the rest decides: launches * 2^43 + bytes on the wire.
struct Price {
    std::int64_t time = 0;
    std::int64_t rest = 0;

    friend bool operator==(const Price&, const Price&) = default;

    friend constexpr bool operator<(const Price& a, const Price& b) {
        return a.time < b.time || (a.time == b.time && a.rest < b.rest);
    }

    friend constexpr bool operator>(const Price& a, const Price& b) { return b < a; }

    friend constexpr bool operator<=(const Price& a, const Price& b) { return !(b < a); }

    friend constexpr Price operator+(const Price& a, const Price& b) {
        return {a.time + b.time, a.rest + b.rest};
    }

    friend constexpr Price operator-(const Price& a, const Price& b) {
        return {a.time - b.time, a.rest - b.rest};
    }
};

// More than any price that is met.
inline constexpr Price UNREACHABLE{std::int64_t{1} << 52U, 0};

// A price for each placement.
using Prices = std::vector<Price>;

} // namespace tssearch
