// Cheapest reshards: paths between placements, trees where a value has several uses.
#pragma once

#include "steps.h"

#include <map>
#include <utility>

namespace tssearch {

// A value that is needed in several placements is reshared along the cheapest tree from the
// placement that it was produced in (Dreyfus and Wagner, "The Steiner problem in graphs", 1971):
// the tree may branch at a placement that nobody asked for. Placements in which a value is used
// come sorted, each once, without the root. What is returned stays where it is.
class Trees {
  public:
    Trees(std::size_t placements, const std::vector<Step>& steps);

    [[nodiscard]] std::size_t placements() const { return between_.size(); }

    // No more than the cheapest path from one placement to another, without looking for it.
    [[nodiscard]] Price least(Placement source, Placement target) const {
        return source == target ? Price{} : out_.least(source);
    }

    // The cheapest path from one placement to another.
    Price path(Placement source, Placement target) {
        return source == target ? Price{} : between(source)[at(target)];
    }

    // The cheapest paths from one placement to all.
    const Prices& between(Placement source);

    // Trees from `root` to `used` and to each placement.
    const Prices& from(Placement root, const Placements& used);

    // Trees from each placement to all of `used`.
    const Prices& to(const Placements& used);

    // The cheapest tree from `root` to all of `used`.
    Price span(Placement root, const Placements& used);

    // The steps of that tree, each starting where one before it (or `root`) ended.
    std::vector<std::size_t> steps(Placement root, const Placements& used);

  private:
    struct Split {
        Placements part;
        Placements rest;
    };

    // The tree from `root` to `used` with a path from one of its placements to each.
    Prices paths(Placement root, const Placements& used);

    // The two sets of `wanted` that separate subtrees at `place` serve; none where a single one
    // does.
    Split split(Placement place, const Placements& wanted);

    Steps out_;
    Steps in_;
    std::vector<Prices> between_; // empty where not yet known
    std::map<std::pair<Placement, Placements>, Prices> from_;
    std::map<Placements, Prices> to_;
};

// The placements that a value was used in, as `Trees` wants them.
Placements apart_from(Placement root, Placements used);

} // namespace tssearch
