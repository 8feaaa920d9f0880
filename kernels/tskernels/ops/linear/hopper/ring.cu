// Products of 9 to 64 rows on Hopper: weights through a ring in shared memory, sums in registers.
//
// y [ROWS, COLUMNS] = x [ROWS, DEPTH] @ weight.T, where weight is [COLUMNS, DEPTH], or twice as
// tall and GATED: silu(x @ gate.T) * (x @ up.T). The weight is the product's left side, so that its
// rows fill the matrix units. A block has ROW_BLOCKS times 64 rows of it, each for four warps, and
// one of SPLITS slices of the depth; its last warp tells the copy engine what comes next. The
// blocks of one tile are a cluster, which adds up their sums through shared memory, always in the
// same order. Where there are more tiles than multiprocessors, a block has up to TILES of them, one
// after another, and the ring never runs dry.
//
// What is defined when this is compiled: the names in capitals above, BLOCK_M (ROWS rounded up to
// 16, 32 or 64), STAGES of the ring, Y_ROW (numbers from one row of y to the next), HAS_BIAS,
// EARLY, and HALF where numbers are float16 instead of bfloat16.
#include <device.h>

constexpr int kStep = 64; // numbers of the depth in a line of 128 bytes
constexpr int kLine = 128;
constexpr int kTile = 64 * kLine;
constexpr int kRows = 64 * ROW_BLOCKS;
constexpr int kColumns = GATED ? kRows / 2 : kRows; // of y, a block
constexpr int kStage = ROW_BLOCKS * kTile + BLOCK_M * kLine;
constexpr int kSteps = DEPTH / SPLITS / kStep;
constexpr int kAll = COLUMNS / kColumns; // tiles
constexpr int kClusters = (kAll + TILES - 1) / TILES;
constexpr int kFull = 0; // offsets: barriers of stages that are full, of those read, and the ring
constexpr int kRead = 8 * STAGES;
constexpr int kRing = 1024;
constexpr int kSums = TILES > 1 ? kRing + STAGES * kStage : kRing; // one tile takes the ring
constexpr int kPitch = kRows + 4; // numbers from one row of sums to the next, free of conflicts
constexpr int kWorkers = 128 * ROW_BLOCKS;

static_assert(16 * STAGES <= kRing, "the barriers end where the ring begins");
static_assert(DEPTH % (SPLITS * kStep) == 0 && COLUMNS % kColumns == 0, "blocks come out even");
static_assert(TILES > 1 || BLOCK_M * kPitch * 4 <= STAGES * kStage, "sums have room in the ring");
static_assert(BLOCK_M % SPLITS == 0 && (TILES == 1 || SPLITS == 1), "a cluster has one tile");

struct Block {
    u32 shared;
    int tile, split; // the first of its tiles, which are kClusters apart
};

// Steps of all of a block's tiles.
__device__ __forceinline__ int steps_of(const Block& b) {
    return (kAll - b.tile + kClusters - 1) / kClusters * kSteps;
}

// All that add up a tile's sums meet.
__device__ __forceinline__ void meet() {
    if (SPLITS > 1) {
        sync_cluster();
    } else {
        sync_threads(1, kWorkers);
    }
}

// Of each row block of a gated weight, half of the rows are the gate's and half those above it.
__device__ __forceinline__ void copy_weight(const Block& b, const TensorMap* weight, int step,
                                            u64 policy) {
    const u32 full = b.shared + kFull + 8 * (step % STAGES);
    const u32 stage = b.shared + kRing + (step % STAGES) * kStage;
    const int k = (b.split * kSteps + step % kSteps) * kStep;
    const int first = (b.tile + step / kSteps * kClusters) * kColumns;
    barrier_expect(full, kStage);
    for (int r = 0; r < ROW_BLOCKS; r++) {
        const u32 tile = stage + r * kTile;
        if (GATED) {
            const int row = first + r * 32;
            copy_box(tile, weight, k, row, full, policy);
            copy_box(tile + kTile / 2, weight, k, COLUMNS + row, full, policy);
        } else {
            copy_box(tile, weight, k, first + r * 64, full, policy);
        }
    }
}

__device__ __forceinline__ void copy_x(const Block& b, const TensorMap* x, int step, u64 policy) {
    const u32 full = b.shared + kFull + 8 * (step % STAGES);
    const u32 stage = b.shared + kRing + (step % STAGES) * kStage;
    copy_box(stage + ROW_BLOCKS * kTile, x, (b.split * kSteps + step % kSteps) * kStep, 0, full,
             policy);
}

// One thread: the weight's first stages while kernels before still run, then all in order.
__device__ __forceinline__ void feed(const Block& b, const TensorMap* x, const TensorMap* weight) {
    const u64 once = read_once(), again = read_again();
    const int steps = steps_of(b), ahead = steps < STAGES ? steps : STAGES;
    for (int step = 0; step < ahead; step++) {
        copy_weight(b, weight, step, once);
    }
    if (EARLY) {
        wait_for_inputs();
    }
    for (int step = 0; step < ahead; step++) {
        copy_x(b, x, step, again);
    }
    for (int step = STAGES; step < steps; step++) {
        barrier_wait(b.shared + kRead + 8 * (step % STAGES), (step / STAGES - 1) & 1);
        copy_weight(b, weight, step, once);
        copy_x(b, x, step, again);
    }
}

// Four warps: the sums of row block `r` of the tile whose first step is `begin`.
__device__ __forceinline__ void multiply(const Block& b, int r, int begin, float* sums) {
    for (int step = begin; step < begin + kSteps; step++) {
        const int slot = step % STAGES;
        const u32 stage = b.shared + kRing + slot * kStage;
        barrier_wait(b.shared + kFull + 8 * slot, (step / STAGES) & 1);
        mma_begin();
#pragma unroll
        for (int k = 0; k < kLine; k += 32) {
            Mma<BLOCK_M>::add(sums, tile_at(stage + r * kTile + k),
                              tile_at(stage + ROW_BLOCKS * kTile + k));
        }
        mma_end();
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(b.shared + kRead + 8 * slot);
        }
    }
    mma_done<BLOCK_M / 2>(sums);
}

// To [BLOCK_M, kPitch].
__device__ __forceinline__ void put_sums(const Block& b, int r, const float* sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int n = r * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < BLOCK_M / 8; j++) {
        const u32 at = b.shared + kSums + ((j * 8 + lane % 4 * 2) * kPitch + n) * 4;
        put_shared(at, sums[4 * j]);
        put_shared(at + kPitch * 4, sums[4 * j + 1]);
        put_shared(at + 32, sums[4 * j + 2]);
        put_shared(at + kPitch * 4 + 32, sums[4 * j + 3]);
    }
}

// Four neighbours of a row of sums over the whole depth, and the bias.
__device__ __forceinline__ Four joined(u32 at, const u16* bias, int column) {
    Four all = get_shared(at, 0);
#pragma unroll
    for (int rank = 1; rank < SPLITS; rank++) {
        const Four part = get_shared(at, rank);
        all.a += part.a, all.b += part.b, all.c += part.c, all.d += part.d;
    }
    if (HAS_BIAS) {
        all.a += widened(bias[column]), all.b += widened(bias[column + 1]);
        all.c += widened(bias[column + 2]), all.d += widened(bias[column + 3]);
    }
    return all;
}

__device__ __forceinline__ float gated(float gate, float up) {
    return gate / (1.0f + __expf(-gate)) * up;
}

// Each block of a cluster delivers as many rows of y.
__device__ __forceinline__ void deliver(const Block& b, int tile, const u16* bias, u16* y) {
    constexpr int fours = kColumns / 4, rows = BLOCK_M / SPLITS;
    for (int i = threadIdx.x; i < rows * fours; i += kWorkers) {
        const int m = b.split * rows + i / fours, n = i % fours * 4;
        if (m >= ROWS) {
            break;
        }
        const int column = tile * kColumns + n, place = GATED ? n / 32 * 64 + n % 32 : n;
        const u32 at = b.shared + kSums + (m * kPitch + place) * 4;
        Four v = joined(at, bias, column);
        if (GATED) {
            const Four up = joined(at + 128, bias, COLUMNS + column);
            v = {gated(v.a, up.a), gated(v.b, up.b), gated(v.c, up.c), gated(v.d, up.d)};
        }
        u32* target = reinterpret_cast<u32*>(y + static_cast<u64>(m) * Y_ROW + column);
        target[0] = rounded(v.a, v.b);
        target[1] = rounded(v.c, v.d);
    }
}

extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(kWorkers + 32, 1)
    ring(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap weight,
         const u16* bias, u16* y) {
    extern __shared__ char memory[];
    const int warp = threadIdx.x / 32;
    const Block b = {(shared_address(memory) + 1023) & ~1023u,
                     static_cast<int>(blockIdx.x) / SPLITS, static_cast<int>(blockIdx.x) % SPLITS};
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < STAGES; slot++) {
            barrier_init(b.shared + kFull + 8 * slot, 1);
            barrier_init(b.shared + kRead + 8 * slot, kWorkers / 32);
        }
        barriers_ready();
    }
    if (EARLY) {
        start_dependents();
    }
    __syncthreads();
    if (warp == kWorkers / 32) {
        if (threadIdx.x % 32 == 0) {
            feed(b, &x, &weight);
        }
        if (SPLITS > 1) {
            __syncwarp();
            sync_cluster();
            sync_cluster();
        }
        return;
    }
    for (int step = 0; step < steps_of(b); step += kSteps) {
        float sums[BLOCK_M / 2] = {};
        multiply(b, warp / 4, step, sums);
        if (TILES == 1) {
            sync_threads(1, kWorkers); // all have read the ring
        }
        put_sums(b, warp / 4, sums);
        meet();
        deliver(b, b.tile + step / kSteps * kClusters, bias, y);
        if (SPLITS > 1 || TILES > 1) {
            meet(); // none ends, or puts its next sums, while another reads these
        }
    }
}
