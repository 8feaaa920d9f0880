// Numbers that name things.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tssearch {

using Value = std::int32_t;     // of a segment: those live at its entry first, then outputs
using Placement = std::int32_t; // of values of one view
using Holding = std::int32_t;   // of a stock

using Values = std::vector<Value>;
using Placements = std::vector<Placement>;
using Holdings = std::vector<Holding>;

// A number that is never negative as an index.
constexpr std::size_t at(std::int32_t number) {
    return static_cast<std::size_t>(number);
}

} // namespace tssearch
