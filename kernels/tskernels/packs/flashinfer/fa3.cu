// FlashInfer's FlashAttention 3 for Hopper over our paged cache, and the list of its blocks' work.
//
// One instance: bfloat16, heads 128 wide, causal, a list of work for each head. The list lies at
// fixed places of a device's memory, so that a recorded launch can be replayed with any lengths.
// FlashInfer gathers paged keys row by row; here the tensor copy engine fetches whole parts of
// pages, as it does for keys that lie in a row.

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

// FlashInfer's own list of CUTLASS headers draws in test utilities, which need cuRAND.
#define FLASHINFER_CUTLASS_UTILS_CUH_
#include <cutlass/cutlass.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "../kernel_pack.h"
#include "tiles.h"

namespace {

using namespace ts_fa3;

using Number = cutlass::bfloat16_t;

constexpr int kWidth = 128;

constexpr int kColumns = 64;
// A copy's columns: 128 bytes, the span over which shared memory is swizzled.
constexpr int kHalf = kBlockKeys * kColumns;
// Numbers of a tile in shared memory from one half of the columns to the other.
static_assert(kBlockRows == kBlockKeys, "query and keys have tiles alike");

using Traits =
    flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/true, kWidth, kWidth, kBlockRows,
                                      kBlockKeys, /*NUM_STAGES=*/2, Number, Number, Number, int32_t,
                                      flashinfer::StandardAttention>;

struct Additional {
    float sm_scale;
};

// How a block gets its keys and values. All lanes of one warp issue copies, each of its own part
// of a tile: `part_rows` rows of one page, and one half of the columns.
struct PagedMainloop : flashinfer::CollectiveMainloop<Additional, Traits, /*CAUSAL=*/true> {
    struct Params {
        CUtensorMap query;
        CUtensorMap part;
        CUtensorMap row;
        const int32_t* tables;
        int pages;
        int page_shift;
        int part_shift;
        int key_heads;
        int window_left;
        Additional additional_params;
    };

    CUTLASS_DEVICE static void prefetch_tma_descriptors(Params const& params) {
        for (const CUtensorMap* map : {&params.query, &params.part, &params.row}) {
            cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(map));
        }
    }

    CUTLASS_DEVICE int get_num_kv_tiles(Params const&, int q_tile, int rows, int keys) const {
        return (min(keys, (q_tile + 1) * kBlockRows + keys - rows) + kBlockKeys - 1) / kBlockKeys;
    }

    // One lane's part of the tiles of a sequence.
    struct Part {
        Params const& params;
        const int32_t* table;
        int keys;
        int half;
        int offset; // of its first row in a tile; beyond the tile where the lane has no part

        CUTLASS_DEVICE bool is_there() const { return offset < kBlockKeys; }

        // The page of the part in a tile; a page that does not exist, which reads as zeros, where
        // the sequence does not reach.
        CUTLASS_DEVICE int page(int tile) const {
            const int first = tile * kBlockKeys + offset;
            return is_there() && first >= 0 && first < keys ? table[first >> params.page_shift]
                                                            : params.pages;
        }

        CUTLASS_DEVICE void copy(Number* target, uint64_t* barrier, int head, int tile,
                                 int page) const {
            const int row = (tile * kBlockKeys + offset) & ((1 << params.page_shift) - 1);
            load(params.part, target + half * kHalf + offset * kColumns, barrier, row, head, page);
        }

        // As `copy`, with zeros for what lies beyond the last key, whose weight is zero: it may be
        // NaN.
        CUTLASS_DEVICE void copy_clean(Number* target, uint64_t* barrier, int head, int tile,
                                       int page) const {
            const int left = keys - (tile * kBlockKeys + offset), size = 1 << params.part_shift;
            if (left >= size || left <= 0) return copy(target, barrier, head, tile, page);
            const int row = (tile * kBlockKeys + offset) & ((1 << params.page_shift) - 1);
            for (int i = 0; i < size; ++i) {
                load(params.row, target + half * kHalf + (offset + i) * kColumns, barrier, row + i,
                     head, i < left ? page : params.pages);
            }
        }

        CUTLASS_DEVICE void load(CUtensorMap const& map, Number* target, uint64_t* barrier, int row,
                                 int head, int page) const {
            cute::SM90_TMA_LOAD_4D::copy(
                &map, barrier, static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                target, half * kColumns, row, head, page);
        }
    };

    template <bool LEFT_SLIDING_WINDOW, typename Scheduler, typename Shared, typename Coordinates>
    CUTLASS_DEVICE void load(Params const& params, MainloopPipeline keys, MainloopPipeline values,
                             PipelineState& next_keys, PipelineState& next_values, Shared& shared,
                             Scheduler& scheduler, typename Scheduler::Params const& scheduled,
                             typename Scheduler::WorkTileInfo& work, Coordinates const& where,
                             int turn) {
        const auto [q_tile, head, key_head, first_row, table, rows, length, sequence] = where;
        const int lane = threadIdx.x % cutlass::NumThreadsPerWarp;
        const Part part{params, params.tables + table, length, lane & 1,
                        (lane >> 1) << params.part_shift};
        const auto fetch_keys = [&](int tile, int page) {
            keys.producer_acquire(next_keys);
            __syncwarp();
            if (part.is_there()) {
                part.copy(shared.smem_k.data() + next_keys.index() * 2 * kHalf,
                          keys.producer_get_barrier(next_keys), key_head, tile, page);
            }
            ++next_keys;
        };
        const auto fetch_values = [&](int tile, int page) {
            values.producer_acquire(next_values);
            __syncwarp();
            if (part.is_there()) {
                part.copy_clean(shared.smem_v.data() + next_values.index() * 2 * kHalf,
                                values.producer_get_barrier(next_values),
                                params.key_heads + key_head, tile, page);
            }
            ++next_values;
        };
        int tile = get_num_kv_tiles(params, q_tile, rows, length) - 1;
        int here = part.page(tile), below = part.page(tile - 1);
        fetch_keys(tile, here);
        // The query's place is free once all have read the one before it, that of values once the
        // output that lay there is written.
        cutlass::arch::NamedBarrier::sync(NUM_MMA_THREADS + Traits::NUM_PRODUCER_THREADS,
                                          static_cast<int>(flashinfer::NamedBarriers::kQueryEmpty));
        fetch_query(params, shared, lane, first_row + q_tile * kBlockRows, head);
        shared.barrier_O.wait((turn + 1) % 2);
        for (; tile > 0; --tile) {
            const int after = part.page(tile - 2);
            fetch_keys(tile - 1, below);
            fetch_values(tile, here);
            here = below;
            below = after;
        }
        scheduler.prefetch_next_work(scheduled, work);
        fetch_values(0, here);
        scheduler.broadcast_next_work(work);
    }

    template <typename Shared>
    CUTLASS_DEVICE void fetch_query(Params const& params, Shared& shared, int lane, int row,
                                    int head) const {
        if (lane == 0) {
            shared.barrier_Q.arrive_and_expect_tx(2 * kHalf * sizeof(Number));
        }
        __syncwarp();
        if (lane < 2) {
            cute::SM90_TMA_LOAD_3D::copy(
                &params.query, reinterpret_cast<uint64_t*>(&shared.barrier_Q),
                static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST),
                shared.smem_q.data() + lane * kHalf, lane * kColumns, row, head);
        }
    }
};

using Epilogue = flashinfer::CollectiveEpilogue<Traits>;
using Scheduler = flashinfer::BatchPrefillPersistentTileScheduler<int32_t>;

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
    }
}

int processors_of(int32_t device) {
    check(cudaSetDevice(device), "the GPU cannot be made the current one");
    int found = 0;
    check(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device),
          "the number of multiprocessors cannot be read");
    return found;
}

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                           cudaEnableDefault, &status),
          "the driver's maps of tensors cannot be found");
    if (status != cudaDriverEntryPointSuccess) {
        throw std::runtime_error("the driver knows no maps of tensors");
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
}

// A map of a tensor whose first dim is contiguous, for copies of `box`; strides are in bytes.
template <size_t Rank>
CUtensorMap map_of(uint64_t address, std::array<uint64_t, Rank> sizes,
                   std::array<uint64_t, Rank - 1> strides, std::array<uint32_t, Rank> box) {
    CUtensorMap map;
    std::array<uint32_t, Rank> steps;
    steps.fill(1);
    const CUresult status =
        encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, Rank, reinterpret_cast<void*>(address),
                  sizes.data(), strides.data(), box.data(), steps.data(),
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS) {
        throw std::runtime_error("a tensor has no map: error " + std::to_string(status));
    }
    return map;
}

int log2_of(int64_t size) {
    int shift = 0;
    while ((int64_t{1} << shift) < size)
        ++shift;
    return shift;
}

template <typename Work> int32_t reported(char* error, int64_t error_bytes, Work work) {
    try {
        work();
        return 0;
    } catch (const std::exception& failure) {
        std::snprintf(error, error_bytes, "%s", failure.what());
    } catch (...) {
        std::snprintf(error, error_bytes, "failed");
    }
    return 1;
}

template <typename T> T* at(uint64_t address, int64_t offset = 0) {
    return reinterpret_cast<T*>(address + offset);
}

void launch(PagedMainloop::Params& mainloop, Epilogue::Params& epilogue,
            Scheduler::Params& scheduler, int processors, cudaStream_t stream) {
    auto* kernel = reinterpret_cast<void*>(
        flashinfer::PrefillWithKVCacheKernel<PagedMainloop, Epilogue, Traits,
                                             /*LEFT_SLIDING_WINDOW=*/false, /*CAUSAL=*/true,
                                             Scheduler>);
    const size_t shared = sizeof(Traits::SharedStorage);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "a block may not have its shared memory");
    void* arguments[] = {&mainloop, &epilogue, &scheduler};
    check(cudaLaunchKernel(kernel, dim3(processors), dim3(Traits::NUM_THREADS), arguments, shared,
                           stream),
          "the launch failed");
}

} // namespace

TS_PACK_EXPORT int32_t ts_pack_abi() {
    return TS_PACK_ABI;
}

// List the tiles of a step's sequences with more than one row, by multiprocessor; those with one
// row are left to another kernel.
//
// addresses: keys of each sequence [sequences], first rows [sequences + 1] and the list in pinned
// memory, all on the host; the list on the device. integers: rows, sequences, heads, pages of a
// table's row, bytes of a list.
TS_PACK_EXPORT int32_t flashinfer_fa3_list(const uint64_t* addresses, const int64_t* integers,
                                           const double*, int32_t device, void* stream, char* error,
                                           int64_t error_bytes) {
    return reported(error, error_bytes, [&] {
        const Bucket bucket{integers[0], integers[1], integers[2]};
        const int64_t pages = integers[3], bytes = integers[4];
        const int processors = processors_of(device);
        const Places place = places(bucket, processors);
        if (place.end > bytes) {
            throw std::runtime_error("a list takes " + std::to_string(place.end) +
                                     " bytes, there are " + std::to_string(bytes));
        }
        write_list(at<const int32_t>(addresses[0]), at<const int32_t>(addresses[1]), bucket, pages,
                   processors, place, at<char>(addresses[2]));
        check(cudaMemcpyAsync(at<void>(addresses[3]), at<void>(addresses[2]), place.end,
                              cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
              "the list cannot be copied");
    });
}

// Attention of a program's rows over the paged cache, as the list on the device says.
//
// addresses: query, cache, block table, list, output. integers: rows, sequences, heads, key heads,
// page size (a power of two from 8 on), pages, strides in elements of the query's rows and heads,
// of the output's rows and heads. reals: the scale of scores.
TS_PACK_EXPORT int32_t flashinfer_fa3_run(const uint64_t* addresses, const int64_t* integers,
                                          const double* reals, int32_t device, void* stream,
                                          char* error, int64_t error_bytes) {
    return reported(error, error_bytes, [&] {
        const Bucket bucket{integers[0], integers[1], integers[2]};
        const int64_t key_heads = integers[3], page_size = integers[4], pages = integers[5];
        const int processors = processors_of(device);
        const Places place = places(bucket, processors);
        const auto list = [&](int64_t offset) { return at<int32_t>(addresses[3], offset); };
        const uint64_t rows = bucket.rows, heads = bucket.heads, number = sizeof(Number);
        const uint64_t line = kWidth * number, page = 2 * key_heads * page_size * line;
        const uint32_t part =
            static_cast<uint32_t>(page_size < kBlockKeys ? page_size : kBlockKeys);
        const auto cache = [&](uint32_t box_rows) {
            return map_of<4>(addresses[1],
                             {kWidth, static_cast<uint64_t>(page_size),
                              static_cast<uint64_t>(2 * key_heads), static_cast<uint64_t>(pages)},
                             {line, page_size * line, page}, {kColumns, box_rows, 1, 1});
        };
        PagedMainloop::Params mainloop{map_of<3>(addresses[0], {kWidth, rows, heads},
                                                 {integers[6] * number, integers[7] * number},
                                                 {kColumns, kBlockRows, 1}),
                                       cache(part),
                                       cache(1),
                                       at<int32_t>(addresses[2]),
                                       static_cast<int>(pages),
                                       log2_of(page_size),
                                       log2_of(part),
                                       static_cast<int>(key_heads),
                                       /*window_left=*/-1,
                                       {static_cast<float>(reals[0])}};
        Epilogue::Params epilogue{at<Number>(addresses[4]),
                                  flashinfer::get_gmem_layout(bucket.rows, bucket.heads, kWidth,
                                                              integers[8], integers[9]),
                                  /*lse=*/nullptr,
                                  flashinfer::get_lse_gmem_layout(bucket.rows, bucket.heads)};
        Scheduler::Params scheduler = Scheduler::to_underlying_arguments(
            {list(place.share), list(place.head), list(place.tile), list(place.row),
             list(place.table), list(place.rows), list(place.keys), list(place.sequence),
             cutlass::FastDivmod(static_cast<int>(bucket.heads / key_heads)),
             static_cast<int>(bucket.heads)});
        launch(mainloop, epilogue, scheduler, processors, static_cast<cudaStream_t>(stream));
    });
}
