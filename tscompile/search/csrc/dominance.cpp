// Each state against those kept so far, the ones that beat others lately first.
#include "dominance.h"

#include "rivals.h"

#include <algorithm>
#include <utility>

namespace tssearch {

namespace {

std::vector<Imitation> imitations_of(const States& states, const std::vector<Uses>& uses) {
    std::vector<Imitation> imitations;
    for (std::size_t k = 0; k < uses.size(); ++k) {
        Holdings holdings;
        for (std::size_t row = 0; row < states.size(); ++row)
            holdings.push_back(states[row][k]);
        imitations.emplace_back(uses[k], holdings);
    }
    return imitations;
}

// States that are held alike in the first respect, the cheapest one first.
using Group = std::vector<std::size_t>;

// Puts something that was found nearer to the front, where it is found sooner the next time.
void advance(std::vector<Group>& groups, std::vector<Group>::iterator found) {
    std::swap(*found, groups[static_cast<std::size_t>(found - groups.begin()) / 2]);
}

} // namespace

Frontier undominated(const Frontier& frontier, const std::vector<Uses>& uses) {
    const States& states = frontier.states;
    Rivals all(imitations_of(states, uses));
    std::vector<std::size_t> kept;
    std::vector<Group> groups; // of those kept
    for (std::size_t row = 0; row < states.size(); ++row) {
        const Price limit = states.prices[row] + all.ease(row);
        const auto beats = [&](std::size_t rival) {
            return all.within(states.prices[rival], rival, row, limit);
        };
        const auto has_better = [&](const Group& group) {
            const std::size_t first = group.front();
            return !(limit < all.least(states.prices[first], first, row)) &&
                   std::any_of(group.begin(), group.end(), beats);
        };
        const auto found = std::find_if(groups.begin(), groups.end(), has_better);
        if (found != groups.end()) {
            advance(groups, found);
            continue;
        }
        kept.push_back(row);
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
            return all.alike(group.front(), row);
        });
        if (same == groups.end())
            groups.push_back({row});
        else
            same->push_back(row);
    }
    return frontier.only(kept);
}

} // namespace tssearch
