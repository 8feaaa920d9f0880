// Numpy arrays that view the core's buffers, and spans that view numpy's.
#pragma once

#include "scheduler.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace tsscheduler {

using TokenArray = nanobind::ndarray<const std::int32_t, nanobind::ndim<1>, nanobind::c_contig,
                                     nanobind::device::cpu>;
using FlagArray =
    nanobind::ndarray<const bool, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ArrayView = nanobind::ndarray<nanobind::numpy, const std::int32_t>;

inline std::span<const std::int32_t> as_span(const TokenArray& array) {
    return {array.data(), array.size()};
}

inline std::span<const bool> as_span(const FlagArray& array) {
    return {array.data(), array.size()};
}

// [n] int32; `owner` keeps the buffer alive.
inline ArrayView vector_view(nanobind::handle owner, const std::vector<std::int32_t>& data) {
    return ArrayView(data.data(), {data.size()}, owner);
}

// [n, columns] int32
inline ArrayView rows_view(nanobind::handle owner, const std::vector<std::int32_t>& data,
                           std::size_t columns) {
    return ArrayView(data.data(), {data.size() / columns, columns}, owner);
}

} // namespace tsscheduler
