// Device slots: rows of the page tables and of the sampler's state, one a running request.
#pragma once

#include "fence.h"

#include <utility>
#include <vector>

namespace tsscheduler {

class SlotPool;

// Owns one device slot. Dropped, it waits for the last planned step that names it.
class Slot {
  public:
    Slot(Slot&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_), last_(other.last_) {}

    Slot& operator=(Slot&& other) noexcept {
        if (this != &other) {
            drop();
            pool_ = std::exchange(other.pool_, nullptr);
            id_ = other.id_;
            last_ = other.last_;
        }
        return *this;
    }

    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    ~Slot() { drop(); }

    [[nodiscard]] SlotId id() const { return id_; }

    void touch(Step step) { last_ = step; }

  private:
    friend class SlotPool;

    Slot(SlotPool& pool, SlotId id) : pool_(&pool), id_(id) {}

    inline void drop() noexcept;

    SlotPool* pool_;
    SlotId id_;
    Step last_ = 0;
};

class SlotPool {
  public:
    SlotPool(std::int32_t slots, const Clock& clock) : clock_(&clock), total_(slots) {
        for (SlotId id = slots - 1; id >= 0; --id)
            free_.push_back(id);
    }

    SlotPool(const SlotPool&) = delete;
    SlotPool& operator=(const SlotPool&) = delete;

    [[nodiscard]] std::int32_t total() const { return total_; }

    [[nodiscard]] std::int32_t free() const { return to_i32(free_.size()); }

    [[nodiscard]] std::int32_t fenced() const { return fence_.size(); }

    // Requires free() > 0.
    Slot take() {
        assert(!free_.empty());
        const SlotId id = free_.back();
        free_.pop_back();
        return Slot(*this, id);
    }

    void pass(Step step) {
        fence_.pass(step, [this](SlotId id) { free_.push_back(id); });
    }

  private:
    friend class Slot;

    void give_back(SlotId id, Step last) {
        if (clock_->has_committed(last))
            free_.push_back(id);
        else
            fence_.hold(id, last);
    }

    const Clock* clock_;
    std::int32_t total_;
    std::vector<SlotId> free_;
    Fence<SlotId> fence_;
};

inline void Slot::drop() noexcept {
    if (pool_ != nullptr) std::exchange(pool_, nullptr)->give_back(id_, last_);
}

} // namespace tsscheduler
