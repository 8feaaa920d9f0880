// One step, as arrays in the layout of the executor's input buffers.
#pragma once

#include "array.h"

#include <string_view>
#include <vector>

namespace tsscheduler {

struct GroupPlan {
    Array slot_mapping; // [tokens]
    Array table_deltas; // [n, 3] slot, index, page
    Array copies;       // [n, 2] from page, to page
    Array zero_pages;   // [n]
    Array stores;       // [n, 3] ticket, page, host page
    Array loads;        // [n, 3] ticket, host page, page
};

struct Admission {
    Handle handle;
    SlotId slot = 0;
    std::int32_t cached_tokens = 0;
};

enum class EmptyReason { none, idle, in_flight, waiting_transfer };

constexpr std::string_view to_string(EmptyReason reason) {
    switch (reason) {
    case EmptyReason::none:
        return "";
    case EmptyReason::idle:
        return "idle";
    case EmptyReason::in_flight:
        return "in_flight";
    case EmptyReason::waiting_transfer:
        return "waiting_transfer";
    }
    return "";
}

struct Plan {
    Step step = 0; // 0 for an empty plan, which is not committed
    EmptyReason reason = EmptyReason::none;
    std::int32_t num_decodes = 0;
    Array slots;        // [sequences]
    Array query_starts; // [sequences + 1]
    Array seq_lens;     // [sequences]
    Array positions;    // [tokens]
    Array token_ids;    // [tokens]
    Array samples;      // [sequences]
    std::vector<GroupPlan> groups;
    std::vector<Admission> admitted;
    std::vector<Handle> retracted;

    [[nodiscard]] bool empty() const { return slots.empty(); }

    [[nodiscard]] std::int32_t num_tokens() const { return to_i32(positions.size()); }

    // Keeps the memory.
    void clear() {
        step = 0;
        reason = EmptyReason::none;
        num_decodes = 0;
        for (auto* array : {&slots, &query_starts, &seq_lens, &positions, &token_ids, &samples})
            array->clear();
        query_starts.push_back(0);
        for (GroupPlan& group : groups) {
            group.slot_mapping.clear();
            group.table_deltas.clear();
            group.copies.clear();
            group.zero_pages.clear();
            group.stores.clear();
            group.loads.clear();
        }
        admitted.clear();
        retracted.clear();
    }
};

} // namespace tsscheduler
