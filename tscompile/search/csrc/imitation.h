// What it costs one holding of a value to do all that another can.
#pragma once

#include "stock.h"

#include <optional>

namespace tssearch {

// How values of one view may be used from here on: `needs` are the placements that a single
// remaining use may need, where there is only one.
struct Uses {
    Stock* stock;
    std::optional<Placements> needs;
};

// Costs among some holdings, each worked out when it is first asked for.
//
// With a single use left it is what reaching one of the needs costs more, where that is most.
// Otherwise it is what it costs to reach where the other was produced, and to redo its reshards.
// One holding may be nearer to everything than the other, and its cost negative. So that sums never
// fall, costs are given beyond `ease`, which is never negative.
class Imitation {
  public:
    Imitation(const Uses& uses, const Holdings& holdings);

    [[nodiscard]] std::size_t size() const { return which_.size(); }

    [[nodiscard]] std::size_t distinct() const { return distinct_.size(); }

    // Which of the distinct ones a holding is, by its place in the list.
    [[nodiscard]] std::int32_t which(std::size_t place) const { return which_[place]; }

    // By how much another can be nearer to anything.
    [[nodiscard]] const Price& ease(std::int32_t other) const { return distinct_[at(other)].ease; }

    // For one to do as another.
    const Price& cost(std::int32_t one, std::int32_t other) {
        Price& known = costs_[at(other) * distinct_.size() + at(one)];
        if (known.time == UNKNOWN) known = worked_out(distinct_[at(one)], distinct_[at(other)]);
        return known;
    }

  private:
    struct Distinct {
        Holding holding;
        Price ease;
        Prices reach; // of each of the needs
    };

    static constexpr std::int64_t UNKNOWN = -1;
    static constexpr std::int32_t NONE = -1;

    [[nodiscard]] Distinct told_apart(const Uses& uses, Holding holding) const;
    [[nodiscard]] Price worked_out(const Distinct& one, const Distinct& other) const;

    Stock* stock_;
    bool once_;
    std::vector<std::int32_t> which_;
    std::vector<Distinct> distinct_;
    Prices costs_; // [other, one]
};

} // namespace tssearch
