// Writes decodes of one token each straight into a plan's arrays.
#pragma once

#include "plan.h"
#include "table.h"

#include <array>

namespace tsscheduler {

class Columns {
  public:
    // At most `most` rows, behind those that the plan has.
    Columns(Plan& plan, std::size_t most)
        : groups_(to_i32(plan.groups.size())), slots_(plan.slots.room(most)),
          query_starts_(plan.query_starts.room(most)), seq_lens_(plan.seq_lens.room(most)),
          positions_(plan.positions.room(most)), token_ids_(plan.token_ids.room(most)),
          samples_(plan.samples.room(most)), next_token_(plan.num_tokens()) {
        for (std::int32_t g = 0; g < groups_; ++g)
            mappings_[g] = plan.groups[g].slot_mapping.room(most);
    }

    void write(SlotId slot, std::int32_t position, TokenId token,
               const std::array<std::int32_t, kMaxGroups>& bases) {
        slots_[rows_] = slot;
        query_starts_[rows_] = ++next_token_;
        seq_lens_[rows_] = position + 1;
        positions_[rows_] = position;
        token_ids_[rows_] = token;
        samples_[rows_] = 1;
        for (std::int32_t g = 0; g < groups_; ++g)
            mappings_[g][rows_] = bases[g] + position;
        ++rows_;
    }

    // The plan counts what was written.
    void finish(Plan& plan) const {
        for (Array* array : {&plan.slots, &plan.query_starts, &plan.seq_lens, &plan.positions,
                             &plan.token_ids, &plan.samples})
            array->advance(rows_);
        for (GroupPlan& group : plan.groups)
            group.slot_mapping.advance(rows_);
    }

  private:
    std::int32_t groups_;
    std::int32_t* slots_;
    std::int32_t* query_starts_;
    std::int32_t* seq_lens_;
    std::int32_t* positions_;
    std::int32_t* token_ids_;
    std::int32_t* samples_;
    std::array<std::int32_t*, kMaxGroups> mappings_{};
    std::int32_t next_token_;
    std::size_t rows_ = 0;
};

} // namespace tsscheduler
