// Plans as Python sees them. Their arrays are kept with the plan's memory, which the scheduler uses
// again only when nobody refers to any of them.
#pragma once

#include "arrays.h"

namespace tsscheduler {

struct GroupWindows {
    Window slot_mapping, table_deltas, copies, zero_pages, stores, loads;

    [[nodiscard]] bool held() const {
        for (const Window* window :
             {&slot_mapping, &table_deltas, &copies, &zero_pages, &stores, &loads})
            if (window->held()) return true;
        return false;
    }
};

struct PlanWindows {
    std::shared_ptr<const Plan> plan; // pinned while Python may read it, else null
    const Plan* identity;
    Window slots, query_starts, seq_lens, positions, token_ids, samples;
    std::vector<GroupWindows> groups;

    explicit PlanWindows(const Plan* of) : identity(of), groups(of->groups.size()) {}

    [[nodiscard]] bool held() const {
        for (const Window* window :
             {&slots, &query_starts, &seq_lens, &positions, &token_ids, &samples})
            if (window->held()) return true;
        return std::ranges::any_of(groups, [](const GroupWindows& group) { return group.held(); });
    }
};

struct PlanView {
    std::shared_ptr<PlanWindows> windows;

    [[nodiscard]] const Plan& plan() const { return *windows->plan; }
};

struct GroupView {
    std::shared_ptr<PlanWindows> windows;
    std::size_t index;
};

class PlanningScheduler : public Scheduler {
  public:
    using Scheduler::Scheduler;

    PlanView plan_view() {
        for (const auto& windows : windows_)
            if (windows->plan && windows.use_count() == 1 && !windows->held())
                windows->plan.reset();
        std::shared_ptr<const Plan> plan = Scheduler::plan();
        const std::shared_ptr<PlanWindows>& windows = windows_of(plan.get());
        windows->plan = std::move(plan);
        return {windows};
    }

  private:
    const std::shared_ptr<PlanWindows>& windows_of(const Plan* plan) {
        for (const auto& windows : windows_)
            if (windows->identity == plan) return windows;
        return windows_.emplace_back(std::make_shared<PlanWindows>(plan));
    }

    std::vector<std::shared_ptr<PlanWindows>> windows_;
};

} // namespace tsscheduler
