#include "cpu/isa.h"

#include <cstring>

namespace tskernels::cpu {

namespace {

bool has_avx2() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

const Isa* best() {
#if defined(__x86_64__)
    if (has_avx2()) return &avx2::loops;
#endif
    return &portable::loops;
}

const Isa* chosen = best();

} // namespace

const Isa& isa() {
    return *chosen;
}

bool use_isa(const char* name) {
    if (std::strcmp(name, "portable") == 0) {
        chosen = &portable::loops;
        return true;
    }
    if (std::strcmp(name, best()->name) != 0) return false;
    chosen = best();
    return true;
}

} // namespace tskernels::cpu
