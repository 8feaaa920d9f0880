// A request: its tokens, its limits and its state; and the arena that handles name places in.
#pragma once

#include "dispatch.h"
#include "tokens.h"

#include <memory>
#include <vector>

namespace tsscheduler {

inline constexpr std::size_t kCacheLine = 64;

// What each step needs comes first, side by side.
struct alignas(kCacheLine) Request {
    State state;
    Handle handle;
    std::int32_t limit = 0;           // tokens of the prompt, and those to generate at most
    std::int32_t pending = 0;         // tokens being sampled by steps in flight
    std::int32_t steps_in_flight = 0; // uncommitted steps that name it
    Tokens tokens;                    // prompt and committed output
    Order order;
    std::int64_t salt = 0;
    std::int32_t priority = 0;
    bool live = false;
    bool retracted = false;   // has lost its place before
    bool load_failed = false; // computes its prefix at the next admission
    bool forked = false;
    Handle parent; // of a fork: whose tokens it began with

    [[nodiscard]] std::int32_t known() const { return tokens.size(); }

    // Tokens still to be asked for, beyond those in flight.
    [[nodiscard]] std::int32_t remaining() const { return limit - known() - pending; }

    // Tokens that it may still get.
    [[nodiscard]] std::int32_t remaining_to_commit() const { return limit - known(); }

    [[nodiscard]] Residence* home() {
        if (auto* decoding = std::get_if<Decoding>(&state)) return &decoding->home;
        if (auto* prefilling = std::get_if<Prefilling>(&state)) return &prefilling->home;
        return nullptr;
    }

    // Positions of the prompt (or of what is recomputed) that no step computes yet.
    [[nodiscard]] std::int32_t unplanned_prefill() const {
        const auto* prefilling = std::get_if<Prefilling>(&state);
        return prefilling == nullptr ? 0 : prefilling->target - prefilling->home.planned;
    }

    // Requests lie scattered: asking for one ahead of its turn hides the wait.
    void prefetch() const {
        const char* bytes = reinterpret_cast<const char*>(this);
        for (; bytes < reinterpret_cast<const char*>(&order); bytes += kCacheLine)
            __builtin_prefetch(bytes);
    }
};

// Places are reused, generations are not. Addresses of requests are stable.
class Requests {
  public:
    Request& add() {
        std::uint32_t index = 0;
        if (free_.empty()) {
            index = size_++;
            if (index % kChunk == 0) chunks_.push_back(std::make_unique<Request[]>(kChunk));
        } else {
            index = free_.back();
            free_.pop_back();
        }
        Request& request = at(index);
        request.handle = {index, request.handle.generation + 1};
        request.live = true;
        ++live_;
        return request;
    }

    // Null if the handle is stale.
    [[nodiscard]] Request* find(Handle handle) {
        return handle.index < size_ ? current(at(handle.index), handle.generation) : nullptr;
    }

    // Null if the place has had another request since.
    [[nodiscard]] static Request* current(Request& place, std::uint32_t generation) {
        return place.live && place.handle.generation == generation ? &place : nullptr;
    }

    void remove(Request& request) {
        const Handle handle = request.handle;
        request = Request{};
        request.handle = handle;
        free_.push_back(handle.index);
        --live_;
    }

    [[nodiscard]] std::int32_t live() const { return live_; }

    template <class Visit> void for_each(Visit&& visit) {
        for (std::uint32_t index = 0; index < size_; ++index)
            if (at(index).live) visit(at(index));
    }

  private:
    static constexpr std::uint32_t kChunk = 64;

    [[nodiscard]] Request& at(std::uint32_t index) {
        return chunks_[index / kChunk][index % kChunk];
    }

    std::vector<std::unique_ptr<Request[]>> chunks_;
    std::vector<std::uint32_t> free_;
    std::uint32_t size_ = 0; // places there are
    std::int32_t live_ = 0;
};

} // namespace tsscheduler
