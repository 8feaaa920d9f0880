// A request's tokens: the prompt and the committed output.
#pragma once

#include "ids.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace tsscheduler {

// The newest tokens stand in a small array within the request, so that a step touches no memory
// whose place depends on the context; they move behind the others when somebody reads those.
class Tokens {
  public:
    // `more` may follow; there is room for as many as it takes to make growing rare.
    void assign(std::span<const TokenId> tokens, std::int32_t more) {
        older_.clear();
        older_.reserve(tokens.size() + static_cast<std::size_t>(std::min(more, kRoom)));
        older_.assign(tokens.begin(), tokens.end());
        size_ = to_i32(tokens.size());
        newest_count_ = 0;
    }

    [[nodiscard]] std::int32_t size() const { return size_; }

    [[nodiscard]] TokenId operator[](std::int32_t index) const {
        const std::int32_t older = size_ - newest_count_;
        return index < older ? older_[index] : newest_[index - older];
    }

    void append(TokenId token) {
        if (newest_count_ == kNewest) gather();
        newest_[newest_count_++] = token;
        ++size_;
    }

    // Asks for the memory that gathering writes.
    void prefetch() const { __builtin_prefetch(older_.data() + older_.size(), 1); }

    // All of them, in one piece.
    [[nodiscard]] std::span<const TokenId> all() const {
        gather();
        return older_;
    }

  private:
    static constexpr std::int32_t kNewest = 16;
    static constexpr std::int32_t kRoom = 4096; // memory that nobody writes costs nothing

    // Grows by an eighth, since doubling would mostly be for nothing.
    void gather() const {
        const auto size = static_cast<std::size_t>(size_);
        if (older_.capacity() < size) older_.reserve(size + size / 8 + kNewest);
        older_.insert(older_.end(), newest_.begin(), newest_.begin() + newest_count_);
        newest_count_ = 0;
    }

    // Moving tokens from one to the other changes nothing that can be seen.
    std::int32_t size_ = 0;
    mutable std::int32_t newest_count_ = 0;
    mutable std::array<TokenId, kNewest> newest_{};
    mutable std::vector<TokenId> older_;
};

} // namespace tsscheduler
