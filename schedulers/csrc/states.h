// The states of a request, as types: each owns just what that state may own.
#pragma once

#include "slots.h"
#include "table.h"

#include <variant>

namespace tsscheduler {

// What a request on the device holds. Planning follows `planned`, publishing `committed`; both
// count positions whose keys and values are in the cache once the step has run.
struct Residence {
    Slot slot;
    Tables tables{};
    std::int32_t planned = 0;
    std::int32_t committed = 0;

    void touch(Step step) {
        slot.touch(step);
        tables.touch(step);
    }
};

struct Waiting {};

// Computes positions up to `target`; the chunk that reaches it samples a token.
struct Prefilling {
    Residence home;
    std::int32_t target = 0;
};

struct Decoding {
    Residence home;
};

struct Finished {};

using State = std::variant<Waiting, Prefilling, Decoding, Finished>;

} // namespace tsscheduler
