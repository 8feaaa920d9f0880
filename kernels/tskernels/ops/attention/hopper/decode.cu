// Decode attention on Hopper: all sequences' keys in equal shares for all blocks, however long each
// is.
//
// One row of each sequence that has one asks keys and values in pages [2, KV_HEADS, PAGE, WIDTH] of
// a cache. The keys of a sequence and key head are an item, 64 of them a unit. Blocks take as many
// units each, of one item after another, so that none waits for the longest sequence. The last warp
// has the copy engine fill a ring of STAGES with units; four warps have 16 keys of each, for the
// GROUP query heads of the item. Where several blocks share an item, each leaves its weighted sum,
// maximum and weight, and the last one to end joins them, always in the same order.
//
// What is defined when this is compiled: the names in capitals here, SEQUENCES, BLOCKS of the grid,
// MAX_PAGES of a table, QUERY_ROW, QUERY_HEAD, Y_ROW and Y_HEAD (numbers from one to the next),
// WINDOW (0: none), HAS_SINKS, SCALE (of scores as powers of two), EARLY, and HALF for float16.
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
// last, units of each sequence and key head, where a sequence's units end, and the ring.
constexpr int kFull = 0;
constexpr int kRead = 8 * STAGES;
constexpr int kLast = 16 * STAGES;
constexpr int kUnits = 256;
constexpr int kEnds = kUnits + 4 * SEQUENCES;
constexpr int kRing = 4096;
constexpr int kSums = kRing + STAGES * kStage; // of each warp: GROUP rows of sums, top and weight
constexpr int kRow = WIDTH + 2;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kNone = -3.0e38f; // less than any score

static_assert(WIDTH % 64 == 0 && WIDTH <= 128 && GROUP <= 8, "the sums have room in registers");
static_assert(PAGE >= 8 && (PAGE & (PAGE - 1)) == 0, "pages come out even");
static_assert(kLast + 8 <= kUnits && kEnds + 4 * SEQUENCES <= kRing, "the offsets are apart");

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

// All threads: how many units each sequence has, and which of all are its last; returns how many
// there are.
__device__ __forceinline__ int count_units(const Inputs& in, u32 shared) {
    for (int s = threadIdx.x; s < SEQUENCES; s += kWorkers + 32) {
        put_number(shared + kUnits + 4 * s, units_of(in, s));
    }
    __syncthreads();
    for (int s = threadIdx.x; s < SEQUENCES; s += kWorkers + 32) {
        int end = 0;
#pragma unroll 8
        for (int before = 0; before <= s; before++) {
            end += units_at(shared, before) * KV_HEADS;
        }
        put_number(shared + kEnds + 4 * s, end);
    }
    __syncthreads();
    return get_number(shared + kEnds + 4 * (SEQUENCES - 1));
}

// The place of unit number `unit` of all; there must be one.
__device__ __forceinline__ Place place_of(u32 shared, int unit) {
    int sequence = 0, begin = 0;
#pragma unroll 8
    for (int s = 0; s < SEQUENCES; s++) {
        const int end = get_number(shared + kEnds + 4 * s);
        if (end <= unit) {
            sequence = s + 1, begin = end;
        }
    }
    const int units = units_at(shared, sequence);
    return {sequence, (unit - begin) / units, (unit - begin) % units, units};
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

// The first unit of a block's share of all.
__device__ __forceinline__ int share_of(int block, int all) {
    return static_cast<int>(static_cast<long long>(block) * all / BLOCKS);
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

// Has the copy engine fetch the keys and values of a unit that are asked, in whole boxes.
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
            for (int part = 0; part < kParts; part++) {
                const u32 tile = stage + (half * kParts + part) * kTile;
                copy_box(tile + box * kBox * 128, cache, part * 64, row, full, policy);
            }
        }
    }
}

// One thread: fetches the units of a share. The newest key of a sequence is written by the kernels
// before; all others were there before the first one began.
__device__ __forceinline__ void feed(const TensorMap* cache, const Inputs& in, u32 shared,
                                     int begin, int end) {
    const u64 once = read_once();
    Place place = place_of(shared, begin);
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

// What a warp has of an item: of query head lane / 4, in each lane a quarter of its keys' weight.
struct Sums {
    u32 query[WIDTH / 16][2];
    float top, weight;
    float total[WIDTH / 8][4]; // of each eight numbers two, in the first two; the others are unused
};

__device__ __forceinline__ void start(Sums& sums, const Inputs& in, const Place& place) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    const u16* row = in.query + static_cast<u64>(in.starts[place.sequence]) * QUERY_ROW +
                     (place.head * GROUP + g) * QUERY_HEAD + lane % 4 * 2;
    sums.top = kNone, sums.weight = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u16* pair = row + k * 16 + half * 8;
            sums.query[k][half] =
                g < GROUP ? static_cast<u32>(pair[0]) | static_cast<u32>(pair[1]) << 16 : 0u;
        }
    }
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
        sums.total[n][0] = sums.total[n][1] = sums.total[n][2] = sums.total[n][3] = 0.0f;
    }
}

// Where 8 numbers from `column` on of a key's or value's row lie: lines have their parts exchanged.
__device__ __forceinline__ u32 part_at(u32 tiles, int row, int column) {
    const u32 line = tiles + column / 64 * kTile + row * 128;
    return line + ((column % 64 / 8 ^ row % 8) << 4);
}

// Scores of the warp's 16 keys for head lane / 4, of each eight keys two.
__device__ __forceinline__ void score(const Sums& sums, u32 keys, float (&scores)[2][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp * 16 + lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        u32 key[4];
        load_matrices(part_at(keys, row, k * 16 + column), key);
        mma(scores[0], sums.query[k][0], sums.query[k][1], key[0], key[1]);
        mma(scores[1], sums.query[k][0], sums.query[k][1], key[2], key[3]);
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

// What all blocks left of the item whose units begin at `first` of `all`.
__device__ __forceinline__ Share share_of_blocks(const Inputs& in, int first, int units, int all,
                                                 int g, int column) {
    Share joined = {0.0f, kNone, 0.0f};
    for (int block = block_of(first, all); block <= block_of(first + units - 1, all); block++) {
        const int begin = share_of(block, all);
        if (begin == share_of(block + 1, all)) {
            continue; // there are fewer units than blocks
        }
        const float* row = left_by(in, block, begin >= first, g);
        join(joined, {read_new(row + column), read_new(row + WIDTH), read_new(row + WIDTH + 1)});
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

// Four warps: all units of a share, in the order in which they come.
__device__ __forceinline__ void attend(const Inputs& in, u32 shared, int begin, int end, int all) {
    Place place = place_of(shared, begin);
    Sums sums;
    int had = 0;
    for (int unit = begin; unit < end; unit++) {
        if (had == 0) {
            start(sums, in, place);
        }
        const int i = unit - begin, slot = i % STAGES;
        barrier_wait(shared + kFull + 8 * slot, (i / STAGES) & 1);
        absorb(sums, shared + kRing + slot * kStage, keys_of(in, place));
        sync_warp();
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(shared + kRead + 8 * slot);
        }
        had++;
        if (place.step == place.units - 1 || unit == end - 1) {
            finish(sums, in, shared, place, unit - place.step, had, all);
            had = 0;
        }
        if (unit + 1 < end) {
            advance(shared, place);
        }
    }
}

extern "C" __global__ void __launch_bounds__(kWorkers + 32)
    decode(const __grid_constant__ TensorMap cache, const u16* query, const int* tables,
           const int* lengths, const int* starts, const u16* sinks, u16* y, float* partial,
           int* counters) {
    extern __shared__ char memory[];
    const u32 shared = (shared_address(memory) + 1023) & ~1023u;
    const Inputs in = {query, tables, lengths, starts, sinks, y, partial, counters};
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < STAGES; slot++) {
            barrier_init(shared + kFull + 8 * slot, 1);
            barrier_init(shared + kRead + 8 * slot, kWarps);
        }
        barriers_ready();
    }
    const int all = count_units(in, shared), block = static_cast<int>(blockIdx.x);
    const int begin = share_of(block, all), end = share_of(block + 1, all);
    if (threadIdx.x / 32 == kWarps) {
        if (threadIdx.x % 32 == 0 && begin < end) {
            feed(&cache, in, shared, begin, end);
        }
        return;
    }
    if (EARLY) {
        wait_for_inputs();
        start_dependents();
    }
    if (begin < end) {
        attend(in, shared, begin, end, all);
    }
}
