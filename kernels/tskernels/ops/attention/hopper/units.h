// Where decode attention's units lie: of which sequence and key head, in which block's share, and
// in which pages, from which the copy engine fetches them.
#pragma once

#include <device.h>

constexpr int kUnit = 64;
constexpr int kParts = WIDTH / 64; // lines of 128 bytes in a key
constexpr int kTile = kUnit * 128;
constexpr int kStage = 2 * kParts * kTile;
constexpr int kBox = PAGE < kUnit ? PAGE : kUnit; // rows that are copied at once
constexpr int kBoxes = kUnit / kBox;
constexpr int kWarps = 4;
constexpr int kWorkers = 32 * kWarps;
// Offsets: barriers of stages that are full and of those read, whether this block is an item's
// last, where the block begins (see `Beginning`), units of each sequence and key head, and the
// ring.
constexpr int kFull = 0;
constexpr int kRead = 8 * STAGES;
constexpr int kLast = 16 * STAGES;
constexpr int kBeginning = kLast + 8;
constexpr int kUnits = 256;
constexpr int kRing = 4096;
constexpr int kSums = kRing + STAGES * kStage; // of each warp: GROUP rows of sums, top and weight
constexpr int kRow = WIDTH + 2;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kNone = -3.0e38f; // less than any score

static_assert(WIDTH % 64 == 0 && WIDTH <= 128 && GROUP <= 8, "the sums have room in registers");
static_assert(PAGE >= 8 && (PAGE & (PAGE - 1)) == 0, "pages come out even");
static_assert(kBeginning + 16 <= kUnits && kUnits + 4 * SEQUENCES <= kRing,
              "the offsets are apart");

struct Inputs {
    const u16* query;
    const int *tables, *lengths, *starts;
    const u16* sinks;
    u16* y;
    float* partial;
    int* counters;
};

// Where a unit is: number `step` of the `units` of its item.
struct Place {
    int sequence, head, step, units;
};

__device__ __forceinline__ int oldest_key(int length) {
    return WINDOW > 0 && length > WINDOW ? length - WINDOW : 0;
}

// The key that an item's first unit begins with.
__device__ __forceinline__ int first_key(int length) {
    return oldest_key(length) / kUnit * kUnit;
}

__device__ __forceinline__ int units_of(const Inputs& in, int sequence) {
    const int length = in.lengths[sequence];
    const bool asks = in.starts[sequence + 1] == in.starts[sequence] + 1;
    return asks ? (length - first_key(length) + kUnit - 1) / kUnit : 0;
}

__device__ __forceinline__ int units_at(u32 shared, int sequence) {
    return get_number(shared + kUnits + 4 * sequence);
}

// What all threads know of the units: how many there are, and, if the block has any, the sequence
// of its first one and that sequence's first one.
struct Beginning {
    int all, sequence, first;
};

// The first unit of a block's share of all.
__device__ __forceinline__ int share_of(int block, int all) {
    return static_cast<int>(static_cast<long long>(block) * all / BLOCKS);
}

// All threads: count the units of each sequence, and find where the block begins.
__device__ __forceinline__ Beginning count_units(const Inputs& in, u32 shared, int block) {
    for (int s = threadIdx.x; s < SEQUENCES; s += kWorkers + 32) {
        put_number(shared + kUnits + 4 * s, units_of(in, s));
    }
    __syncthreads();
    for (int s = threadIdx.x; s < SEQUENCES; s += kWorkers + 32) {
        int first = 0, all = 0;
#pragma unroll 16
        for (int other = 0; other < SEQUENCES; other++) {
            const int units = units_at(shared, other) * KV_HEADS;
            first += other < s ? units : 0;
            all += units;
        }
        const int unit = share_of(block, all), own = units_at(shared, s) * KV_HEADS;
        if (first <= unit && unit < first + own) {
            put_number(shared + kBeginning + 4, s);
            put_number(shared + kBeginning + 8, first);
        }
        if (s == 0) {
            put_number(shared + kBeginning, all);
        }
    }
    __syncthreads();
    return {get_number(shared + kBeginning), get_number(shared + kBeginning + 4),
            get_number(shared + kBeginning + 8)};
}

// The place of the block's first unit, which is number `unit` of all; there must be one.
__device__ __forceinline__ Place place_of(u32 shared, const Beginning& begins, int unit) {
    const int units = units_at(shared, begins.sequence), past = unit - begins.first;
    return {begins.sequence, past / units, past % units, units};
}

// Goes on to the next unit, which there must be.
__device__ __forceinline__ void advance(u32 shared, Place& place) {
    if (++place.step < place.units) {
        return;
    }
    place.step = 0;
    if (++place.head == KV_HEADS) {
        place.head = 0;
        do {
            place.units = units_at(shared, ++place.sequence);
        } while (place.units == 0);
    }
}

// The block whose share has the unit.
__device__ __forceinline__ int block_of(int unit, int all) {
    return static_cast<int>(((unit + 1ll) * BLOCKS - 1) / all);
}

// The keys of a unit that are asked, from `first` on: numbers `from` to `to`.
struct Keys {
    int first, from, to;
};

__device__ __forceinline__ Keys keys_of(const Inputs& in, const Place& place) {
    const int length = in.lengths[place.sequence], oldest = oldest_key(length);
    const int first = first_key(length) + place.step * kUnit;
    return {first, oldest > first ? oldest - first : 0,
            length - first < kUnit ? length - first : kUnit};
}

// The pages of a unit's boxes, of those that are asked.
struct Pages {
    int of[kBoxes];
};

__device__ __forceinline__ Pages pages_of(const Inputs& in, const Place& place) {
    const Keys keys = keys_of(in, place);
    const int* table = in.tables + place.sequence * MAX_PAGES;
    Pages pages;
#pragma unroll
    for (int box = 0; box < kBoxes; box++) {
        const bool wanted = (box + 1) * kBox > keys.from && box * kBox < keys.to;
        pages.of[box] = wanted ? table[(keys.first + box * kBox) / PAGE] : -1;
    }
    return pages;
}

// Has the copy engine fetch the keys and values of a unit that are asked, in whole boxes: what lies
// together in memory at once, whose order counts (docs/performance.md).
__device__ __forceinline__ void copy_unit(const TensorMap* cache, const Pages& pages, int first,
                                          int head, u32 stage, u32 full, u64 policy) {
    int boxes = 0;
#pragma unroll
    for (int box = 0; box < kBoxes; box++) {
        boxes += pages.of[box] >= 0;
    }
    barrier_expect(full, boxes * 2 * kParts * kBox * 128);
#pragma unroll
    for (int box = 0; box < kBoxes; box++) {
        if (pages.of[box] < 0) {
            continue;
        }
        for (int half = 0; half < 2; half++) { // keys, values
            const int row =
                ((pages.of[box] * 2 + half) * KV_HEADS + head) * PAGE + (first + box * kBox) % PAGE;
            const u32 tile = stage + half * kParts * kTile;
            copy_box(tile + box * kBox * kParts * 128, cache, 0, row * kParts, full, policy);
        }
    }
}

// One thread: fetches the units of a share. The newest key of a sequence is written by the kernels
// before; all others were there before the first one began.
__device__ __forceinline__ void feed(const TensorMap* cache, const Inputs& in, u32 shared,
                                     const Beginning& begins, int begin, int end) {
    const u64 once = read_once();
    Place place = place_of(shared, begins, begin);
    Pages pages = pages_of(in, place);
    bool waited = !EARLY;
    for (int i = 0; i < end - begin; i++) {
        const int slot = i % STAGES;
        if (i >= STAGES) {
            barrier_wait(shared + kRead + 8 * slot, (i / STAGES - 1) & 1);
        }
        if (!waited && place.step == place.units - 1) {
            wait_for_inputs();
            waited = true;
        }
        copy_unit(cache, pages, keys_of(in, place).first, place.head,
                  shared + kRing + slot * kStage, shared + kFull + 8 * slot, once);
        if (i + 1 < end - begin) {
            advance(shared, place);
            pages = pages_of(in, place); // comes while the next stage is waited for
        }
    }
}
