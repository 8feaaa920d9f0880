// What a live value is held as: the placement it was produced in, and those it was used in since.
#pragma once

#include "trees.h"

#include <deque>
#include <memory>

namespace tssearch {

// The holdings of values of one view, by number. How a value came to its placements is left open
// until all of its uses are known: a holding costs the cheapest tree over them, so a later use pays
// the difference.
class Stock {
  public:
    explicit Stock(std::shared_ptr<Trees> trees) : trees_(std::move(trees)) {}

    [[nodiscard]] Trees& trees() const { return *trees_; }

    // The holding of a value that was just produced so.
    Holding start(Placement placement);

    // The holding after a use in `placement`.
    Holding used(Holding holding, Placement placement);

    // Whether there is such a holding.
    [[nodiscard]] bool has(Holding holding) const {
        return holding >= 0 && at(holding) < held_.size();
    }

    [[nodiscard]] Placement root(Holding holding) const { return held_[at(holding)].root; }

    // What the reshards so far cost.
    [[nodiscard]] Price spent(Holding holding) const { return held_[at(holding)].spent; }

    // What a use in `placement` costs.
    [[nodiscard]] Price reach(Holding holding, Placement placement) const {
        const Held& held = held_[at(holding)];
        return (*held.trees)[at(placement)] - held.spent;
    }

  private:
    struct Held {
        Placement root;
        Placements used;
        const Prices* trees; // to what is held and to each placement
        Price spent;
        Holdings after; // a use in each placement; NONE where not yet known
    };

    static constexpr Holding NONE = -1;

    Holding number(Placement root, const Placements& used);

    std::shared_ptr<Trees> trees_;
    std::deque<Held> held_;
    std::map<std::pair<Placement, Placements>, Holding> numbers_;
};

} // namespace tssearch
