// The single steps between the placements of one view, and what they spread.
#pragma once

#include "ids.h"
#include "price.h"

namespace tssearch {

struct Step {
    Placement source = 0;
    Placement target = 0;
    Price price;
};

// Steps by the placement that they leave, in their order; or, turned round, by the one they enter.
class Steps {
  public:
    Steps(std::size_t placements, const std::vector<Step>& steps);

    [[nodiscard]] Steps reversed() const;

    [[nodiscard]] std::size_t placements() const { return starts_.size() - 1; }

    // The cheapest step out of a placement.
    [[nodiscard]] const Price& least(Placement place) const { return least_[at(place)]; }

    // Lowers each placement's price to that of reaching it from one of `open` at the other's price
    // (Bellman, "On a routing problem", 1958).
    void spread(Prices& prices, Placements open) const;

    // The first step out of `place` on the way for which there is `prices[place]` left to pay;
    // by its place in the given order.
    [[nodiscard]] std::size_t next(Placement place, const Prices& prices) const;

    [[nodiscard]] const Step& operator[](std::size_t step) const { return steps_[where_[step]]; }

  private:
    std::vector<std::size_t> starts_; // of each placement's steps in `steps_`
    std::vector<Step> steps_;
    std::vector<std::size_t> numbers_; // their places in the given order
    std::vector<std::size_t> where_;   // the inverse
    Prices least_;
};

} // namespace tssearch
