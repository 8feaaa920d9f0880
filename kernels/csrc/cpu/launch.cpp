#include "cpu/launch.h"

#include "cpu/isa.h"
#include "cpu/pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace tskernels::cpu {

namespace {

constexpr Size kChunkBytes = 96 * 1024; // of weights: some microseconds at the speed of memory
constexpr Size kChunkElements = 16 * 1024;
constexpr Size kColumnStep = 4; // the widest register tile of body/linear.h

void check(bool inside, const char* what, Size value, Size bound) {
    if (!inside)
        throw std::out_of_range(std::string(what) + " is " + std::to_string(value) +
                                ", but must be in 0.." + std::to_string(bound - 1));
}

Size chunk_rows(Size elements_per_row) {
    return std::max<Size>(1, kChunkElements / std::max<Size>(1, elements_per_row));
}

// The columns of a weight [n, k] that one thread takes at a time.
Size chunk_columns(const Linear& c, Size weights) {
    const Size row = weights * c.k * static_cast<Size>(sizeof(float));
    const Size rows = kChunkBytes / std::max<Size>(1, row);
    return std::max(kColumnStep, rows / kColumnStep * kColumnStep);
}

template <class Call>
void over_rows(const Call& call, void (*loop)(const Call&, Size, Size), Size rows, Size per_row) {
    Pool::get().run(rows, chunk_rows(per_row),
                    [&](Size begin, Size end) { loop(call, begin, end); });
}

Size per_row(const Extent& extent) {
    return extent.heads * extent.width;
}

std::size_t bytes(Size floats) {
    return static_cast<std::size_t>(floats) * sizeof(float);
}

void check_sequence(const Attention& c, Size s) {
    const Size first = c.query_starts[s], last = c.query_starts[s + 1], length = c.seq_lens[s];
    const Size capacity = c.max_pages * c.cache.page_size;
    check(first >= 0 && first <= last, "attention's query_starts", first, last + 1);
    check(last <= c.extent.rows, "attention's query_starts", last, c.extent.rows + 1);
    check(length >= last - first && length <= capacity, "attention's seq_lens", length,
          capacity + 1);
    const std::int32_t* pages = c.block_table + s * c.max_pages;
    for (Size p = 0; p * c.cache.page_size < length; ++p)
        check(pages[p] >= 0 && pages[p] < c.cache.pages, "attention's page", pages[p],
              c.cache.pages);
}

void cut_into_tiles(const Attention& c, std::vector<AttentionTile>& tiles) {
    tiles.clear();
    for (Size s = 0; s < c.sequences; ++s) {
        const Size first = c.query_starts[s], last = c.query_starts[s + 1];
        if (first == last) continue;
        check_sequence(c, s);
        for (Size row = first; row < last; row += kTileRows)
            for (Size head = 0; head < c.cache.heads; ++head)
                tiles.push_back(
                    {row, std::min(kTileRows, last - row), c.seq_lens[s] - (last - row), s, head});
    }
}

void rotary_table_rows(const RotaryTable& c, Size begin, Size end) {
    for (Size row = begin; row < end; ++row) {
        float* y = c.y + row * c.y_stride;
        const auto position = static_cast<float>(c.positions[row]);
        for (Size i = 0; i < c.half; ++i) {
            const float angle = position * c.inv_freq[i];
            y[i] = std::cos(angle) * c.scale;
            y[c.half + i] = std::sin(angle) * c.scale;
        }
    }
}

void embedding_rows(const Embedding& c, Size begin, Size end) {
    for (Size row = begin; row < end; ++row) {
        const Size local = c.ids[row] - c.vocab_start;
        float* y = c.y + row * c.y_stride;
        if (local >= 0 && local < c.vocab)
            std::memcpy(y, c.weight + local * c.weight_stride, bytes(c.width));
        else
            std::fill_n(y, c.width, 0.0F);
    }
}

void write_rows(const KvWrite& c, Size begin, Size end) {
    for (Size row = begin; row < end; ++row) {
        const Size page = c.slots[row] / c.cache.page_size;
        const Size offset = c.slots[row] - page * c.cache.page_size;
        for (Size head = 0; head < c.cache.heads; ++head) {
            float* key = c.cache.key(page, head, offset);
            std::memcpy(key, c.key.at(row, head), bytes(c.cache.width));
            std::memcpy(key + c.cache.values(), c.value.at(row, head), bytes(c.cache.width));
        }
    }
}

void check_slots(const KvWrite& c) {
    const Size slots = c.cache.pages * c.cache.page_size;
    for (Size row = 0; row < c.rows; ++row)
        check(c.slots[row] >= 0 && c.slots[row] < slots, "kv_write's slot", c.slots[row], slots);
}

} // namespace

void linear(const Linear& c) {
    Pool::get().run(c.n, chunk_columns(c, 1),
                    [&](Size begin, Size end) { isa().linear(c, begin, end); });
}

void linear_silu_mul(const LinearSiluMul& c) {
    Pool::get().run(c.gate.n, chunk_columns(c.gate, 2), [&](Size begin, Size end) {
        isa().linear(c.gate, begin, end);
        isa().linear(c.up, begin, end);
        Pair columns = c.act;
        columns.a.data += begin;
        columns.b.data += begin;
        columns.y.data += begin;
        columns.extent.width = end - begin;
        isa().silu_mul(columns, 0, columns.extent.rows);
    });
}

void attention(const Attention& c) {
    thread_local std::vector<AttentionTile> tiles; // keeps its memory from call to call
    cut_into_tiles(c, tiles);
    const AttentionTile* first = tiles.data();
    Pool::get().run(static_cast<Size>(tiles.size()), 1, [&](Size begin, Size end) {
        thread_local std::vector<float> scratch;
        scratch.resize(static_cast<std::size_t>(attention_scratch(c)));
        isa().attention(c, first + begin, first + end, scratch.data());
    });
}

Rows rms_norm_rows(const RmsNorm& c) {
    return {[c](Size begin, Size end) { isa().rms_norm(c, begin, end); }, c.extent.rows,
            per_row(c.extent)};
}

Rows add_rows(const Pair& c) {
    return {[c](Size begin, Size end) { isa().add(c, begin, end); }, c.extent.rows,
            per_row(c.extent)};
}

Rows silu_mul_rows(const Pair& c) {
    return {[c](Size begin, Size end) { isa().silu_mul(c, begin, end); }, c.extent.rows,
            per_row(c.extent)};
}

Rows rotary_rows(const Rotary& c) {
    return {[c](Size begin, Size end) { isa().rotary(c, begin, end); }, c.extent.rows,
            per_row(c.extent)};
}

Rows kv_write_rows(const KvWrite& c) {
    return {[c](Size begin, Size end) { write_rows(c, begin, end); }, c.rows,
            2 * c.cache.heads * c.cache.width, [c] { check_slots(c); }};
}

void in_rows(const std::vector<Rows>& calls) {
    if (calls.empty()) return;
    Size cost = 0;
    for (const Rows& call : calls) {
        call.check();
        cost += call.cost;
    }
    Pool::get().run(calls.front().count, chunk_rows(cost), [&](Size begin, Size end) {
        for (const Rows& call : calls)
            call.run(begin, end);
    });
}

void rotary_table(const RotaryTable& c) {
    constexpr Size kCost = 8; // a sine or cosine against an element of the other loops
    over_rows(c, rotary_table_rows, c.rows, 2 * kCost * c.half);
}

void embedding(const Embedding& c) {
    over_rows(c, embedding_rows, c.rows, c.width);
}

} // namespace tskernels::cpu
