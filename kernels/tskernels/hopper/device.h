// What kernels for Hopper ask of the device: barriers, the tensor copy engine, matrix units.
//
// Shared memory is named by its 32-bit addresses, which also reach the other blocks of a cluster.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
    char words[128];
};

struct Four {
    float a, b, c, d;
};

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Barriers of shared memory, each 8 bytes: a phase ends when all arrivals and bytes expected came.
__device__ __forceinline__ void barrier_init(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Waits for the end of the phase of that parity: 0 for the first, the third and so on.
__device__ __forceinline__ void barrier_wait(u32 barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again%=: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again%=;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// How long the second-level cache keeps what is read.
__device__ __forceinline__ u64 read_once() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ u64 read_again() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies a box of a matrix, from `column` and `row` on, in lines of 128 bytes whose eight parts of
// 16 bytes are exchanged by the line's number (zeros beyond the matrix); its bytes go to `barrier`.
__device__ __forceinline__ void copy_box(u32 target, const TensorMap* map, int column, int row,
                                         u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "l"(policy)
                 : "memory");
}

// Kernels beside this one in the stream.
__device__ __forceinline__ void start_dependents() {
    asm volatile("griddepcontrol.launch_dependents;");
}

__device__ __forceinline__ void wait_for_inputs() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Waits for `threads` of the block's threads, by the named barrier `number`.
__device__ __forceinline__ void sync_threads(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Waits for all threads of the cluster's blocks.
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

__device__ __forceinline__ void sync_warp() {
    __syncwarp();
}

// Another lane's value: of the lane whose number differs in the bits of `bits`.
__device__ __forceinline__ float from_lane(float value, int bits) {
    return __shfl_xor_sync(0xFFFFFFFFu, value, bits);
}

// The copy engine overwrites nothing of shared memory that was written before.
__device__ __forceinline__ void copies_after_writes() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// This thread's writes are seen by whoever sees what it writes after.
__device__ __forceinline__ void writes_are_seen() {
    __threadfence();
}

__device__ __forceinline__ int add_counted(int* counter, int more) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(more)
                 : "memory");
    return before;
}

// Two neighbours, the first one at an even place.
__device__ __forceinline__ u32 read_pair(const u16* address) {
    return *reinterpret_cast<const u32*>(address);
}

// What another block has written.
__device__ __forceinline__ float read_new(const float* address) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
    return value;
}

__device__ __forceinline__ void put_number(u32 address, int value) {
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ int get_number(u32 address) {
    int value;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ float get_real(u32 address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void put_zeros(u32 address) { // 16 bytes
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

__device__ __forceinline__ void put_shared(u32 address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// Four neighbours at the same place of the shared memory of block `rank` of the cluster.
__device__ __forceinline__ Four get_shared(u32 address, int rank) {
    Four v;
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
                 "}"
                 : "=f"(v.a), "=f"(v.b), "=f"(v.c), "=f"(v.d)
                 : "r"(address), "r"(rank)
                 : "memory");
    return v;
}

// Two numbers of 16 bits, the first one below.
#ifdef HALF
__device__ __forceinline__ u32 rounded(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(both) : "f"(low), "f"(high));
    return both;
}

__device__ __forceinline__ float widened(u16 number) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(number));
    return wide;
}

#define KIND "f16.f16"
#else
__device__ __forceinline__ u32 rounded(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(both) : "f"(low), "f"(high));
    return both;
}

__device__ __forceinline__ float widened(u16 number) {
    return __uint_as_float(static_cast<u32>(number) << 16);
}

#define KIND "bf16.bf16"
#endif

__device__ __forceinline__ float larger(float a, float b) {
    return fmaxf(a, b);
}

__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Four matrices [8, 8] whose rows' places lanes 8 i to 8 i + 7 give: of matrix i, each lane has
// numbers 2 (l % 4) and the next of row l / 4; or of column l / 4, where transposed.
__device__ __forceinline__ void load_matrices(u32 row, u32 (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(u32 row, u32 (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

// sums [16, 8] += a [16, 16] times b [16, 8] of one warp. Of a, its lower eight rows are zeros; a
// lane has of row l / 4 columns 2 (l % 4) and the next, and 8 on, and of b rows for columns.
__device__ __forceinline__ void mma(float (&sums)[4], u32 a_low, u32 a_high, u32 b_low,
                                    u32 b_high) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND ".f32 {%0, %1, %2, %3},"
                 " {%4, %8, %5, %8}, {%6, %7}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a_low), "r"(a_high), "r"(b_low), "r"(b_high), "r"(0));
}

// What the matrix units are told of a tile whose lines of 128 bytes lie one after another.
__device__ __forceinline__ u64 tile_at(u32 address) {
    constexpr u64 eight_lines = 1024 >> 4, exchanged_in_128 = 1;
    return ((address & 0x3FFFF) >> 4) | 1ull << 16 | eight_lines << 32 | exchanged_in_128 << 62;
}

__device__ __forceinline__ void mma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void mma_end() {
    asm volatile("wgmma.commit_group.sync.aligned;\n"
                 "wgmma.wait_group.sync.aligned 0;" ::
                     : "memory");
}

// The compiler reads no sums before this: it knows nothing of when they are there.
template <int N> __device__ __forceinline__ void mma_done(float* sums) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(sums[i])::"memory");
    }
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)

// sums [64, N] += 16 columns of a tile [64, 64] times those of another [N, 64], by four warps: lane
// l of warp w has, of rows r = 16 w + l / 4 and r + 8, columns 2 (l % 4) and the next of each
// eight.
template <int N> struct Mma;

template <> struct Mma<16> {
    static __device__ __forceinline__ void add(float* d, u64 a, u64 b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." KIND
                     " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                     : F4(d, 0), F4(d, 4)
                     : "l"(a), "l"(b));
    }
};

template <> struct Mma<32> {
    static __device__ __forceinline__ void add(float* d, u64 a, u64 b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." KIND
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15},"
                     " %16, %17, 1, 1, 1, 0, 0;"
                     : F16(d, 0)
                     : "l"(a), "l"(b));
    }
};

template <> struct Mma<64> {
    static __device__ __forceinline__ void add(float* d, u64 a, u64 b) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." KIND
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30,"
                     " %31}, %32, %33, 1, 1, 1, 0, 0;"
                     : F16(d, 0), F16(d, 16)
                     : "l"(a), "l"(b));
    }
};
