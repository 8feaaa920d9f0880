// Attention over pages: one pass with a running maximum, keys in blocks of absolute positions.
#pragma once

#include "cpu/body/vec.h"

namespace tskernels::cpu {
namespace {

// Blocks begin at multiples of kBlock whatever the row, so that a row's sums do not depend on the
// rows beside it: prefill in any chunks and decode give the same bits.
constexpr Size kBlock = 32;
constexpr float kHidden = -__builtin_inff();

struct Running { // of one query row and head
    float most;
    float total;
};

// scores[i] = scale * q · keys[i] for eight keys.
inline void scores_of_eight(const float* q, const float* const* keys, Size width, float scale,
                            float* scores) {
    Vec acc[kLanes] = {};
    Size d = 0;
    for (; d + kLanes <= width; d += kLanes) {
        const Vec qv = load(q + d);
        for (int i = 0; i < kLanes; ++i)
            acc[i] = fma(qv, load(keys[i] + d), acc[i]);
    }
    if (d < width) {
        const Vec qv = load_part(q + d, width - d);
        for (int i = 0; i < kLanes; ++i)
            acc[i] = fma(qv, load_part(keys[i] + d, width - d), acc[i]);
    }
    store(scores, sums(acc) * splat(scale));
}

// acc[N vectors] += sum over keys of weights[j] * values[j], from dim d on.
template <int N>
inline void accumulate(const float* weights, const float* const* keys, Size offset, Size low,
                       Size high, float* acc) {
    Vec sum_[N];
    for (int i = 0; i < N; ++i)
        sum_[i] = load(acc + i * kLanes);
    for (Size j = low; j < high; ++j) {
        const Vec weight = splat(weights[j]);
        const float* value = keys[j] + offset;
        for (int i = 0; i < N; ++i)
            sum_[i] = fma(weight, load(value + i * kLanes), sum_[i]);
    }
    for (int i = 0; i < N; ++i)
        store(acc + i * kLanes, sum_[i]);
}

inline void accumulate_all(const float* weights, const float* const* keys, Size values, Size low,
                           Size high, Size width, float* acc) {
    Size d = 0;
    for (; d + 8 * kLanes <= width; d += 8 * kLanes)
        accumulate<8>(weights, keys, values + d, low, high, acc + d);
    for (; d + kLanes <= width; d += kLanes)
        accumulate<1>(weights, keys, values + d, low, high, acc + d);
    for (; d < width; ++d)
        for (Size j = low; j < high; ++j)
            acc[d] += weights[j] * keys[j][values + d];
}

// One row and head against the keys [low, high) of a block.
inline void attend(const Attention& c, const float* q, const float* const* keys, Size low,
                   Size high, Running& running, float* acc) {
    alignas(32) float weights[kBlock];
    for (Size j = 0; j < kBlock; j += kLanes) {
        if (j + kLanes > low && j < high)
            scores_of_eight(q, keys + j, c.extent.width, c.scale, weights + j);
    }
    for (Size j = 0; j < low; ++j)
        weights[j] = kHidden;
    for (Size j = high; j < kBlock; ++j)
        weights[j] = kHidden;
    Vec most = splat(running.most);
    for (Size j = 0; j < kBlock; j += kLanes)
        most = maximum(most, load(weights + j));
    const float peak = largest(most);
    const Vec shrink = exponential(splat(running.most - peak));
    Vec total{};
    for (Size j = 0; j < kBlock; j += kLanes) {
        const Vec weight = exponential(load(weights + j) - splat(peak));
        store(weights + j, weight);
        total += weight;
    }
    running = {peak, running.total * shrink[0] + sum(total)};
    for (Size d = 0; d < c.extent.width; ++d)
        acc[d] *= shrink[0];
    accumulate_all(weights, keys, c.cache.values(), low, high, c.extent.width, acc);
}

// Key rows of the positions [first, last) of a block; the rest repeats the last, to be hidden.
inline void find_keys(const Attention& c, const AttentionTile& t, Size first, Size last,
                      const float** keys) {
    const std::int32_t* pages = c.block_table + t.sequence * c.max_pages;
    Size page = first / c.cache.page_size, offset = first - page * c.cache.page_size;
    const Size count = last - first;
    for (Size j = 0; j < count; ++j, ++offset) {
        if (offset == c.cache.page_size) {
            ++page;
            offset = 0;
        }
        keys[j] = c.cache.key(pages[page], t.kv_head, offset);
    }
    for (Size j = count; j < kBlock; ++j)
        keys[j] = keys[count - 1];
}

// acc [rows, group, width] and running [rows, group] of the tile are scratch.
void attend_tile(const Attention& c, const AttentionTile& t, float* acc, Running* running) {
    const Size group = c.extent.heads / c.cache.heads, width = c.extent.width;
    for (Size i = 0; i < t.count * group * width; ++i)
        acc[i] = 0.0F;
    for (Size i = 0; i < t.count * group; ++i)
        running[i] = {kHidden, 0.0F};
    const Size last = t.position + t.count;
    const auto oldest = [&](Size position) { // the first position that a row sees
        return c.window > 0 && position >= c.window ? position - c.window + 1 : Size{0};
    };
    const float* keys[kBlock];
    for (Size b = oldest(t.position) / kBlock * kBlock; b < last; b += kBlock) {
        const Size end = b + kBlock < last ? b + kBlock : last;
        find_keys(c, t, b, end, keys);
        for (Size r = 0; r < t.count; ++r) {
            const Size own = t.position + r, from = oldest(own);
            const Size low = from > b ? from - b : 0, high = own + 1 < end ? own + 1 - b : end - b;
            if (low >= high) continue;
            for (Size g = 0; g < group; ++g) {
                const float* q = c.query.at(t.row + r, t.kv_head * group + g);
                const Size i = r * group + g;
                attend(c, q, keys, low, high, running[i], acc + i * width);
            }
        }
    }
    for (Size r = 0; r < t.count; ++r)
        for (Size g = 0; g < group; ++g) {
            const Size i = r * group + g;
            const float inverse = 1.0F / running[i].total;
            float* y = c.y.at(t.row + r, t.kv_head * group + g);
            for (Size d = 0; d < width; ++d)
                y[d] = acc[i * width + d] * inverse;
        }
}

void attention(const Attention& c, const AttentionTile* begin, const AttentionTile* end,
               float* scratch) {
    const Size group = c.extent.heads / c.cache.heads;
    auto* running = reinterpret_cast<Running*>(scratch + kTileRows * group * c.extent.width);
    for (; begin != end; ++begin)
        attend_tile(c, *begin, scratch, running);
}

} // namespace
} // namespace tskernels::cpu
