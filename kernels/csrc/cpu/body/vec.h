// Eight floats at a time, by the compiler's vector extensions: AVX2, SSE2 and NEON from one text.
#pragma once

#include "cpu/calls.h"

#include <cstring>
#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace tskernels::cpu {
namespace {

constexpr Size kLanes = 8;

using Vec = float __attribute__((vector_size(32)));
using IntVec = std::int32_t __attribute__((vector_size(32)));
using LooseVec = float __attribute__((vector_size(32), aligned(4), may_alias));

inline Vec load(const float* p) {
    return *reinterpret_cast<const LooseVec*>(p);
}

inline void store(float* p, Vec v) {
    *reinterpret_cast<LooseVec*>(p) = v;
}

inline Vec splat(float x) {
    return Vec{x, x, x, x, x, x, x, x};
}

// The first `count` (under eight) floats, then zeros; reads nothing beyond.
inline Vec load_part(const float* p, Size count) {
    Vec v{};
    std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(float));
    return v;
}

inline void store_part(float* p, Vec v, Size count) {
    std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(float));
}

// a * b + c, rounded once where the processor can.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

inline Vec maximum(Vec a, Vec b) {
    return a > b ? a : b;
}

// Sums of neighbours within each half: a0+a1, a2+a3, b0+b1, b2+b3 | a4+a5, ...
inline Vec pairwise(Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

// Lane i is the sum of v[i]'s lanes. Each sum adds in one fixed order, whichever lane it is in.
inline Vec sums(const Vec (&v)[kLanes]) {
    const Vec low = pairwise(pairwise(v[0], v[1]), pairwise(v[2], v[3]));
    const Vec high = pairwise(pairwise(v[4], v[5]), pairwise(v[6], v[7]));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

inline float sum(Vec v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

inline float largest(Vec v) {
    float most = v[0];
    for (int i = 1; i < kLanes; ++i)
        most = v[i] > most ? v[i] : most;
    return most;
}

// e^x to about one unit in the last place; 0 below the smallest normal number, infinity from
// 2^127.5 on. Range reduction and polynomial of the Cephes library (S. Moshier), expf.c.
inline Vec exponential(Vec x) {
    constexpr float kLeast = -87.33654F, kMost = 88.37626F, kLog2e = 1.44269504F;
    constexpr float kRound = 12582912.0F; // 1.5 * 2^23: adding it rounds to an integer
    const Vec bounded = x < splat(kLeast) ? splat(kLeast) : (x > splat(kMost) ? splat(kMost) : x);
    const Vec shifted = fma(bounded, splat(kLog2e), splat(kRound));
    const Vec n = shifted - splat(kRound);
    Vec r = fma(n, splat(-0.693359375F), bounded);
    r = fma(n, splat(2.12194440e-4F), r);
    Vec p = splat(1.9875691500e-4F);
    constexpr float kPolynomial[] = {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                                     1.6666665459e-1F, 5.0000001201e-1F};
    for (const float c : kPolynomial)
        p = fma(p, r, splat(c));
    p = fma(p, r * r, r) + splat(1.0F);
    const IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
    Vec power;
    std::memcpy(&power, &exponent, sizeof power);
    const Vec inside = x > splat(kMost) ? splat(__builtin_inff()) : p * power;
    return x < splat(kLeast) ? Vec{} : inside;
}

} // namespace
} // namespace tskernels::cpu
