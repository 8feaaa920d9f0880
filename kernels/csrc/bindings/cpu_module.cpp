// Python binding: each function binds one call to raw pointers and returns a callable for it.
#include "cpu/isa.h"
#include "cpu/launch.h"
#include "cpu/pool.h"

#include <functional>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nanobind::literals;
using namespace tskernels::cpu;

namespace {

using Address = std::uintptr_t;
using Strides = std::array<Size, 2>; // of rows and heads
using Shape = std::array<Size, 3>;   // rows, heads, width

// A bound call. It owns nothing: `keep` holds the tensors whose memory it names. `rows` is there
// for calls that `in_rows` can join.
struct Kernel {
    std::function<void()> run;
    nb::object keep;
    std::optional<Rows> rows;
};

template <class Call> Kernel bound(const Call& call, void (*run)(const Call&), nb::object keep) {
    return {[call, run] { run(call); }, std::move(keep), std::nullopt};
}

Kernel bound(const Rows& rows, nb::object keep) {
    return {[calls = std::vector{rows}] { in_rows(calls); }, std::move(keep), rows};
}

Kernel joined(const nb::args& parts) {
    std::vector<Rows> calls;
    for (const nb::handle part : parts) {
        const auto& kernel = nb::cast<const Kernel&>(part);
        if (!kernel.rows) throw std::invalid_argument("in_rows takes kernels that work by rows");
        calls.push_back(*kernel.rows);
        if (calls.back().count != calls.front().count)
            throw std::invalid_argument("in_rows takes kernels of equally many rows");
    }
    return {[calls] { in_rows(calls); }, nb::object(parts), std::nullopt};
}

template <class T> T* pointer(Address address) {
    return reinterpret_cast<T*>(address);
}

Input input(Address address, const Strides& strides) {
    return {pointer<const float>(address), strides[0], strides[1]};
}

Output output(Address address, const Strides& strides) {
    return {pointer<float>(address), strides[0], strides[1]};
}

Extent extent(const Shape& shape) {
    return {shape[0], shape[1], shape[2]};
}

Cache cache(Address address, const std::array<Size, 4>& shape) {
    return {pointer<float>(address), shape[0], shape[1], shape[2], shape[3]};
}

Linear linear_call(Address x, Size x_stride, Address weight, Size weight_stride, Address bias,
                   Address y, Size y_stride, const Shape& shape) {
    return {pointer<const float>(x),
            x_stride,
            pointer<const float>(weight),
            weight_stride,
            pointer<const float>(bias),
            pointer<float>(y),
            y_stride,
            shape[0],
            shape[1],
            shape[2]};
}

void bind_calls(nb::module_& m) {
    m.def(
        "linear",
        [](Address x, Size x_stride, Address weight, Size weight_stride, Address bias, Address y,
           Size y_stride, const Shape& shape, nb::object keep) {
            const Linear call =
                linear_call(x, x_stride, weight, weight_stride, bias, y, y_stride, shape);
            return bound(call, linear, std::move(keep));
        },
        "x"_a, "x_stride"_a, "weight"_a, "weight_stride"_a, "bias"_a, "y"_a, "y_stride"_a,
        "shape"_a, "keep"_a);
    m.def(
        "linear_silu_mul",
        [](Address x, Size x_stride, Address weight, Size weight_stride, Address bias, Address both,
           Address y, Size y_stride, const Shape& shape, nb::object keep) {
            const auto [rows, width, k] = shape;
            const auto half = static_cast<Address>(width) * sizeof(float);
            const Linear gate =
                linear_call(x, x_stride, weight, weight_stride, bias, both, 2 * width, shape);
            const Linear up = linear_call(
                x, x_stride, weight + half * static_cast<Address>(weight_stride), weight_stride,
                bias == 0 ? 0 : bias + half, both + half, 2 * width, shape);
            const Pair act{input(both, {2 * width, 0}), input(both + half, {2 * width, 0}),
                           output(y, {y_stride, 0}), Extent{rows, 1, width}};
            return bound(LinearSiluMul{gate, up, act}, linear_silu_mul, std::move(keep));
        },
        "x"_a, "x_stride"_a, "weight"_a, "weight_stride"_a, "bias"_a, "both"_a, "y"_a, "y_stride"_a,
        "shape"_a, "keep"_a);
    m.def(
        "attention",
        [](Address query, const Strides& query_strides, Address y, const Strides& y_strides,
           const Shape& shape, Address pages, const std::array<Size, 4>& cache_shape,
           Address block_table, Address seq_lens, Address query_starts,
           const std::array<Size, 2>& table_shape, double scale, Size window, nb::object keep) {
            const Attention call{input(query, query_strides),
                                 output(y, y_strides),
                                 extent(shape),
                                 cache(pages, cache_shape),
                                 pointer<const std::int32_t>(block_table),
                                 pointer<const std::int32_t>(seq_lens),
                                 pointer<const std::int32_t>(query_starts),
                                 table_shape[0],
                                 table_shape[1],
                                 static_cast<float>(scale),
                                 window};
            return bound(call, attention, std::move(keep));
        },
        "query"_a, "query_strides"_a, "y"_a, "y_strides"_a, "shape"_a, "cache"_a, "cache_shape"_a,
        "block_table"_a, "seq_lens"_a, "query_starts"_a, "table_shape"_a, "scale"_a, "window"_a,
        "keep"_a);
    m.def(
        "kv_write",
        [](Address key, const Strides& key_strides, Address value, const Strides& value_strides,
           Size rows, Address pages, const std::array<Size, 4>& cache_shape, Address slots,
           nb::object keep) {
            const KvWrite call{input(key, key_strides), input(value, value_strides), rows,
                               cache(pages, cache_shape), pointer<const std::int32_t>(slots)};
            return bound(kv_write_rows(call), std::move(keep));
        },
        "key"_a, "key_strides"_a, "value"_a, "value_strides"_a, "rows"_a, "cache"_a,
        "cache_shape"_a, "slots"_a, "keep"_a);
    m.def(
        "embedding",
        [](Address ids, Address weight, Size weight_stride, Size vocab, Size vocab_start, Address y,
           Size y_stride, Size rows, Size width, nb::object keep) {
            const Embedding call{pointer<const std::int32_t>(ids),
                                 pointer<const float>(weight),
                                 weight_stride,
                                 vocab,
                                 vocab_start,
                                 pointer<float>(y),
                                 y_stride,
                                 rows,
                                 width};
            return bound(call, embedding, std::move(keep));
        },
        "ids"_a, "weight"_a, "weight_stride"_a, "vocab"_a, "vocab_start"_a, "y"_a, "y_stride"_a,
        "rows"_a, "width"_a, "keep"_a);
}

void bind_row_calls(nb::module_& m) {
    m.def(
        "rms_norm",
        [](Address x, const Strides& x_strides, Address weight, Address y, const Strides& y_strides,
           const Shape& shape, double eps, nb::object keep) {
            const RmsNorm call{input(x, x_strides), pointer<const float>(weight),
                               output(y, y_strides), extent(shape), static_cast<float>(eps)};
            return bound(rms_norm_rows(call), std::move(keep));
        },
        "x"_a, "x_strides"_a, "weight"_a, "y"_a, "y_strides"_a, "shape"_a, "eps"_a, "keep"_a);
    const auto pair = [&m](const char* name, Rows (*rows)(const Pair&)) {
        m.def(
            name,
            [rows](Address a, const Strides& a_strides, Address b, const Strides& b_strides,
                   Address y, const Strides& y_strides, const Shape& shape, nb::object keep) {
                const Pair call{input(a, a_strides), input(b, b_strides), output(y, y_strides),
                                extent(shape)};
                return bound(rows(call), std::move(keep));
            },
            "a"_a, "a_strides"_a, "b"_a, "b_strides"_a, "y"_a, "y_strides"_a, "shape"_a, "keep"_a);
    };
    pair("add", add_rows);
    pair("silu_mul", silu_mul_rows);
    m.def(
        "rotary",
        [](Address x, const Strides& x_strides, Address table, Size table_stride, Size half,
           Address y, const Strides& y_strides, const Shape& shape, nb::object keep) {
            const Rotary call{input(x, x_strides),  pointer<const float>(table),
                              table_stride,         half,
                              output(y, y_strides), extent(shape)};
            return bound(rotary_rows(call), std::move(keep));
        },
        "x"_a, "x_strides"_a, "table"_a, "table_stride"_a, "half"_a, "y"_a, "y_strides"_a,
        "shape"_a, "keep"_a);
    m.def(
        "rotary_table",
        [](Address positions, Address inv_freq, Size rows, Size half, double scale, Address y,
           Size y_stride, nb::object keep) {
            const RotaryTable call{pointer<const std::int32_t>(positions),
                                   pointer<const float>(inv_freq),
                                   rows,
                                   half,
                                   static_cast<float>(scale),
                                   pointer<float>(y),
                                   y_stride};
            return bound(call, rotary_table, std::move(keep));
        },
        "positions"_a, "inv_freq"_a, "rows"_a, "half"_a, "scale"_a, "y"_a, "y_stride"_a, "keep"_a);
}

} // namespace

NB_MODULE(_cpu, m) {
    m.doc() = "Native float32 CPU kernels.";
    nb::set_leak_warnings(false); // bound kernels may live as long as the interpreter
    nb::class_<Kernel>(m, "Kernel").def("__call__", [](const Kernel& kernel) { kernel.run(); });
    bind_calls(m);
    bind_row_calls(m);
    m.def("in_rows", joined);
    m.def(
        "set_num_threads",
        [](int threads) {
            if (threads < 1) throw std::invalid_argument("a pool has at least one thread");
            Pool::get().resize(threads);
        },
        "threads"_a);
    m.def("num_threads", [] { return Pool::get().size(); });
    m.def("isa", [] { return std::string(isa().name); });
    m.def(
        "use_isa",
        [](const std::string& name) {
            if (!use_isa(name.c_str())) throw std::invalid_argument("no instruction set " + name);
        },
        "name"_a);
}
