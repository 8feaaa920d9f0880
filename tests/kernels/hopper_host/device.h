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

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Index {
    unsigned x;
};

inline thread_local Index threadIdx, blockIdx;
inline char memory[1];

struct TensorMap {
    const u16* numbers;
    int rows, columns, pitch, box_rows;
    const char* late; // of each row, whether kernels before write it; null where of none
};

struct Four {
    float a, b, c, d;
};

struct Phase {
    int arrivals = 0, missing = 0, bytes = 0, number = 0;
};

// What the lanes of a warp show each other.
struct Lanes {
    Lanes() : met(32) {}

    std::barrier<> met;
    u32 words[32][4];
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
    std::map<int, std::unique_ptr<Lanes>> warps;
    bool read_early = false;
};

inline Cluster* cluster;
inline thread_local int rank;
inline thread_local bool waited;

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
    for (int r = 0; r < map->box_rows; r++) {
        for (int c = 0; c < 64; c++) {
            const bool inside = row + r < map->rows && column + c < map->columns;
            cluster->read_early |= inside && map->late && map->late[row + r] && !waited;
            const u64 place = static_cast<u64>(row + r) * map->pitch + column + c;
            at<u16>(exchanged(target + r * 128 + c * 2)) = inside ? map->numbers[place] : u16{0};
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

inline Lanes& lanes() {
    const std::lock_guard lock(cluster->mutex);
    auto& slot = cluster->warps[rank * 64 + static_cast<int>(threadIdx.x / 32)];
    if (!slot) {
        slot = std::make_unique<Lanes>();
    }
    return *slot;
}

inline void sync_warp() {
    lanes().met.arrive_and_wait();
}

// Shows four words to the warp, and takes what `found` makes of all lanes'.
template <class F> auto exchange(u32 a, u32 b, u32 c, u32 d, F found) {
    Lanes& warp = lanes();
    u32* mine = warp.words[threadIdx.x % 32];
    mine[0] = a, mine[1] = b, mine[2] = c, mine[3] = d;
    warp.met.arrive_and_wait();
    const auto result = found(warp.words);
    warp.met.arrive_and_wait();
    return result;
}

inline u32 bits_of(float number) {
    u32 word;
    std::memcpy(&word, &number, 4);
    return word;
}

inline float from_lane(float value, int bits) {
    return exchange(bits_of(value), 0, 0, 0, [bits](const u32(*words)[4]) {
        float other;
        std::memcpy(&other, &words[(threadIdx.x % 32) ^ bits][0], 4);
        return other;
    });
}

inline void copies_after_writes() {}

inline void writes_are_seen() {}

inline int add_counted(int* counter, int more) {
    const int before = *counter;
    *counter += more;
    return before;
}

inline float read_new(const float* address) {
    return *address;
}

inline void put_number(u32 address, int value) {
    at<int>(address) = value;
}

inline int get_number(u32 address) {
    return at<int>(address);
}

inline float get_real(u32 address) {
    return at<float>(address);
}

inline void put_zeros(u32 address) {
    at<Four>(address) = {};
}

inline float larger(float a, float b) {
    return std::fmax(a, b);
}

inline float power_of_two(float x) {
    return std::exp2(x);
}

inline void put_shared(u32 address, float value) {
    at<float>(address) = value;
}

inline Four get_shared(u32 address, int block) {
    return at<Four>(static_cast<u32>(block) << 20 | (address & 0xFFFFF));
}

inline u32 read_pair(const u16* address) {
    cluster->read_early |= !waited;
    u32 pair;
    std::memcpy(&pair, address, 4);
    return pair;
}

inline float widened(u16 number) {
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

// Numbers of four matrices [8, 8]: a lane has of each those at two places that `place` names.
template <class P> void load_four(u32 row, u32 (&m)[4], P place) {
    struct Four32 {
        u32 m[4];
    };

    const auto found = exchange(row, 0, 0, 0, [place](const u32(*words)[4]) {
        Four32 all;
        for (int i = 0; i < 4; i++) {
            u32 pair[2];
            for (int j = 0; j < 2; j++) {
                const auto [line, column] = place(static_cast<int>(threadIdx.x % 32), j);
                pair[j] = at<u16>(words[8 * i + line][0] + 2 * column);
            }
            all.m[i] = pair[0] | pair[1] << 16;
        }
        return all;
    });
    std::memcpy(m, found.m, sizeof m);
}

struct Spot {
    int line, column;
};

inline void load_matrices(u32 row, u32 (&m)[4]) {
    load_four(row, m, [](int lane, int j) { return Spot{lane / 4, lane % 4 * 2 + j}; });
}

inline void load_transposed(u32 row, u32 (&m)[4]) {
    load_four(row, m, [](int lane, int j) { return Spot{lane % 4 * 2 + j, lane / 4}; });
}

inline void mma(float (&sums)[4], u32 a_low, u32 a_high, u32 b_low, u32 b_high) {
    struct Two {
        float sums[2];
    };

    const auto more = exchange(a_low, a_high, b_low, b_high, [](const u32(*words)[4]) {
        const int lane = threadIdx.x % 32;
        const auto number = [words](int owner, int first, int k) {
            const u32 word = words[owner * 4 + k % 8 / 2][first + k / 8];
            return widened(static_cast<u16>(k % 2 ? word >> 16 : word));
        };
        Two found = {};
        for (int j = 0; j < 2; j++) {
            for (int k = 0; k < 16; k++) {
                found.sums[j] += number(lane / 4, 0, k) * number(lane % 4 * 2 + j, 2, k);
            }
        }
        return found;
    });
    sums[0] += more.sums[0], sums[1] += more.sums[1];
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
        return widened(at<u16>(exchanged(static_cast<u32>(tile) + row * 128 + column * 2)));
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
