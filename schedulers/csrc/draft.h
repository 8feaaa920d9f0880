// A step while it is being planned.
#pragma once

#include "scheduler.h"

namespace tsscheduler {

struct Scheduler::Draft {
    Step step;
    Plan& plan;
    StepRecord& record;
    std::int32_t prefill_budget = 0; // what the decodes leave of the token budget
    bool reserved = false;           // the decodes that are still to come are off it too
    bool pressed = false;            // somebody had to wait for pages, or to go
    std::array<std::int32_t, kMaxGroups> owed{}; // pages that earlier requests wait for
    std::vector<std::pair<Request*, std::int32_t>> chunks{};
};

} // namespace tsscheduler
