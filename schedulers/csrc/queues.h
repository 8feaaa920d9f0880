// Who waits and who runs, both in the one order.
#pragma once

#include "request.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tsscheduler {

struct ByOrder {
    bool operator()(const Request* a, const Request* b) const { return a->order < b->order; }
};

using WaitingQueue = std::set<Request*, ByOrder>;

// Requests that hold a place. A sorted vector: it is walked every step and changes rarely.
class Running {
  public:
    void insert(Request& request) {
        items_.insert(std::upper_bound(items_.begin(), items_.end(), &request, ByOrder{}),
                      &request);
    }

    void erase(Request& request) {
        const auto at = std::lower_bound(items_.begin(), items_.end(), &request, ByOrder{});
        assert(at != items_.end() && *at == &request);
        items_.erase(at);
    }

    [[nodiscard]] std::int32_t size() const { return to_i32(items_.size()); }

    [[nodiscard]] bool empty() const { return items_.empty(); }

    [[nodiscard]] Request& operator[](std::int32_t index) const { return *items_[index]; }

    // See Request::prefetch.
    void prefetch(std::int32_t index) const {
        if (index < size()) items_[index]->prefetch();
    }

    [[nodiscard]] Request& last() const { return *items_.back(); }

  private:
    std::vector<Request*> items_;
};

} // namespace tsscheduler
