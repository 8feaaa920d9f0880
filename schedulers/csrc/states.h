// The states of a request, as types: each owns just what that state may own.
#pragma once

#include "residence.h"

#include <variant>

namespace tsscheduler {

// Owns nothing.
struct Waiting {};

// Its prefix is on its way from the host; the ticket holds the pages that are being written.
struct Loading {
    Residence home;
    TicketId ticket;
    std::int32_t loaded; // positions in the cache once the transfer is done
    std::int32_t target;
};

// Computes positions up to `target`; the chunk that reaches it samples a token.
struct Prefilling {
    Residence home;
    std::int32_t target;
};

struct Decoding {
    Residence home;
};

// Retracted; what it had committed is on its way to the host.
struct Storing {
    TicketId ticket;
};

struct Finished {};

using State = std::variant<Waiting, Loading, Prefilling, Decoding, Storing, Finished>;

} // namespace tsscheduler
