// What decode attention keeps of the keys that it has seen, and how shares of an item are joined.
#pragma once

#include "units.h"

// Query head lane / 4 of an item, as the matrix units take it; zeros beyond GROUP.
struct Query {
    u32 pairs[WIDTH / 16][2];
};

__device__ __forceinline__ Query query_of(const Inputs& in, const Place& place) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    const u16* row = in.query + static_cast<u64>(in.starts[place.sequence]) * QUERY_ROW +
                     (place.head * GROUP + g) * QUERY_HEAD + lane % 4 * 2;
    Query query;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            query.pairs[k][half] = g < GROUP ? read_pair(row + k * 16 + half * 8) : 0u;
        }
    }
    return query;
}

// What a warp has of an item: of query head lane / 4, in each lane a quarter of its keys' weight.
struct Sums {
    Query query;
    float top, weight;
    float total[WIDTH / 8][4]; // of each eight numbers two, in the first two; the others are unused
};

__device__ __forceinline__ void start(Sums& sums, const Query& query) {
    sums.query = query;
    sums.top = kNone, sums.weight = 0.0f;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        sums.total[n][0] = sums.total[n][1] = sums.total[n][2] = sums.total[n][3] = 0.0f;
    }
}

// Where 8 numbers from `column` on of a key's or value's row lie, which has kParts lines: lines
// have their parts exchanged by their number.
__device__ __forceinline__ u32 part_at(u32 tiles, int row, int column) {
    const int line = row * kParts + column / 64;
    return tiles + line * 128 + ((column % 64 / 8 ^ line % 8) << 4);
}

// Scores of the warp's 16 keys for head lane / 4, of each eight keys two.
__device__ __forceinline__ void score(const Sums& sums, u32 keys, float (&scores)[2][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp * 16 + lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        u32 key[4];
        load_matrices(part_at(keys, row, k * 16 + column), key);
        mma(scores[0], sums.query.pairs[k][0], sums.query.pairs[k][1], key[0], key[1]);
        mma(scores[1], sums.query.pairs[k][0], sums.query.pairs[k][1], key[2], key[3]);
    }
}

// The products of the keys' weights and their values.
__device__ __forceinline__ void weigh(Sums& sums, u32 values, const float (&powers)[2][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp * 16 + lane % 16, column = lane / 16 * 8;
    const u32 low = rounded(powers[0][0], powers[0][1]), high = rounded(powers[1][0], powers[1][1]);
#pragma unroll
    for (int n = 0; n < WIDTH / 16; n++) {
        u32 value[4];
        load_transposed(part_at(values, row, n * 16 + column), value);
        mma(sums.total[2 * n], low, high, value[0], value[1]);
        mma(sums.total[2 * n + 1], low, high, value[2], value[3]);
    }
}

// Numbers that are not asked may be anything, and nothing times anything may not be nothing.
__device__ __forceinline__ void clear_others(u32 values, const Keys& keys) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp * 16 + lane / 2;
    for (int column = lane % 2 * 8; column < WIDTH; column += 16) {
        if (row < keys.from || row >= keys.to) {
            put_zeros(part_at(values, row, column));
        }
    }
    sync_warp();
    copies_after_writes();
}

// Takes a unit's keys.
__device__ __forceinline__ void absorb(Sums& sums, u32 stage, const Keys& keys) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float scores[2][4] = {};
    score(sums, stage, scores);
    float top = sums.top;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float& score = scores[i / 2][i % 2];
        const int key = warp * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
        score = key >= keys.from && key < keys.to ? score * SCALE : kNone;
        top = larger(top, score);
    }
    top = larger(top, from_lane(top, 1));
    top = larger(top, from_lane(top, 2));
    const float base = top == kNone ? 0.0f : top;
    const float fade = power_of_two(sums.top - base);
    sums.top = top, sums.weight *= fade;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        scores[i / 2][i % 2] = power_of_two(scores[i / 2][i % 2] - base);
        sums.weight += scores[i / 2][i % 2];
    }
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        sums.total[n][0] *= fade, sums.total[n][1] *= fade;
    }
    const u32 values = stage + kParts * kTile;
    if (keys.from > 0 || keys.to < kUnit) {
        clear_others(values, keys);
    }
    weigh(sums, values, scores);
}

// To the warp's rows [GROUP, kRow] of shared memory.
__device__ __forceinline__ void put_sums(const Sums& sums, u32 shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    float weight = sums.weight;
    weight += from_lane(weight, 1);
    weight += from_lane(weight, 2);
    if (g >= GROUP) {
        return;
    }
    const u32 row = shared + kSums + (warp * GROUP + g) * kRow * 4;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        put_shared(row + (n * 8 + lane % 4 * 2) * 4, sums.total[n][0]);
        put_shared(row + (n * 8 + lane % 4 * 2 + 1) * 4, sums.total[n][1]);
    }
    put_shared(row + WIDTH * 4, sums.top);
    put_shared(row + WIDTH * 4 + 4, weight);
}

// A weighted sum of one number of a row, with the maximum and the weight of what it is of.
struct Share {
    float total, top, weight;
};

__device__ __forceinline__ void join(Share& all, const Share& more) {
    const float top = larger(all.top, more.top), base = top == kNone ? 0.0f : top;
    const float mine = power_of_two(all.top - base), theirs = power_of_two(more.top - base);
    all = {all.total * mine + more.total * theirs, top, all.weight * mine + more.weight * theirs};
}

__device__ __forceinline__ Share share_of_warps(u32 shared, int g, int column) {
    Share all = {0.0f, kNone, 0.0f};
#pragma unroll
    for (int warp = 0; warp < kWarps; warp++) {
        const u32 row = shared + kSums + (warp * GROUP + g) * kRow * 4;
        join(all, {get_real(row + column * 4), get_real(row + WIDTH * 4),
                   get_real(row + WIDTH * 4 + 4)});
    }
    return all;
}

// The rows that a block leaves: of the item that its share begins in, or of the one that it ends
// in.
__device__ __forceinline__ float* left_by(const Inputs& in, int block, bool begins, int g) {
    return in.partial + ((block * 2 + (begins ? 0 : 1)) * GROUP + g) * kRow;
}

__device__ __forceinline__ void deliver(const Inputs& in, const Place& place, int g, int column,
                                        Share all) {
    const int head = place.head * GROUP + g;
    if (HAS_SINKS) {
        join(all, {0.0f, widened(in.sinks[head]) * kLog2e, 1.0f});
    }
    u16* row = in.y + static_cast<u64>(in.starts[place.sequence]) * Y_ROW + head * Y_HEAD;
    row[column] =
        static_cast<u16>(rounded(all.weight > 0.0f ? all.total / all.weight : 0.0f, 0.0f));
}

// Whether this block is the last to add to the item, of which it has had `had` units.
__device__ __forceinline__ bool is_last(const Inputs& in, u32 shared, const Place& place, int had) {
    writes_are_seen();
    sync_threads(1, kWorkers);
    if (threadIdx.x == 0) {
        int* counter = in.counters + place.sequence * KV_HEADS + place.head;
        const bool last = add_counted(counter, had) + had == place.units;
        if (last) {
            *counter = 0;
        }
        put_number(shared + kLast, last);
    }
    sync_threads(1, kWorkers);
    return get_number(shared + kLast) != 0;
}

constexpr int kTogether = 8;

// What all blocks left of the item whose units begin at `first` of `all`.
__device__ __forceinline__ Share share_of_blocks(const Inputs& in, int first, int units, int all,
                                                 int g, int column) {
    Share joined = {0.0f, kNone, 0.0f};
    const int last = block_of(first + units - 1, all);
    for (int from = block_of(first, all); from <= last; from += kTogether) {
        Share shares[kTogether]; // on their way at once
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const int begin = share_of(from + i, all), end = share_of(from + i + 1, all);
            shares[i] = {0.0f, kNone, 0.0f};
            if (from + i <= last && begin < end) { // there may be fewer units than blocks
                const float* row = left_by(in, from + i, begin >= first, g);
                shares[i] = {read_new(row + column), read_new(row + WIDTH),
                             read_new(row + WIDTH + 1)};
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            join(joined, shares[i]);
        }
    }
    return joined;
}

// Ends an item, whose units begin at `first` of `all`, of which the block has had `had`.
__device__ __forceinline__ void finish(const Sums& sums, const Inputs& in, u32 shared,
                                       const Place& place, int first, int had, int all) {
    put_sums(sums, shared);
    sync_threads(1, kWorkers);
    const bool alone = had == place.units;
    for (int i = threadIdx.x; i < GROUP * WIDTH; i += kWorkers) {
        const int g = i / WIDTH, column = i % WIDTH;
        const Share mine = share_of_warps(shared, g, column);
        if (alone) {
            deliver(in, place, g, column, mine);
            continue;
        }
        const int block = static_cast<int>(blockIdx.x);
        float* row = left_by(in, block, share_of(block, all) >= first, g);
        row[column] = mine.total;
        if (column == 0) {
            row[WIDTH] = mine.top, row[WIDTH + 1] = mine.weight;
        }
    }
    if (!alone && is_last(in, shared, place, had)) {
        for (int i = threadIdx.x; i < GROUP * WIDTH; i += kWorkers) {
            const int g = i / WIDTH, column = i % WIDTH;
            deliver(in, place, g, column, share_of_blocks(in, first, place.units, all, g, column));
        }
    }
    sync_threads(1, kWorkers); // the sums may be written again
}
