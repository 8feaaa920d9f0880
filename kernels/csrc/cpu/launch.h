// Running a bound call: checks its indices, cuts it into pieces and spreads them over the pool.
#pragma once

#include "cpu/calls.h"

#include <stdexcept>

namespace tskernels::cpu {

// Each throws std::out_of_range where an index read from memory (a page, a slot) lies outside.
void linear(const Linear&);
void attention(const Attention&);
void kv_write(const KvWrite&);
void rms_norm(const RmsNorm&);
void add(const Pair&);
void silu_mul(const Pair&);
void rotary(const Rotary&);
void rotary_table(const RotaryTable&);
void embedding(const Embedding&);

} // namespace tskernels::cpu
