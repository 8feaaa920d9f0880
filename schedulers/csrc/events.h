// What can happen to a request.
#pragma once

#include "states.h"

#include <optional>

namespace tsscheduler {

// The request gets a place on the device and has to compute positions up to `target`, once the load
// has brought what the host has of them.
struct Admit {
    struct Load {
        TicketId ticket;
        std::int32_t loaded;
    };

    Residence home;
    std::int32_t target;
    std::optional<Load> load;
};

// The transfer is done: `pages` go behind those that the request has.
struct LoadDone {
    Tables pages;
};

struct LoadFailed {};

// A prefill chunk that samples nothing has run: the cache holds `committed` positions.
struct Chunk {
    std::int32_t committed;
};

// A step that sampled for this request has run.
struct Token {
    std::int32_t committed;
};

// Page pressure takes the request's place away; a ticket stores what it had committed.
struct Retract {
    std::optional<TicketId> store;
};

struct StoreDone {};

struct StoreFailed {};

// The request has all its tokens.
struct Finish {};

// The client is gone.
struct Abort {};

} // namespace tsscheduler
