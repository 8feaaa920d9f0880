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

// Several query heads of one key head are attended together, so that a key or value loaded once
// serves them all. They share their bounds; no sum mixes heads, whatever H is.
template <int H> using Weights = float[H][kBlock];

// weights[h][i] = scale * q[h] · keys[i] for 8 / H keys of each of H heads.
template <int H>
inline void score(const float* const (&q)[H], const float* const* keys, Size width, float scale,
                  Weights<H>& weights, Size first) {
    constexpr int kKeys = static_cast<int>(kLanes) / H;
    Vec acc[kLanes] = {};
    const auto step = [&](const auto& fetch, Size d) {
        Vec key[kKeys];
        for (int i = 0; i < kKeys; ++i)
            key[i] = fetch(keys[first + i] + d);
        for (int h = 0; h < H; ++h) {
            const Vec query = fetch(q[h] + d);
            for (int i = 0; i < kKeys; ++i)
                acc[h * kKeys + i] = fma(query, key[i], acc[h * kKeys + i]);
        }
    };
    Size d = 0;
    for (; d + kLanes <= width; d += kLanes)
        step(load, d);
    if (d < width) step([&](const float* p) { return load_part(p, width - d); }, d);
    const Vec scores = sums(acc) * splat(scale);
    for (int h = 0; h < H; ++h)
        std::memcpy(weights[h] + first, reinterpret_cast<const float*>(&scores) + h * kKeys,
                    kKeys * sizeof(float));
}

// acc[h][8 N dims] += sum over the keys [low, high) of weights[h][j] * value j.
template <int H, int N>
inline void accumulate(const Weights<H>& weights, const float* const* keys, Size offset, Size low,
                       Size high, float* acc, Size width) {
    Vec total[H][N];
    for (int h = 0; h < H; ++h)
        for (int i = 0; i < N; ++i)
            total[h][i] = load(acc + h * width + i * kLanes);
    for (Size j = low; j < high; ++j)
        for (int i = 0; i < N; ++i) {
            const Vec value = load(keys[j] + offset + i * kLanes);
            for (int h = 0; h < H; ++h)
                total[h][i] = fma(splat(weights[h][j]), value, total[h][i]);
        }
    for (int h = 0; h < H; ++h)
        for (int i = 0; i < N; ++i)
            store(acc + h * width + i * kLanes, total[h][i]);
}

template <int H>
inline void accumulate_all(const Weights<H>& weights, const float* const* keys, Size values,
                           Size low, Size high, Size width, float* acc) {
    constexpr int kVectors = static_cast<int>(kLanes) / H;
    Size d = 0;
    for (; d + kVectors * kLanes <= width; d += kVectors * kLanes)
        accumulate<H, kVectors>(weights, keys, values + d, low, high, acc + d, width);
    for (; d + kLanes <= width; d += kLanes)
        accumulate<H, 1>(weights, keys, values + d, low, high, acc + d, width);
    for (; d < width; ++d)
        for (int h = 0; h < H; ++h)
            for (Size j = low; j < high; ++j)
                acc[h * width + d] += weights[h][j] * keys[j][values + d];
}

// Turn scores into weights relative to the running maximum, and scale what was summed before.
inline void rescale(float (&weights)[kBlock], Size low, Size high, Running& running, float* acc,
                    Size width) {
    for (Size j = 0; j < low; ++j)
        weights[j] = kHidden;
    for (Size j = high; j < kBlock; ++j)
        weights[j] = kHidden;
    Vec most = splat(running.most);
    for (Size j = 0; j < kBlock; j += kLanes)
        most = maximum(most, load(weights + j));
    const float peak = largest(most);
    const float shrink = exponential(splat(running.most - peak))[0];
    Vec total{};
    for (Size j = 0; j < kBlock; j += kLanes) {
        const Vec weight = exponential(load(weights + j) - splat(peak));
        store(weights + j, weight);
        total += weight;
    }
    running = {peak, running.total * shrink + sum(total)};
    for (Size d = 0; d < width; ++d)
        acc[d] *= shrink;
}

// H heads of one row, `first` the first of them, against the keys [low, high) of a block.
template <int H>
inline void attend(const Attention& c, Size row, Size first, const float* const* keys, Size low,
                   Size high, Running* running, float* acc) {
    constexpr Size kStep = kLanes / H;
    const Size width = c.extent.width;
    const float* q[H];
    for (int h = 0; h < H; ++h)
        q[h] = c.query.at(row, first + h);
    alignas(32) Weights<H> weights;
    for (Size j = low / kStep * kStep; j < high; j += kStep)
        score<H>(q, keys, width, c.scale, weights, j);
    for (int h = 0; h < H; ++h)
        rescale(weights[h], low, high, running[h], acc + h * width, width);
    accumulate_all<H>(weights, keys, c.cache.values(), low, high, width, acc);
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
            const Size i = r * group, head = t.kv_head * group;
            Size g = 0;
            for (; g + 2 <= group; g += 2)
                attend<2>(c, t.row + r, head + g, keys, low, high, running + i + g,
                          acc + (i + g) * width);
            if (g < group)
                attend<1>(c, t.row + r, head + g, keys, low, high, running + i + g,
                          acc + (i + g) * width);
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
