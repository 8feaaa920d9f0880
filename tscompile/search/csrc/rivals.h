// Whether one of several things comes to no more than a limit.
#pragma once

#include "imitation.h"

#include <algorithm>
#include <limits>

namespace tssearch {

// Things that are told apart by holdings, one in each of some respects, and what it costs one thing
// to do as another.
class Rivals {
  public:
    explicit Rivals(std::vector<Imitation> imitations) : imitations_(std::move(imitations)) {
        // what tells most of them apart rules most of them out
        std::stable_sort(
            imitations_.begin(), imitations_.end(),
            [](const Imitation& a, const Imitation& b) { return a.distinct() > b.distinct(); });
        const std::size_t count = imitations_.empty() ? 0 : imitations_.front().size();
        for (std::size_t thing = 0; thing < count; ++thing)
            for (const Imitation& imitation : imitations_)
                holdings_.push_back(imitation.which(thing));
    }

    // How much nearer than the other anything can be, in all respects.
    [[nodiscard]] Price ease(std::size_t other) const {
        Price sum;
        const std::int32_t* theirs = holdings_.data() + other * imitations_.size();
        for (const Imitation& imitation : imitations_)
            sum = sum + imitation.ease(*theirs++);
        return sum;
    }

    // Whether a thing of this price can do as another for no more than `limit`, less the ease.
    bool within(Price price, std::size_t thing, std::size_t other, const Price& limit) {
        const std::int32_t* ours = holdings_.data() + thing * imitations_.size();
        const std::int32_t* theirs = holdings_.data() + other * imitations_.size();
        for (Imitation& imitation : imitations_) {
            if (limit < price) return false;
            price = price + imitation.cost(*ours++, *theirs++);
        }
        return price <= limit;
    }

    // In how many respects.
    [[nodiscard]] std::size_t respects() const { return imitations_.size(); }

    // How a thing is held in a respect, by number.
    [[nodiscard]] std::int32_t held(std::size_t thing, std::size_t respect) const {
        return holdings_[thing * imitations_.size() + respect];
    }

    // What it costs what is held as `one` in a respect to do as what is held as `other`.
    const Price& cost(std::size_t respect, std::int32_t one, std::int32_t other) {
        return imitations_[respect].cost(one, other);
    }

  private:
    std::vector<Imitation> imitations_;
    std::vector<std::int32_t> holdings_; // a row for each thing
};

// What comes to no more takes less time.
constexpr Price sooner_than(std::int64_t time) {
    return {time, std::numeric_limits<std::int64_t>::min()};
}

} // namespace tssearch
