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
#include "sums.h"

// Four warps: all units of a share, in the order in which they come. An item's query is asked for
// before the item that comes before it is ended.
__device__ __forceinline__ void attend(const Inputs& in, u32 shared, const Beginning& begins,
                                       int begin, int end) {
    Place place = place_of(shared, begins, begin);
    Query query = query_of(in, place);
    Sums sums;
    int had = 0;
    for (int unit = begin; unit < end; unit++) {
        if (had == 0) {
            start(sums, query);
        }
        const int i = unit - begin, slot = i % STAGES;
        barrier_wait(shared + kFull + 8 * slot, (i / STAGES) & 1);
        absorb(sums, shared + kRing + slot * kStage, keys_of(in, place));
        sync_warp();
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(shared + kRead + 8 * slot);
        }
        had++;
        const Place now = place;
        const bool ends = now.step == now.units - 1 || unit == end - 1;
        if (unit + 1 < end) {
            advance(shared, place);
            if (ends) {
                query = query_of(in, place);
            }
        }
        if (ends) {
            finish(sums, in, shared, now, unit - now.step, had, begins.all);
            had = 0;
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
    const int block = static_cast<int>(blockIdx.x);
    const Beginning begins = count_units(in, shared, block);
    const int begin = share_of(block, begins.all), end = share_of(block + 1, begins.all);
    if (threadIdx.x / 32 == kWarps) {
        if (threadIdx.x % 32 == 0 && begin < end) {
            feed(&cache, in, shared, begins, begin, end);
        }
        return;
    }
    if (EARLY) {
        wait_for_inputs();
        start_dependents();
    }
    if (begin < end) {
        attend(in, shared, begins, begin, end);
    }
}
