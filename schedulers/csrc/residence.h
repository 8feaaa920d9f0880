// What a request on the device holds, and what a transfer holds.
#pragma once

#include "slots.h"
#include "tree.h"

#include <map>
#include <optional>

namespace tsscheduler {

// Planning follows `planned`, publishing `committed`; both count positions whose keys and values
// are in the cache once the step has run. The rest spares a step from looking into the tables.
struct Cursor {
    std::int32_t planned = 0;
    std::int32_t committed = 0;
    // From `planned` up to here, the slot of a position is its group's base + the position, and the
    // device knows the page.
    std::int32_t page_end = 0;
    // Below this, committing completes no page and moves no window.
    std::int32_t settle_at = 0;
    std::array<std::int32_t, kMaxGroups> bases{};
    Step last = 0; // the last step that names it
};

// Its place is given up for good only when the last step that names it has committed.
struct Residence : Cursor {
    explicit Residence(Slot&& place) : slot(std::move(place)) {}

    Residence(Residence&&) noexcept = default;

    Residence& operator=(Residence&& other) noexcept {
        if (this != &other) {
            tell_last();
            Cursor::operator=(other);
            slot = std::move(other.slot);
            published = other.published;
            anchor = std::move(other.anchor);
            tables = std::move(other.tables);
        }
        return *this;
    }

    Residence(const Residence&) = delete;
    Residence& operator=(const Residence&) = delete;

    ~Residence() { tell_last(); }

    Slot slot;
    std::int32_t published = 0; // pages that the tree has been shown
    Anchor anchor{};            // the tree's node of the last published page
    Tables tables{};

  private:
    // Told at the end, since each step would else touch all of them.
    void tell_last() noexcept {
        slot.touch(last);
        tables.touch(last);
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
