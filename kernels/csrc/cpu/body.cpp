// Compiled once per instruction set, with that set's flags and TS_ISA as its name. All functions
// are local to this file, so that the linker cannot mix the sets.
#include "cpu/body/attention.h"
#include "cpu/body/linear.h"
#include "cpu/body/rows.h"
#include "cpu/isa.h"

#define TS_TEXT(name) #name
#define TS_NAME(name) TS_TEXT(name)

namespace tskernels::cpu::TS_ISA {

const Isa loops = {TS_NAME(TS_ISA), linear, attention, rms_norm, add, silu_mul, rotary};

} // namespace tskernels::cpu::TS_ISA
