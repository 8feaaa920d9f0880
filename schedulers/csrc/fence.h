// What was freed while a step that names it is in flight waits here until that step has committed.
#pragma once

#include "ids.h"

#include <array>
#include <vector>

namespace tsscheduler {

// The last planned and the last committed step. Everything that is fenced reads the same clock.
// `work` counts the elementary operations done so far: rows, pages, nodes, requests visited.
struct Clock {
    Step planned = 0;
    Step committed = 0;
    mutable std::int64_t work = 0;

    [[nodiscard]] Step in_flight() const { return planned - committed; }

    [[nodiscard]] bool has_committed(Step step) const { return step <= committed; }
};

template <class T> class Fence {
  public:
    void hold(T item, Step until) {
        behind_[index(until)].push_back(item);
        ++size_;
    }

    // Releases what waited for `step`; to be called when it commits.
    template <class Release> void pass(Step step, Release&& release) {
        auto& items = behind_[index(step)];
        size_ -= to_i32(items.size());
        for (const T& item : items)
            release(item);
        items.clear();
    }

    [[nodiscard]] std::int32_t size() const { return size_; }

    template <class Visit> void for_each(Visit&& visit) const {
        for (const auto& items : behind_)
            for (const T& item : items)
                visit(item);
    }

  private:
    // At most kMaxInFlight consecutive steps are in flight, so their remainders differ.
    static std::size_t index(Step step) { return static_cast<std::size_t>(step % kMaxInFlight); }

    std::array<std::vector<T>, kMaxInFlight> behind_;
    std::int32_t size_ = 0;
};

} // namespace tsscheduler
