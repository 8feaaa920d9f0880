// A layer as the dynamic programming sees it, and what it makes of the states before it.
#pragma once

#include "ways.h"

namespace tssearch {

// The states behind a segment, and how they came about.
struct Explored {
    States exit;                              // by price, beyond the cheapest one's
    Price least;                              // the cheapest one's
    std::vector<std::vector<Origin>> origins; // of the states before each op and after the last

    // A state behind the segment, by the row of the state before it and the origins of those
    // between, in order.
    struct Passage {
        std::size_t entry = 0;
        std::vector<Origin> origins;
    };

    // How the state that is `row` of `exit` was reached most cheaply.
    [[nodiscard]] Passage passage(std::size_t row) const;
};

// Operations between two cuts. Values are numbered: those live at entry first, then outputs.
class Segment {
  public:
    using Stocks = std::vector<std::shared_ptr<Stock>>; // of each value
    using Stages = std::vector<std::vector<Options>>;   // before each operation

    // `live[p]` are the values needed at or after operation p, in order of their numbers, the last
    // entry being what leaves the segment; `once[p]` are those of them with a single use left.
    Segment(Stocks stocks, std::vector<Values> live, const std::vector<Values>& once,
            const Stages& stages);

    Segment(const Segment&) = delete; // it refers to its own ways

    // Whether these are states of the values that are live at its entry.
    [[nodiscard]] bool takes(const States& entry) const;

    // What the segment makes of some states; remembered.
    std::shared_ptr<const Explored> explore(const States& entry);

  private:
    [[nodiscard]] std::vector<Ways> ways_at(std::size_t position,
                                            const std::vector<Options>& stage) const;

    // All placements in which any of the ways from a position on may read a value.
    [[nodiscard]] Placements needs(std::size_t position, Value value) const;

    // What options give, to be used as it is from `position` on, or in any way.
    [[nodiscard]] Rivals gives(const Options& options, std::optional<std::size_t> position) const;

    [[nodiscard]] Options undominated_of(Options options,
                                         std::optional<std::size_t> position) const;

    [[nodiscard]] Explored worked_out(const States& entry);

    Stocks stocks_;
    std::vector<Values> live_;
    std::vector<std::vector<Ways>> ways_;
    std::vector<std::vector<Uses>> uses_; // of each live value
    std::map<States, std::shared_ptr<const Explored>> explored_;
};

} // namespace tssearch
