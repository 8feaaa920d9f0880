// What kernels for Hopper ask of the device, done by threads of this machine.
//
// Each of a cluster's threads is one of this machine's. An address of shared memory holds the rank
// of its block above bit 20. A kernel that reads its inputs before it has waited for them is found
// out.
#pragma once

#include <barrier>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __shared__
#define __cluster_dims__(...)
#define __launch_bounds__(...)

using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Index {
    unsigned x;
};

extern thread_local Index threadIdx, blockIdx;
extern char memory[];

struct TensorMap {
    const std::uint16_t* numbers;
    int rows, columns, pitch, box_rows;
    bool is_input;
};

struct Four {
    float a, b, c, d;
};

struct Phase {
    int arrivals = 0, missing = 0, bytes = 0, number = 0;
};

struct Cluster {
    Cluster(int blocks, int threads)
        : shared(blocks, std::vector<char>(1 << 18)), all(blocks * threads) {
        for (int i = 0; i < blocks; i++) {
            everyone.push_back(std::make_unique<std::barrier<>>(threads));
        }
    }

    std::vector<std::vector<char>> shared;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<u32, Phase> barriers;
    std::barrier<> all;
    std::vector<std::unique_ptr<std::barrier<>>> everyone; // of a block
    std::map<int, std::unique_ptr<std::barrier<>>> named;
    bool read_early = false;
};

extern Cluster* cluster;
extern thread_local int rank;
extern thread_local bool waited;

inline u32 shared_address(const void*) {
    return static_cast<u32>(rank) << 20 | 16;
}

template <class T> T& at(u32 address) {
    return *reinterpret_cast<T*>(cluster->shared[address >> 20].data() + (address & 0xFFFFF));
}

inline void barrier_init(u32 barrier, int arrivals) {
    const std::lock_guard lock(cluster->mutex);
    cluster->barriers[barrier] = {arrivals, arrivals};
}

inline void barriers_ready() {}

inline void settle(Phase& phase) {
    if (phase.missing == 0 && phase.bytes == 0) {
        phase.number++;
        phase.missing = phase.arrivals;
        cluster->changed.notify_all();
    }
}

inline void barrier_expect(u32 barrier, int bytes) {
    const std::lock_guard lock(cluster->mutex);
    Phase& phase = cluster->barriers.at(barrier);
    phase.missing--, phase.bytes += bytes;
    settle(phase);
}

inline void barrier_arrive(u32 barrier) {
    barrier_expect(barrier, 0);
}

inline void barrier_wait(u32 barrier, int parity) {
    std::unique_lock lock(cluster->mutex);
    cluster->changed.wait(lock,
                          [&] { return (cluster->barriers.at(barrier).number & 1) != parity; });
}

inline u64 read_once() {
    return 0;
}

inline u64 read_again() {
    return 1;
}

// The place where a line's parts of 16 bytes are exchanged by the line's number among eight.
inline u32 exchanged(u32 address) {
    return address ^ ((address >> 7 & 7) << 4);
}

inline void copy_box(u32 target, const TensorMap* map, int column, int row, u32 barrier, u64) {
    cluster->read_early |= map->is_input && !waited;
    for (int r = 0; r < map->box_rows; r++) {
        for (int c = 0; c < 64; c++) {
            const bool inside = row + r < map->rows && column + c < map->columns;
            const u64 place = static_cast<u64>(row + r) * map->pitch + column + c;
            at<std::uint16_t>(exchanged(target + r * 128 + c * 2)) =
                inside ? map->numbers[place] : std::uint16_t{0};
        }
    }
    const std::lock_guard lock(cluster->mutex);
    Phase& phase = cluster->barriers.at(barrier);
    phase.bytes -= map->box_rows * 128;
    settle(phase);
}

inline void start_dependents() {}

inline void wait_for_inputs() {
    waited = true;
}

inline void sync_threads(int number, int threads) {
    std::barrier<>* met = nullptr;
    {
        const std::lock_guard lock(cluster->mutex);
        auto& slot = cluster->named[rank * 64 + number];
        if (!slot) {
            slot = std::make_unique<std::barrier<>>(threads);
        }
        met = slot.get();
    }
    met->arrive_and_wait();
}

inline void sync_cluster() {
    cluster->all.arrive_and_wait();
}

inline void __syncthreads() {
    cluster->everyone[rank]->arrive_and_wait();
}

inline void __syncwarp() {}

inline void put_shared(u32 address, float value) {
    at<float>(address) = value;
}

inline Four get_shared(u32 address, int block) {
    return at<Four>(static_cast<u32>(block) << 20 | (address & 0xFFFFF));
}

inline float widened(std::uint16_t number) {
    const u32 word = static_cast<u32>(number) << 16;
    float wide;
    std::memcpy(&wide, &word, 4);
    return wide;
}

inline u32 nearest(float number) { // ties to even
    u32 word;
    std::memcpy(&word, &number, 4);
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16;
}

inline u32 rounded(float low, float high) {
    return nearest(low) | nearest(high) << 16;
}

inline float __expf(float x) {
    return std::exp(x);
}

inline u64 tile_at(u32 address) {
    return address;
}

inline void mma_begin() {}

inline void mma_end() {
    sync_threads(8 + threadIdx.x / 128, 128);
} // a warp's lanes are in step

template <int N> void mma_done(float*) {}

template <int N> struct Mma {
    static float number(u64 tile, int row, int column) {
        return widened(
            at<std::uint16_t>(exchanged(static_cast<u32>(tile) + row * 128 + column * 2)));
    }

    static void add(float* d, u64 a, u64 b) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        for (int i = 0; i < N / 2; i++) {
            const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8;
            const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; k++) {
                d[i] += number(a, row, k) * number(b, column, k);
            }
        }
    }
};
