// What a request on the device holds, and what a transfer holds.
#pragma once

#include "slots.h"
#include "tree.h"

#include <map>
#include <optional>

namespace tsscheduler {

// Planning follows `planned`, publishing `committed`; both count positions whose keys and values
// are in the cache once the step has run.
struct Residence {
    Slot slot;
    std::int32_t planned = 0;
    std::int32_t committed = 0;
    std::int32_t published = 0; // pages that the tree has been shown
    Anchor anchor{};            // the tree's node of the last published page
    Tables tables{};

    void touch(Step step) {
        slot.touch(step);
        tables.touch(step);
    }
};

// Names a transfer between device and host; they count from 1.
using TicketId = std::int32_t;

// A transfer of pages begin .. end - 1 of a request. It owns both ends until it is acknowledged.
struct Ticket {
    enum class Kind { store, load };

    Kind kind;
    Handle handle;
    std::int32_t begin = 0;
    std::int32_t end = 0;
    Tables device{}; // from page `begin` on; of a load, also the blank ones behind
    Tables host{};   // from page 0 on
    Anchor node{};   // of a store, the host tree's node of the last page
};

class Transfers {
  public:
    TicketId add(Ticket&& ticket) {
        tickets_.emplace(++last_, std::move(ticket));
        return last_;
    }

    // Empty if the ticket is not outstanding.
    std::optional<Ticket> take(TicketId id) {
        auto node = tickets_.extract(id);
        if (node.empty()) return std::nullopt;
        return std::move(node.mapped());
    }

    [[nodiscard]] const Ticket& operator[](TicketId id) const { return tickets_.at(id); }

    [[nodiscard]] bool empty() const { return tickets_.empty(); }

    template <class Visit> void for_each(Visit&& visit) const {
        for (const auto& [id, ticket] : tickets_)
            visit(ticket);
    }

  private:
    std::map<TicketId, Ticket> tickets_;
    TicketId last_ = 0;
};

} // namespace tsscheduler
