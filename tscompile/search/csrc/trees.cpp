// Trees by dynamic programming over the sets of placements that their branches serve.
#include "trees.h"

#include <algorithm>
#include <numeric>

namespace tssearch {

namespace {

Placements without(const Placements& all, const Placements& left_out) {
    Placements rest;
    std::set_difference(all.begin(), all.end(), left_out.begin(), left_out.end(),
                        std::back_inserter(rest));
    return rest;
}

// Calls `visit(subset)` for those of `count` of the first `among` items, in lexical order, until it
// says true; whether it did.
template <class Visit>
bool any_of_size(const Placements& items, std::size_t among, std::size_t count, Visit visit) {
    std::vector<std::size_t> chosen(count);
    for (std::size_t i = 0; i < count; ++i)
        chosen[i] = i;
    while (true) {
        Placements subset;
        for (const std::size_t i : chosen)
            subset.push_back(items[i]);
        if (visit(subset)) return true;
        std::size_t last = count;
        while (last > 0 && chosen[last - 1] == among - count + last - 1)
            --last;
        if (last == 0) return false;
        ++chosen[last - 1];
        for (std::size_t i = last; i < count; ++i)
            chosen[i] = chosen[i - 1] + 1;
    }
}

// The same for all subsets of the first `among` items but the empty one, small ones first.
template <class Visit> bool any_subset(const Placements& items, std::size_t among, Visit visit) {
    for (std::size_t count = 1; count <= among; ++count)
        if (any_of_size(items, among, count, visit)) return true;
    return false;
}

// Lowers prices to those of a branch to one set and a branch to another.
void lower(Prices& prices, const Prices& one, const Prices& other) {
    for (std::size_t i = 0; i < prices.size(); ++i)
        prices[i] = std::min(prices[i], one[i] + other[i]);
}

} // namespace

Placements apart_from(Placement root, Placements used) {
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::erase(used, root);
    return used;
}

Trees::Trees(std::size_t placements, const std::vector<Step>& steps)
    : out_(placements, steps), in_(out_.reversed()), between_(placements) {}

const Prices& Trees::between(Placement source) {
    Prices& prices = between_[at(source)];
    if (prices.empty()) {
        prices.assign(placements(), UNREACHABLE);
        prices[at(source)] = {};
        out_.spread(prices, {source});
    }
    return prices;
}

const Prices& Trees::from(Placement root, const Placements& used) {
    if (used.empty()) return between(root);
    const auto [found, fresh] = from_.try_emplace({root, used});
    Prices& prices = found->second;
    if (!fresh) return prices;
    // the last branch hangs off the path to x, and serves `hung`
    Prices branch(placements(), UNREACHABLE);
    any_subset(used, used.size(), [&](const Placements& hung) {
        lower(branch, from(root, without(used, hung)), to(hung));
        return false;
    });
    // or it is a path from what the tree has anyway
    prices = paths(root, used);
    Placements lowered;
    for (std::size_t place = 0; place < branch.size(); ++place)
        if (branch[place] < prices[place]) lowered.push_back(static_cast<Placement>(place));
    for (const Placement place : lowered)
        prices[at(place)] = branch[at(place)];
    out_.spread(prices, std::move(lowered));
    return prices;
}

const Prices& Trees::to(const Placements& used) {
    const auto [found, fresh] = to_.try_emplace(used);
    Prices& prices = found->second;
    if (!fresh) return prices;
    prices.assign(placements(), UNREACHABLE);
    if (used.size() == 1) {
        prices[at(used.front())] = {};
        in_.spread(prices, used);
        return prices;
    }
    // without the last one, so that each split comes once
    any_subset(used, used.size() - 1, [&](const Placements& part) {
        lower(prices, to(part), to(without(used, part)));
        return false;
    });
    Placements all(placements());
    std::iota(all.begin(), all.end(), 0);
    in_.spread(prices, std::move(all));
    return prices;
}

Prices Trees::paths(Placement root, const Placements& used) {
    const Price spent = span(root, used);
    Prices least = between(root);
    for (const Placement one : used) {
        const Prices& others = between(one);
        for (std::size_t place = 0; place < least.size(); ++place)
            least[place] = std::min(least[place], others[place]);
    }
    for (Price& price : least)
        price = std::min(price + spent, UNREACHABLE);
    return least;
}

Price Trees::span(Placement root, const Placements& used) {
    return used.empty() ? Price{} : to(used)[at(root)];
}

std::vector<std::size_t> Trees::steps(Placement root, const Placements& used) {
    std::vector<std::size_t> found;
    std::vector<std::pair<Placement, Placements>> pending{{root, used}};
    while (!pending.empty()) {
        const auto [place, wanted] = std::move(pending.back());
        pending.pop_back();
        if (wanted.empty()) continue;
        Split halves = split(place, wanted);
        if (!halves.part.empty()) {
            pending.emplace_back(place, std::move(halves.rest));
            pending.emplace_back(place, std::move(halves.part));
            continue;
        }
        found.push_back(out_.next(place, to(wanted)));
        const Placement end = out_[found.back()].target;
        pending.emplace_back(end, without(wanted, {end}));
    }
    return found;
}

Trees::Split Trees::split(Placement place, const Placements& wanted) {
    Split halves;
    const Price total = to(wanted)[at(place)];
    any_subset(wanted, wanted.size() - 1, [&](const Placements& part) {
        const Placements rest = without(wanted, part);
        if (!(to(part)[at(place)] + to(rest)[at(place)] == total)) return false;
        halves = {part, rest};
        return true;
    });
    return halves;
}

} // namespace tssearch
