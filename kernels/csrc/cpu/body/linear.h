// y = x · wᵀ: every weight byte is read from memory once and no weight is repacked.
#pragma once

#include "cpu/body/vec.h"

namespace tskernels::cpu {
namespace {

// Distance of the software prefetch along the weight, which is one stream through memory.
constexpr Size kPrefetchFloats = 2304;
constexpr Size kLineFloats = 16;

// Rows of x that stay in the second-level cache while a chunk of weights passes over them.
constexpr Size kPanelRows = 48;

// M rows of x against R rows of weight. Each product's own sum runs over k in one order, lane by
// lane, whatever M and R are: a row's result does not depend on the rows beside it.
template <int M, int R> inline void block(const Linear& c, Size row, Size column) {
    const float* x = c.x + row * c.x_stride;
    const float* w = c.weight + column * c.weight_stride;
    Vec acc[M * R] = {};
    const auto step = [&](const auto& fetch, Size k) {
        Vec wv[R];
        for (int r = 0; r < R; ++r)
            wv[r] = fetch(w + r * c.weight_stride + k);
        for (int m = 0; m < M; ++m) {
            const Vec xv = fetch(x + m * c.x_stride + k);
            for (int r = 0; r < R; ++r)
                acc[m * R + r] = fma(wv[r], xv, acc[m * R + r]);
        }
    };
    Size k = 0;
    for (; k + kLineFloats <= c.k; k += kLineFloats) {
        for (int r = 0; r < R; ++r)
            __builtin_prefetch(w + r * c.weight_stride + k + kPrefetchFloats);
        step(load, k);
        step(load, k + kLanes);
    }
    for (; k + kLanes <= c.k; k += kLanes)
        step(load, k);
    if (k < c.k) step([&](const float* p) { return load_part(p, c.k - k); }, k);

    constexpr int kGroups = (M * R + kLanes - 1) / kLanes;
    float total[kGroups * kLanes];
    for (int g = 0; g < kGroups; ++g) {
        Vec group[kLanes] = {};
        for (int i = 0; i < kLanes && g * kLanes + i < M * R; ++i)
            group[i] = acc[g * kLanes + i];
        store(total + g * kLanes, sums(group));
    }
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r) {
            const float bias = c.bias ? c.bias[column + r] : 0.0F;
            c.y[(row + m) * c.y_stride + column + r] = total[m * R + r] + bias;
        }
}

// Rows [first, last) of x against R rows of weight, M of them at a time.
template <int M, int R> inline void rows_by(const Linear& c, Size first, Size last, Size column) {
    for (; first + M <= last; first += M)
        block<M, R>(c, first, column);
    if constexpr (M > 1) rows_by<M / 2, R>(c, first, last, column);
}

template <int M, int R>
inline void columns_by(const Linear& c, Size first, Size last, Size begin, Size end) {
    Size column = begin;
    for (; column + R <= end; column += R)
        rows_by<M, R>(c, first, last, column);
    for (; column < end; ++column)
        rows_by<M, 1>(c, first, last, column);
}

void linear(const Linear& c, Size begin, Size end) {
    for (Size first = 0; first < c.rows; first += kPanelRows) {
        const Size last = first + kPanelRows < c.rows ? first + kPanelRows : c.rows;
        if (last - first == 1)
            columns_by<1, 4>(c, first, last, begin, end);
        else if (last - first < 12)
            columns_by<4, 2>(c, first, last, begin, end);
        else
            columns_by<3, 4>(c, first, last, begin, end);
    }
}

} // namespace
} // namespace tskernels::cpu
