// Holdings are numbered as they are met.
#include "stock.h"

#include <algorithm>

namespace tssearch {

Holding Stock::start(Placement placement) {
    return number(placement, {});
}

Holding Stock::used(Holding holding, Placement placement) {
    Held& held = held_[at(holding)];
    if (held.after.empty()) held.after.assign(trees_->placements(), NONE);
    Holding& after = held.after[at(placement)];
    if (after == NONE) {
        Placements used = held.used;
        used.push_back(placement);
        after = number(held.root, apart_from(held.root, std::move(used)));
    }
    return after;
}

Prices Stock::reaches(Holding holding, const Placements& placements) {
    const Prices& all = trees(holding);
    const Held& held = held_[at(holding)];
    Prices prices;
    prices.reserve(placements.size());
    for (const Placement placement : placements)
        prices.push_back(all[at(placement)] - held.spent);
    return prices;
}

// Steiner trees are not submodular: a placement that costs a small tree nothing, since one of the
// ways to it that cost the same passes there, may cost a larger tree something. Whatever else a
// tree serves, a path from one of its placements to another can be added.
Price Stock::grafted(Holding holding, Placement placement) {
    const Held& held = held_[at(holding)];
    Price least = trees_->between(held.root)[at(placement)];
    for (const Placement used : held.used)
        least = std::min(least, trees_->between(used)[at(placement)]);
    return least;
}

// From the root of `one` either its own tree goes on to the other's root, where the other's begins;
// or a path does, and what `one` was used in is grafted onto the other's tree.
Price Stock::imitated(Holding one, Holding other) {
    const Held& ours = held_[at(one)];
    const Held& theirs = held_[at(other)];
    Price path = trees_->between(ours.root)[at(theirs.root)] - ours.spent;
    for (const Placement used : ours.used)
        path = path + std::min(grafted(other, used), trees_->between(ours.root)[at(used)]);
    return std::min(reach(one, theirs.root), path) + theirs.spent;
}

const Prices& Stock::trees(Holding holding) {
    Held& held = held_[at(holding)];
    if (held.trees == nullptr) held.trees = &trees_->from(held.root, held.used);
    return *held.trees;
}

Holding Stock::number(Placement root, const Placements& used) {
    const auto [found, fresh] =
        numbers_.try_emplace({root, used}, static_cast<Holding>(held_.size()));
    if (fresh) held_.push_back({root, used, nullptr, trees_->span(root, used), {}});
    return found->second;
}

} // namespace tssearch
