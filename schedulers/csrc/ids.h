// The words of the scheduler: ids, steps, handles and the one order of requests.
#pragma once

#include <cassert>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace tsscheduler {

using TokenId = std::int32_t;
using PageId = std::int32_t; // an index into one cache group's pool
using SlotId = std::int32_t; // a row of the device's page tables, 0 to max_batch - 1
using Step = std::int64_t;   // steps count from 1; 0 is "before the first"

// Padding rows write here and unused table entries name it; never handed out.
inline constexpr PageId kNullPage = 0;

// A token that a step in flight is still sampling.
inline constexpr TokenId kUnknownToken = -1;

// How many planned steps may be uncommitted.
inline constexpr Step kMaxInFlight = 2;

// Names one request: a place and its generation, so that a stale handle is told apart.
struct Handle {
    std::uint32_t index = 0;
    std::uint32_t generation = 0;

    friend bool operator==(const Handle&, const Handle&) = default;
};

// The one order of requests, first to last. `key` is priority * ageing + the step of submission: a
// unit of priority is worth `ageing` steps of waiting, and because every request ages at the same
// rate from its submission on, running or not, the order never changes.
struct Order {
    std::int64_t key = 0;
    std::uint64_t arrival = 0;

    friend auto operator<=>(const Order&, const Order&) = default;
};

template <class T> constexpr std::int32_t to_i32(T value) {
    assert(static_cast<std::int64_t>(value) == static_cast<std::int32_t>(value));
    return static_cast<std::int32_t>(value);
}

constexpr std::int32_t ceil_div(std::int32_t a, std::int32_t b) {
    return (a + b - 1) / b;
}

} // namespace tsscheduler
