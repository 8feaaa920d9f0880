// What each kernel is bound to: pointers, sizes and strides, all in elements, fixed at load.
#pragma once

#include <cstdint>

namespace tskernels::cpu {

using Size = std::int64_t;

// A float tensor of up to three dims seen as [rows, heads, width] with contiguous last dim.
template <class T> struct Grid {
    T* data = nullptr;
    Size row_stride = 0;
    Size head_stride = 0;

    T* at(Size row, Size head) const { return data + row * row_stride + head * head_stride; }
};

using Input = Grid<const float>;
using Output = Grid<float>;

struct Extent {
    Size rows = 0;
    Size heads = 1;
    Size width = 0;
};

// y[rows, n] = x[rows, k] · weight[n, k]ᵀ + bias[n]; bias may be null.
struct Linear {
    const float* x;
    Size x_stride;
    const float* weight;
    Size weight_stride;
    const float* bias;
    float* y;
    Size y_stride;
    Size rows, n, k;
};

// One layer's pages: [pages, 2, heads, page_size, width], keys first.
struct Cache {
    float* data;
    Size pages, heads, page_size, width;

    Size values() const { return heads * page_size * width; } // from a key to its value

    Size page() const { return 2 * values(); }

    float* key(Size page_index, Size head, Size offset) const {
        return data + page_index * page() + (head * page_size + offset) * width;
    }
};

struct Attention {
    Input query; // [tokens, heads, width]
    Output y;
    Extent extent;
    Cache cache;
    const std::int32_t* block_table; // [sequences, max_pages]
    const std::int32_t* seq_lens;
    const std::int32_t* query_starts; // [sequences + 1]
    Size sequences, max_pages;
    float scale;
    Size window; // 0: none
};

// Consecutive query rows of one sequence, against one key head.
struct AttentionTile {
    Size row;      // first query row
    Size count;    // at most kTileRows
    Size position; // of the first row
    Size sequence;
    Size kv_head;
};

inline constexpr Size kTileRows = 8;

// Floats that one thread needs beside the call: a row of outputs and two numbers a row and head.
inline Size attention_scratch(const Attention& c) {
    return kTileRows * (c.extent.heads / c.cache.heads) * (c.extent.width + 2);
}

struct KvWrite {
    Input key, value; // [rows, heads, width] as the cache has them
    Size rows;
    Cache cache;
    const std::int32_t* slots;
};

struct RmsNorm {
    Input x;
    const float* weight;
    Output y;
    Extent extent;
    float eps;
};

struct Pair { // add: a + b; silu_mul: silu(a) * b
    Input a, b;
    Output y;
    Extent extent;
};

// table [rows, 2 * half]: cosines, then sines. The head's dims beyond 2 * half pass through.
struct Rotary {
    Input x;
    const float* table;
    Size table_stride, half;
    Output y;
    Extent extent;
};

// act.y = silu(gate's y) * up's y, where act.a and act.b are those two: y[rows, n] by column
// ranges.
struct LinearSiluMul {
    Linear gate, up;
    Pair act;
};

struct RotaryTable {
    const std::int32_t* positions;
    const float* inv_freq;
    Size rows, half;
    float scale;
    float* y;
    Size y_stride;
};

struct Embedding {
    const std::int32_t* ids;
    const float* weight;
    Size weight_stride, vocab, vocab_start;
    float* y;
    Size y_stride;
    Size rows, width;
};

} // namespace tskernels::cpu
