// Spans that view numpy's memory, and numpy arrays that view the core's.
#pragma once

#include "scheduler.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace tsscheduler {

using TokenArray = nanobind::ndarray<const std::int32_t, nanobind::ndim<1>, nanobind::c_contig,
                                     nanobind::device::cpu>;
using FlagArray =
    nanobind::ndarray<const bool, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline std::span<const std::int32_t> as_span(const TokenArray& array) {
    return {array.data(), array.size()};
}

inline std::span<const bool> as_span(const FlagArray& array) {
    return {array.data(), array.size()};
}

// An array of the core as numpy's: [n] for one column, else [n, columns], read only. To make an
// array of numpy's costs more than to plan many a request, so one of the whole memory is kept and
// sliced, and the last slice is kept too.
class Window {
  public:
    nanobind::object view(const Array& array, std::size_t columns) {
        const bool moved = array.memory() != memory_;
        if (moved) look_at(array, columns);
        const std::size_t rows = array.size() / columns;
        if (moved || rows != rows_) {
            rows_ = rows;
            slice_ =
                whole_[nanobind::slice(nanobind::int_(0), nanobind::int_(rows), nanobind::none())];
        }
        return slice_;
    }

    // Whether somebody else refers to what was given out. A view of a slice refers to the whole.
    [[nodiscard]] bool held() const {
        return whole_.is_valid() && (Py_REFCNT(slice_.ptr()) > 1 || Py_REFCNT(whole_.ptr()) > 2);
    }

  private:
    using Memory = std::shared_ptr<std::int32_t[]>;

    void look_at(const Array& array, std::size_t columns) {
        memory_ = array.memory();
        const nanobind::capsule owner(new Memory(memory_), [](void* memory) noexcept {
            delete static_cast<Memory*>(memory);
        });
        const std::size_t shape[] = {array.capacity() / columns, columns};
        const nanobind::ndarray<nanobind::numpy, const std::int32_t> all(
            memory_.get(), columns == 1 ? 1 : 2, shape, owner);
        whole_ = nanobind::cast(all);
    }

    Memory memory_;
    std::size_t rows_ = 0;
    nanobind::object whole_;
    nanobind::object slice_;
};

} // namespace tsscheduler
