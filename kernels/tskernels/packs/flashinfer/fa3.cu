// FlashInfer's FlashAttention 3 for Hopper over our paged cache, and the plan of its blocks' work.
//
// One instance: bfloat16, heads 128 wide, causal, a list of work for each head. The list lies at
// fixed places of a device's memory, so that a recorded launch can be replayed with any lengths.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

// FlashInfer's own list of CUTLASS headers draws in test utilities, which need cuRAND.
#define FLASHINFER_CUTLASS_UTILS_CUH_
#include <cutlass/cutlass.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "../kernel_pack.h"

#ifndef TS_FA3_BLOCK_KEYS
#define TS_FA3_BLOCK_KEYS 96
#endif

namespace {

constexpr int kWidth = 128;
constexpr int kBlockRows = 128;
constexpr int kMostTiles = 4096;
constexpr int64_t kAlignment = 16;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

// The sizes of a program: how many rows and sequences its largest step has.
struct Bucket {
  int64_t rows;
  int64_t sequences;
  int64_t heads;

  int64_t tiles() const { return (rows + kBlockRows - 1) / kBlockRows + sequences - 1; }
};

// Where each array of the plan starts: seven of one entry a tile, and the blocks' shares of them.
struct Places {
  int64_t tile, row, key, rows, keys, head, share, sequence, end;
};

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Places places(const Bucket& bucket, int64_t processors) {
  const int64_t list = rounded(sizeof(int32_t) * bucket.tiles() * bucket.heads);
  const int64_t shares = rounded(sizeof(int32_t) * (processors + 1));
  return {0,        list,     2 * list, 3 * list,      4 * list,
          5 * list, 6 * list, 6 * list + shares, 7 * list + shares};
}

int processors_of(int32_t device) {
  check(cudaSetDevice(device), "the GPU cannot be made the current one");
  int found = 0;
  check(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device),
        "the number of multiprocessors cannot be read");
  return found;
}

struct PagedParams {
  using DTypeQ = cutlass::bfloat16_t;
  using DTypeKV = cutlass::bfloat16_t;
  using DTypeO = cutlass::bfloat16_t;
  using IdType = int32_t;

  struct AdditionalParams {
    float sm_scale;
  };

  DTypeQ* q_ptr;
  DTypeKV* k_ptr;
  DTypeKV* v_ptr;
  DTypeO* o_ptr;
  float* lse_ptr;
  IdType* qo_tile_indices;
  IdType* qo_indptr;
  IdType* kv_indptr;
  IdType* kv_indices;
  IdType* qo_lens;
  IdType* kv_lens;
  IdType* head_indices;
  IdType* work_indptr;
  IdType* batch_indices;
  AdditionalParams additional_params;
  int64_t q_stride_n, q_stride_h, k_stride_n, k_stride_h, v_stride_n, v_stride_h;
  int64_t o_stride_n, o_stride_h, nnz_qo, k_page_stride, v_page_stride;
  int num_qo_heads, num_kv_heads, group_size, page_size, window_left;
  bool causal;
};

using Traits =
    flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/false, kWidth, kWidth, kBlockRows,
                                      TS_FA3_BLOCK_KEYS, /*NUM_STAGES=*/2, PagedParams::DTypeQ,
                                      PagedParams::DTypeKV, PagedParams::DTypeO,
                                      PagedParams::IdType, flashinfer::StandardAttention>;

template <typename Work>
int32_t reported(char* error, int64_t error_bytes, Work work) {
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

template <typename T>
T* at(uint64_t address, int64_t offset = 0) {
  return reinterpret_cast<T*>(address + offset);
}

}  // namespace

TS_PACK_EXPORT int32_t ts_pack_abi() { return TS_PACK_ABI; }

// Share the tiles of a step out among the multiprocessors.
//
// addresses: keys of each sequence [sequences], first rows [sequences + 1] and the list in pinned
// memory, all on the host; the list on the device. integers: rows, sequences, heads, key heads,
// page size, pages of a table's row, bytes of a list.
TS_PACK_EXPORT int32_t flashinfer_fa3_plan(const uint64_t* addresses, const int64_t* integers,
                                           const double*, int32_t device, void* stream, char* error,
                                           int64_t error_bytes) {
  return reported(error, error_bytes, [&] {
    const Bucket bucket{integers[0], integers[1], integers[2]};
    const int64_t bytes = integers[6];
    const Places wanted = places(bucket, processors_of(device));
    if (wanted.end > bytes || bucket.tiles() > kMostTiles) {
      throw std::runtime_error("the list of work takes " + std::to_string(wanted.end) +
                               " bytes, there are " + std::to_string(bytes));
    }
    std::vector<int32_t> tables(bucket.sequences + 1);
    for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<int32_t>(i * integers[5]);
    flashinfer::PrefillPlanSM90Info found;
    check(flashinfer::PrefillSM90Plan<int32_t>(
              nullptr, 0, at<void>(addresses[3]), at<void>(addresses[2]), bytes, found,
              at<int32_t>(addresses[1]), tables.data(), at<int32_t>(addresses[0]), bucket.rows,
              bucket.sequences, bucket.heads, integers[3], kWidth, kWidth, integers[4],
              /*causal=*/true, /*enable_cuda_graph=*/true, sizeof(PagedParams::DTypeO),
              static_cast<cudaStream_t>(stream)),
          "the list of work cannot be copied");
    const std::array<int64_t, 8> given{
        found.qo_tile_indices_offset, found.qo_indptr_offset,    found.kv_indptr_offset,
        found.qo_len_offset,          found.kv_len_offset,       found.head_indices_offset,
        found.work_indptr_offset,     found.batch_indices_offset};
    const std::array<int64_t, 8> expected{wanted.tile, wanted.row,  wanted.key,   wanted.rows,
                                          wanted.keys, wanted.head, wanted.share, wanted.sequence};
    if (given != expected || found.same_schedule_for_all_heads) {
      throw std::runtime_error("the list of work is laid out in another way");
    }
  });
}

// Attention of a program's rows over the paged cache, as the list on the device says.
//
// addresses: query, cache, block table, list, output. integers: rows, sequences, heads, key heads,
// page size, strides in elements of the query's rows and heads, of the output's rows and heads.
// reals: the scale of scores.
TS_PACK_EXPORT int32_t flashinfer_fa3_run(const uint64_t* addresses, const int64_t* integers,
                                          const double* reals, int32_t device, void* stream,
                                          char* error, int64_t error_bytes) {
  return reported(error, error_bytes, [&] {
    const Bucket bucket{integers[0], integers[1], integers[2]};
    const int64_t key_heads = integers[3], page_size = integers[4];
    const Places place = places(bucket, processors_of(device));
    const int64_t side = key_heads * page_size * kWidth;
    const auto list = [&](int64_t offset) { return at<int32_t>(addresses[3], offset); };
    PagedParams params{};
    params.q_ptr = at<PagedParams::DTypeQ>(addresses[0]);
    params.k_ptr = at<PagedParams::DTypeKV>(addresses[1]);
    params.v_ptr = params.k_ptr + side;
    params.kv_indices = at<int32_t>(addresses[2]);
    params.o_ptr = at<PagedParams::DTypeO>(addresses[4]);
    params.qo_tile_indices = list(place.tile);
    params.qo_indptr = list(place.row);
    params.kv_indptr = list(place.key);
    params.qo_lens = list(place.rows);
    params.kv_lens = list(place.keys);
    params.head_indices = list(place.head);
    params.work_indptr = list(place.share);
    params.batch_indices = list(place.sequence);
    params.additional_params.sm_scale = static_cast<float>(reals[0]);
    params.q_stride_n = integers[5];
    params.q_stride_h = integers[6];
    params.o_stride_n = integers[7];
    params.o_stride_h = integers[8];
    params.k_stride_n = params.v_stride_n = kWidth;
    params.k_stride_h = params.v_stride_h = page_size * kWidth;
    params.k_page_stride = params.v_page_stride = 2 * side;
    params.nnz_qo = bucket.rows;
    params.num_qo_heads = static_cast<int>(bucket.heads);
    params.num_kv_heads = static_cast<int>(key_heads);
    params.group_size = static_cast<int>(bucket.heads / key_heads);
    params.page_size = static_cast<int>(page_size);
    params.window_left = -1;
    params.causal = true;
    check(flashinfer::BatchPrefillWithPagedKVCacheKernelTraitsDispatched<
              Traits, /*LEFT_SLIDING_WINDOW=*/false, /*CAUSAL=*/true,
              /*SAME_SCHEDULE_FOR_ALL_HEADS=*/false>(params, static_cast<cudaStream_t>(stream)),
          "the launch failed");
    check(cudaGetLastError(), "the launch failed");
  });
}
