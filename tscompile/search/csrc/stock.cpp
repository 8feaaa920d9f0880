// Holdings are numbered as they are met.
#include "stock.h"

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

Holding Stock::number(Placement root, const Placements& used) {
    const auto [found, fresh] =
        numbers_.try_emplace({root, used}, static_cast<Holding>(held_.size()));
    if (fresh)
        held_.push_back({root, used, &trees_->from(root, used), trees_->span(root, used), {}});
    return found->second;
}

} // namespace tssearch
