// Finds a child by hash: open addressing, linear probing, eight bytes a place.
#pragma once

#include "ids.h"

#include <vector>

namespace tsscheduler {

using NodeId = std::int32_t;

inline constexpr NodeId kNoNode = 0;

class ChildIndex {
  public:
    // The first node of this hash for which same(node); kNoNode if there is none.
    template <class Same> [[nodiscard]] NodeId find(std::uint32_t hash, Same&& same) const {
        for (std::size_t at = home(hash); places_[at].node != kNoNode; at = next(at))
            if (places_[at].hash == hash && same(places_[at].node)) return places_[at].node;
        return kNoNode;
    }

    void insert(std::uint32_t hash, NodeId node) {
        if ((size_ + 1) * 2 > places_.size()) grow();
        ++size_;
        put({hash, node});
    }

    // Moves later entries of the run back, so that no gap hides them.
    void erase(std::uint32_t hash, NodeId node) {
        std::size_t gap = home(hash);
        while (places_[gap].node != node)
            gap = next(gap);
        for (std::size_t at = next(gap); places_[at].node != kNoNode; at = next(at)) {
            const std::size_t distance = (at - home(places_[at].hash)) & mask();
            if (distance < ((at - gap) & mask())) continue;
            places_[gap] = places_[at];
            gap = at;
        }
        places_[gap] = {};
        --size_;
    }

  private:
    struct Place {
        std::uint32_t hash = 0;
        NodeId node = kNoNode;
    };

    [[nodiscard]] std::size_t mask() const { return places_.size() - 1; }

    [[nodiscard]] std::size_t home(std::uint32_t hash) const { return hash & mask(); }

    [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & mask(); }

    void put(Place place) {
        std::size_t at = home(place.hash);
        while (places_[at].node != kNoNode)
            at = next(at);
        places_[at] = place;
    }

    void grow() {
        std::vector<Place> old(places_.size() * 2);
        old.swap(places_);
        for (const Place& place : old)
            if (place.node != kNoNode) put(place);
    }

    std::vector<Place> places_ = std::vector<Place>(64);
    std::size_t size_ = 0;
};

} // namespace tsscheduler
