// The table is at most half full.
#include "rows.h"

#include <algorithm>

namespace tssearch {

namespace {

// Finalizer of MurmurHash3 over each number in turn.
std::size_t hash(Row row) {
    std::uint64_t mixed = row.size();
    for (const std::int32_t number : row) {
        mixed ^= static_cast<std::uint32_t>(number);
        mixed *= 0xff51afd7ed558ccdU;
        mixed ^= mixed >> 33U;
    }
    return mixed;
}

} // namespace

std::pair<std::size_t, bool> Rows::add(Row row) {
    std::size_t found = place(row);
    if (table_[found] != NONE) return {table_[found], false};
    if (2 * (count_ + 1) > table_.size()) {
        grow();
        found = place(row);
    }
    numbers_.insert(numbers_.end(), row.begin(), row.end());
    table_[found] = static_cast<std::uint32_t>(count_);
    return {count_++, true};
}

std::size_t Rows::place(Row row) const {
    std::size_t found = hash(row) & (table_.size() - 1);
    while (table_[found] != NONE && !std::ranges::equal((*this)[table_[found]], row))
        found = (found + 1) & (table_.size() - 1);
    return found;
}

void Rows::grow() {
    table_.assign(2 * table_.size(), NONE);
    for (std::size_t number = 0; number < count_; ++number)
        table_[place((*this)[number])] = static_cast<std::uint32_t>(number);
}

} // namespace tssearch
