// The kernels' inner loops, compiled once per instruction set and chosen when the module loads.
#pragma once

#include "cpu/calls.h"

namespace tskernels::cpu {

// Each loop covers a range of rows (linear: of weight rows; attention: of tiles).
struct Isa {
    const char* name;
    void (*linear)(const Linear&, Size begin, Size end);
    void (*attention)(const Attention&, const AttentionTile* begin, const AttentionTile* end,
                      float* scratch);
    void (*rms_norm)(const RmsNorm&, Size begin, Size end);
    void (*add)(const Pair&, Size begin, Size end);
    void (*silu_mul)(const Pair&, Size begin, Size end);
    void (*rotary)(const Rotary&, Size begin, Size end);
};

namespace portable {
extern const Isa loops;
}

#if defined(__x86_64__)
namespace avx2 {
extern const Isa loops;
}
#endif

// The best set that this processor has, or the one that `use_isa` chose.
const Isa& isa();

// Choose by name; false if this processor or build lacks it. For tests.
bool use_isa(const char* name);

} // namespace tskernels::cpu
