// What the steps in flight name: enough to check and apply their results.
#pragma once

#include "fence.h"

#include <span>
#include <vector>

namespace tsscheduler {

struct Request;

// One sequence of a planned step.
struct Entry {
    Request* request = nullptr; // its place, which may be another one's by now
    std::uint32_t generation = 0;
    SlotId slot = 0;
    std::int32_t end = 0;  // positions in the cache once the step has run
    std::int32_t most = 0; // tokens that it may yield; 0 if it samples nothing
};

// A slot is in a step once at most.
class StepRecord {
  public:
    explicit StepRecord(std::int32_t slots) : places_(static_cast<std::size_t>(slots)) {}

    [[nodiscard]] std::span<const Entry> entries() const { return {places_.data(), size_}; }

    void clear() { size_ = 0; }

    void add(const Entry& entry) {
        *room() = entry;
        advance(1);
    }

    // Where the entries behind the present ones go; advance() then counts those written.
    Entry* room() { return places_.data() + size_; }

    void advance(std::size_t written) {
        assert(size_ + written <= places_.size());
        size_ += written;
    }

  private:
    std::vector<Entry> places_; // [max_batch]
    std::size_t size_ = 0;
};

class Flight {
  public:
    explicit Flight(std::int32_t slots) : records_(kMaxInFlight, StepRecord(slots)) {}

    StepRecord& operator[](Step step) {
        return records_[static_cast<std::size_t>(step % kMaxInFlight)];
    }

  private:
    std::vector<StepRecord> records_;
};

} // namespace tsscheduler
