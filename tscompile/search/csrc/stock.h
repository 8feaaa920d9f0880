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

    // At most what the tree of any holding that has this one's placements costs more with another.
    Price grafted(Holding holding, Placement placement);

    // What it costs one at most to serve any uses to come, beyond what it costs the other.
    Price imitated(Holding one, Holding other);

    // How many there are.
    [[nodiscard]] std::size_t size() const { return held_.size(); }

    // What a use in `placement` costs.
    Price reach(Holding holding, Placement placement) {
        return trees(holding)[at(placement)] - held_[at(holding)].spent;
    }

    // What each of some uses costs.
    Prices reaches(Holding holding, const Placements& placements);

  private:
    struct Held {
        Placement root;
        Placements used;
        const Prices* trees; // to what is held and to each placement; null where not yet known
        Price spent;
        Holdings after; // a use in each placement; NONE where not yet known
    };

    static constexpr Holding NONE = -1;

    const Prices& trees(Holding holding);
    Holding number(Placement root, const Placements& used);

    std::shared_ptr<Trees> trees_;
    std::deque<Held> held_;
    std::map<std::pair<Placement, Placements>, Holding> numbers_;
};

} // namespace tssearch
