// What can happen to a request.
#pragma once

#include "states.h"

namespace tsscheduler {

// The request gets a place on the device and has to compute positions up to `target`.
struct Admit {
    Residence home;
    std::int32_t target;
};

// A prefill chunk that samples nothing has run: the cache holds `committed` positions.
struct Chunk {
    std::int32_t committed;
};

// A step that sampled for this request has run.
struct Token {
    std::int32_t committed;
};

// Page pressure takes the request's place away.
struct Retract {};

// The request has all its tokens.
struct Finish {};

// The client is gone.
struct Abort {};

} // namespace tsscheduler
