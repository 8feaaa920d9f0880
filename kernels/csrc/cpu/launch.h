// Running a bound call: checks its indices, cuts it into pieces and spreads them over the pool.
#pragma once

#include "cpu/calls.h"

#include <functional>
#include <stdexcept>
#include <vector>

namespace tskernels::cpu {

// Each throws std::out_of_range where an index read from memory (a page, a slot) lies outside.
void linear(const Linear&);
void attention(const Attention&);
void rotary_table(const RotaryTable&);
void embedding(const Embedding&);
void linear_silu_mul(const LinearSiluMul&);

// A call whose rows do not depend on one another: `run` does those from begin to end, `cost` is the
// elements that one takes. `check` throws as above, before any row is run.
struct Rows {
    std::function<void(Size, Size)> run;
    Size count = 0;
    Size cost = 0;
    std::function<void()> check = [] {};
};

Rows rms_norm_rows(const RmsNorm&);
Rows add_rows(const Pair&);
Rows silu_mul_rows(const Pair&);
Rows rotary_rows(const Rotary&);
Rows kv_write_rows(const KvWrite&);

// All calls for some rows, then for the next ones: a call may read what one before it has written
// in the same row. They have equally many rows.
void in_rows(const std::vector<Rows>&);

} // namespace tskernels::cpu
