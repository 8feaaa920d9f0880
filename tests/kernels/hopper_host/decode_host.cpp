// Runs decode attention on this machine, block by block, in any order of blocks.
#include "device.h"

#include <algorithm>
#include <thread>

#include SOURCE

// False where the newest key of a sequence was read before the kernel had waited for it.
extern "C" bool run(const u16* cache, int rows, const u16* query, const int* tables,
                    const int* lengths, const int* starts, const u16* sinks, u16* y, float* partial,
                    int* counters, const int* order) {
    std::vector<char> late(rows * kParts);
    for (int s = 0; s < SEQUENCES; s++) {
        const int newest = lengths[s] - 1, page = tables[s * MAX_PAGES + newest / PAGE];
        for (int head = 0; head < 2 * KV_HEADS && starts[s + 1] > starts[s]; head++) {
            const int row = (page * 2 * KV_HEADS + head) * PAGE + newest % PAGE;
            std::fill_n(late.begin() + row * kParts, kParts, 1);
        }
    }
    const TensorMap map = {cache, rows * kParts, 64, 64, kBox * kParts, late.data()};
    bool early = false;
    for (int i = 0; i < BLOCKS; i++) {
        Cluster here(1, kWorkers + 32);
        cluster = &here;
        std::vector<std::jthread> running;
        for (unsigned thread = 0; thread < kWorkers + 32; thread++) {
            running.emplace_back([&, thread] {
                waited = false;
                threadIdx.x = thread, blockIdx.x = static_cast<unsigned>(order[i]);
                decode(map, query, tables, lengths, starts, sinks, y, partial, counters);
            });
        }
        running.clear();
        early |= here.read_early;
    }
    return !early;
}
