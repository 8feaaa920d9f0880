// Loops over rows: norm, sums, gated activation, rotation.
#pragma once

#include "cpu/body/vec.h"

namespace tskernels::cpu {
namespace {

// Apply `f` to eight dims at a time of two inputs and one output.
template <class F>
inline void map2(const float* a, const float* b, float* y, Size width, const F& f) {
    Size i = 0;
    for (; i + kLanes <= width; i += kLanes)
        store(y + i, f(load(a + i), load(b + i)));
    const Size left = width - i;
    if (left > 0) store_part(y + i, f(load_part(a + i, left), load_part(b + i, left)), left);
}

inline float sum_of_squares(const float* x, Size width) {
    Vec acc[4] = {};
    Size i = 0;
    for (; i + 4 * kLanes <= width; i += 4 * kLanes)
        for (int j = 0; j < 4; ++j) {
            const Vec v = load(x + i + j * kLanes);
            acc[j] = fma(v, v, acc[j]);
        }
    for (; i < width; i += kLanes) {
        const Vec v = i + kLanes <= width ? load(x + i) : load_part(x + i, width - i);
        acc[0] = fma(v, v, acc[0]);
    }
    return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

void rms_norm(const RmsNorm& c, Size begin, Size end) {
    const auto width = static_cast<float>(c.extent.width);
    for (Size row = begin; row < end; ++row)
        for (Size head = 0; head < c.extent.heads; ++head) {
            const float* x = c.x.at(row, head);
            const float mean = sum_of_squares(x, c.extent.width) / width;
            const Vec inverse = splat(1.0F / __builtin_sqrtf(mean + c.eps));
            map2(x, c.weight, c.y.at(row, head), c.extent.width,
                 [&](Vec v, Vec weight) { return weight * (v * inverse); });
        }
}

template <class F> inline void map_pair(const Pair& c, Size begin, Size end, const F& f) {
    for (Size row = begin; row < end; ++row)
        for (Size head = 0; head < c.extent.heads; ++head)
            map2(c.a.at(row, head), c.b.at(row, head), c.y.at(row, head), c.extent.width, f);
}

void add(const Pair& c, Size begin, Size end) {
    map_pair(c, begin, end, [](Vec a, Vec b) { return a + b; });
}

void silu_mul(const Pair& c, Size begin, Size end) {
    map_pair(c, begin, end,
             [](Vec gate, Vec up) { return gate / (splat(1.0F) + exponential(-gate)) * up; });
}

inline void rotate(const float* x, const float* cosines, const float* sines, float* y, Size half) {
    const auto turn = [&](const auto& get, const auto& put, Size i) {
        const Vec a = get(x + i), b = get(x + half + i), c = get(cosines + i), s = get(sines + i);
        put(y + i, a * c - b * s);
        put(y + half + i, b * c + a * s);
    };
    Size i = 0;
    for (; i + kLanes <= half; i += kLanes)
        turn(load, store, i);
    const Size left = half - i;
    if (left > 0)
        turn([&](const float* p) { return load_part(p, left); },
             [&](float* p, Vec v) { store_part(p, v, left); }, i);
}

void rotary(const Rotary& c, Size begin, Size end) {
    for (Size row = begin; row < end; ++row) {
        const float* cosines = c.table + row * c.table_stride;
        for (Size head = 0; head < c.extent.heads; ++head) {
            const float* x = c.x.at(row, head);
            float* y = c.y.at(row, head);
            rotate(x, cosines, cosines + c.half, y, c.half);
            for (Size i = 2 * c.half; i < c.extent.width; ++i)
                y[i] = x[i];
        }
    }
}

} // namespace
} // namespace tskernels::cpu
