// The options of all kernels that take the same values to the same values, as one list.
#pragma once

#include "frontier.h"
#include "options.h"

#include <deque>

namespace tssearch {

// What becomes of a live value: it stays as it is in `column`, or is held as the option makes it.
struct Becomes {
    bool touched;
    std::size_t column; // of the state before, or of `Choices::touched`
};

// The options that are worth taking from states that hold alike what these read.
struct Choices {
    std::vector<std::int32_t> options;
    Prices prices; // with the reshards of what is read
    Holdings
        touched; // a row an option: the values of it that are live afterwards, and were touched
};

class Ways {
  public:
    // `before` and `after` are the values live before and behind the operations. `stocks` has a
    // stock for each value; `gives` compares what options give.
    Ways(Options options, const Values& before, const Values& after,
         const std::vector<std::shared_ptr<Stock>>& stocks, Rivals gives);

    Ways(const Ways&) = delete; // it refers to its own options
    Ways(Ways&&) = default;

    // Adds the states behind, by way of each option that no other of the same state beats.
    void expand(std::int32_t position, const States& states, Pool& pool);

    [[nodiscard]] const Options& options() const { return options_; }

  private:
    struct Read {
        const Placements* placements;
        Stock* stock;
        std::size_t column; // of the state before
        bool stays;         // live afterwards
    };

    struct Touched {
        const Placements* placements;
        Stock* stock;
        std::optional<std::size_t> read; // which of what is read; none where the option gives it
    };

    // The choices of states that hold what is read as `held`.
    const Choices& choices(Row held);

    [[nodiscard]] Choices worked_out(Row held);

    // What a rival's placement of what is read costs more where an option's is had: it is grafted
    // onto any tree for `graft`, or onto the option's for less. Exact only if within `limit`.
    [[nodiscard]] Price grafted(std::size_t read, const Price& graft, std::size_t rival,
                                std::size_t option, const Price& limit) const;

    void touch(Row held, std::size_t option, Holdings& touched) const;

    Options options_;
    Rivals gives_;
    std::vector<Read> reads_;
    std::vector<Touched> touched_;
    std::vector<Becomes> becomes_; // of each value that is live afterwards
    Rows known_;
    std::deque<Choices> choices_; // of each row of `known_`
};

} // namespace tssearch
