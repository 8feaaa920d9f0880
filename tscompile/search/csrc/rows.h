// Rows of numbers, equal ones once, by number.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tssearch {

using Row = std::span<const std::int32_t>;

// A hash table with linear probing.
class Rows {
  public:
    explicit Rows(std::size_t width) : width_(width), table_(64, NONE) {}

    [[nodiscard]] std::size_t size() const { return count_; }

    [[nodiscard]] Row operator[](std::size_t number) const {
        return {numbers_.data() + number * width_, width_};
    }

    // The row's number, and whether it was not there before.
    std::pair<std::size_t, bool> add(Row row);

  private:
    static constexpr std::uint32_t NONE = 0xffffffff;

    [[nodiscard]] std::size_t place(Row row) const;
    void grow();

    std::size_t width_;
    std::size_t count_ = 0;
    std::vector<std::int32_t> numbers_;
    std::vector<std::uint32_t> table_;
};

} // namespace tssearch
