// A growing array of int32 whose memory outlives it for whoever still reads it.
#pragma once

#include "ids.h"

#include <algorithm>
#include <initializer_list>
#include <memory>

namespace tsscheduler {

class Array {
  public:
    Array() { grow(kSmallest); }

    [[nodiscard]] std::size_t size() const { return size_; }

    [[nodiscard]] std::size_t capacity() const { return capacity_; }

    [[nodiscard]] bool empty() const { return size_ == 0; }

    [[nodiscard]] const std::int32_t* begin() const { return data_.get(); }

    [[nodiscard]] const std::int32_t* end() const { return begin() + size_; }

    std::int32_t operator[](std::size_t index) const { return data_[index]; }

    // What keeps the memory; another one stands here after growing beyond the capacity.
    [[nodiscard]] const std::shared_ptr<std::int32_t[]>& memory() const { return data_; }

    // Keeps the memory.
    void clear() { size_ = 0; }

    // Room for `more` items behind the present ones; advance() then counts those written.
    std::int32_t* room(std::size_t more) {
        if (size_ + more > capacity_) grow(size_ + more);
        return data_.get() + size_;
    }

    void advance(std::size_t written) {
        assert(size_ + written <= capacity_);
        size_ += written;
    }

    void push_back(std::int32_t value) {
        *room(1) = value;
        ++size_;
    }

    void append(std::initializer_list<std::int32_t> values) {
        std::ranges::copy(values, room(values.size()));
        size_ += values.size();
    }

  private:
    static constexpr std::size_t kSmallest = 64;

    void grow(std::size_t least) {
        const std::size_t capacity = std::max(least, 2 * capacity_);
        auto data = std::make_shared_for_overwrite<std::int32_t[]>(capacity);
        std::copy(begin(), end(), data.get());
        data_ = std::move(data);
        capacity_ = capacity;
    }

    std::shared_ptr<std::int32_t[]> data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace tsscheduler
