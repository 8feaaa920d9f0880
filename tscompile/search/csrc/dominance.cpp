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

} // namespace

Frontier undominated(const Frontier& frontier, const std::vector<Uses>& uses) {
    const States& states = frontier.states;
    Rivals all(imitations_of(states, uses));
    std::vector<std::size_t> kept;
    std::vector<std::size_t> rivals; // those kept, in the order in which they are tried
    for (std::size_t row = 0; row < states.size(); ++row) {
        const Price limit = states.prices[row] + all.ease(row);
        const auto beats = [&](std::size_t rival) {
            return all.within(states.prices[rival], rival, row, limit);
        };
        const auto found = std::find_if(rivals.begin(), rivals.end(), beats);
        if (found == rivals.end()) {
            kept.push_back(row);
            rivals.push_back(row);
        } else {
            std::swap(*found, rivals[static_cast<std::size_t>(found - rivals.begin()) / 2]);
        }
    }
    return frontier.only(kept);
}

} // namespace tssearch
