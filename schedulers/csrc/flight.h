// What the steps in flight name: enough to check and apply their results.
#pragma once

#include "fence.h"

#include <array>
#include <vector>

namespace tsscheduler {

// One sequence of a planned step.
struct Entry {
    Handle handle;
    SlotId slot = 0;
    std::int32_t end = 0;  // positions in the cache once the step has run
    std::int32_t most = 0; // tokens that it may yield; 0 if it samples nothing
};

struct StepRecord {
    std::vector<Entry> entries;
    std::vector<std::int32_t> entry_of_slot; // [max_batch], -1 for slots not in the step

    void clear() {
        for (const Entry& entry : entries)
            entry_of_slot[entry.slot] = -1;
        entries.clear();
    }

    void add(const Entry& entry) {
        assert(entry_of_slot[entry.slot] == -1);
        entry_of_slot[entry.slot] = to_i32(entries.size());
        entries.push_back(entry);
    }
};

class Flight {
  public:
    explicit Flight(std::int32_t slots) {
        for (StepRecord& record : records_) {
            record.entry_of_slot.assign(static_cast<std::size_t>(slots), -1);
            record.entries.reserve(static_cast<std::size_t>(slots));
        }
    }

    StepRecord& operator[](Step step) {
        return records_[static_cast<std::size_t>(step % kMaxInFlight)];
    }

  private:
    std::array<StepRecord, kMaxInFlight> records_;
};

} // namespace tsscheduler
