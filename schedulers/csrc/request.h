// A request: its tokens, its limits and its state; and the arena that handles name places in.
#pragma once

#include "dispatch.h"

#include <memory>
#include <span>
#include <vector>

namespace tsscheduler {

struct Request {
    Handle handle;
    Order order;
    std::int64_t salt = 0;
    std::int32_t priority = 0;
    std::int32_t prompt = 0;          // tokens of the prompt
    std::int32_t max_new = 0;         // tokens to generate at most
    std::int32_t pending = 0;         // tokens being sampled by steps in flight
    std::int32_t steps_in_flight = 0; // uncommitted steps that name it
    bool live = false;
    bool retracted = false;   // has lost its place before
    bool load_failed = false; // computes its prefix at the next admission
    bool forked = false;
    Handle parent;               // of a fork: whose tokens it began with
    std::vector<TokenId> tokens; // prompt and committed output
    State state;

    [[nodiscard]] std::int32_t known() const { return to_i32(tokens.size()); }

    // Tokens still to be asked for, beyond those in flight.
    [[nodiscard]] std::int32_t remaining() const { return prompt + max_new - known() - pending; }

    // Tokens that it may still get.
    [[nodiscard]] std::int32_t remaining_to_commit() const { return prompt + max_new - known(); }

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
        for (std::size_t at = 0; at < sizeof(Request); at += 64)
            __builtin_prefetch(bytes + at);
    }

    // Grows by an eighth, since most requests end long before doubling.
    void append(TokenId token) {
        if (tokens.size() == tokens.capacity())
            tokens.reserve(tokens.size() + tokens.size() / 8 + 16);
        tokens.push_back(token);
    }
};

// Places are reused, generations are not. Addresses of requests are stable.
class Requests {
  public:
    Request& add() {
        std::uint32_t index = 0;
        if (free_.empty()) {
            index = static_cast<std::uint32_t>(places_.size());
            places_.push_back(std::make_unique<Request>());
        } else {
            index = free_.back();
            free_.pop_back();
        }
        Request& request = *places_[index];
        request.handle = {index, request.handle.generation + 1};
        request.live = true;
        ++live_;
        return request;
    }

    // Null if the handle is stale.
    [[nodiscard]] Request* find(Handle handle) {
        if (handle.index >= places_.size()) return nullptr;
        Request& request = *places_[handle.index];
        return request.live && request.handle == handle ? &request : nullptr;
    }

    // Requires that there was such a place.
    void prefetch(Handle handle) const { places_[handle.index]->prefetch(); }

    void remove(Request& request) {
        const Handle handle = request.handle;
        request = Request{};
        request.handle = handle;
        free_.push_back(handle.index);
        --live_;
    }

    [[nodiscard]] std::int32_t live() const { return live_; }

    template <class Visit> void for_each(Visit&& visit) {
        for (const auto& request : places_)
            if (request->live) visit(*request);
    }

  private:
    std::vector<std::unique_ptr<Request>> places_;
    std::vector<std::uint32_t> free_;
    std::int32_t live_ = 0;
};

} // namespace tsscheduler
