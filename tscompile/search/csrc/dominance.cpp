// Each state against those kept so far, of which the ones that beat others lately come first.
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

// The states that were kept, as a tree: those that are held alike in the first respect are below
// one node, those among them that are in the second below one of its children, and so on.
class Kept {
  public:
    explicit Kept(Rivals& all) : all_(all) {}

    // The first one to come is the cheapest of any that is held as it is, respect by respect.
    void add(std::size_t row, const Price& price) {
        std::int32_t* link = &first_;
        for (std::size_t respect = 0; respect < all_.respects(); ++respect) {
            const std::int32_t held = all_.held(row, respect);
            while (*link != NONE && nodes_[at(*link)].held != held)
                link = &nodes_[at(*link)].next;
            if (*link == NONE) {
                const auto made = static_cast<std::int32_t>(nodes_.size());
                *link = made;
                nodes_.push_back({price, held, NONE, NONE});
                link = &nodes_.back().below;
            } else {
                link = &nodes_[at(*link)].below;
            }
        }
    }

    // Whether one of them can do as `row` for no more than `limit`.
    bool beats(std::size_t row, const Price& limit) { return beats(first_, 0, {}, row, limit); }

  private:
    static constexpr std::int32_t NONE = -1;

    struct Node {
        Price least;
        std::int32_t held;
        std::int32_t next;  // of the same parent
        std::int32_t below; // the first child
    };

    // `spent` is what it costs in the respects before. What is found goes to the front, where it is
    // found sooner the next time.
    bool beats(std::int32_t& first, std::size_t respect, const Price& spent, std::size_t row,
               const Price& limit) {
        const std::int32_t theirs = all_.held(row, respect);
        const bool last = respect + 1 == all_.respects();
        for (std::int32_t* link = &first; *link != NONE; link = &nodes_[at(*link)].next) {
            Node& node = nodes_[at(*link)];
            if (limit < node.least + spent) continue;
            const Price cost = spent + all_.cost(respect, node.held, theirs);
            if (limit < node.least + cost) continue;
            if (!last && !beats(node.below, respect + 1, cost, row, limit)) continue;
            const std::int32_t found = std::exchange(*link, node.next);
            node.next = std::exchange(first, found);
            return true;
        }
        return false;
    }

    Rivals& all_;
    std::vector<Node> nodes_;
    std::int32_t first_ = NONE;
};

} // namespace

Frontier undominated(const Frontier& frontier, const std::vector<Uses>& uses) {
    const States& states = frontier.states;
    if (states.width == 0) return frontier; // one at most
    Rivals all(imitations_of(states, uses));
    Kept kept(all);
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < states.size(); ++row) {
        if (kept.beats(row, states.prices[row] + all.ease(row))) continue;
        kept.add(row, states.prices[row]);
        rows.push_back(row);
    }
    return frontier.only(rows);
}

} // namespace tssearch
