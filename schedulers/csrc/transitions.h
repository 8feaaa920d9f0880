// Every pair of state and event: a transition, ignored, or rejected. A forgotten one won't compile.
// (`RemoteFill` and `Handoff`, for prefill and decode on different machines, will be a state like
// Loading and one like Storing: a ticket whose other end is a peer.)
#pragma once

#include "events.h"

#include <concepts>
#include <utility>

namespace tsscheduler {

enum class Outcome { applied, ignored, rejected };

struct Ignore {
    static constexpr Outcome outcome = Outcome::ignored;
};

struct Reject {
    static constexpr Outcome outcome = Outcome::rejected;
};

// Left undefined: each pair is specialised below. A transition has one of two forms:
//   static Next apply(State&&, Event&&)   consumes the state and makes the next
//   one; static void apply(State&, Event&&)    stays in the state.
template <class State, class Event> struct On;

template <class S, class E>
concept Stays = requires(S& state, E&& event) {
    { On<S, E>::apply(state, std::move(event)) } -> std::same_as<void>;
};

template <class S, class E>
concept Moves = !Stays<S, E> && requires(S&& state, E&& event) {
    On<S, E>::apply(std::move(state), std::move(event));
};

// Drops everything that the state owns.
template <class S, class E> struct Ends {
    static Finished apply(S&&, E&&) { return {}; }
};

template <class S> struct Retracts {
    static std::variant<Storing, Waiting> apply(S&&, Retract&& event) {
        if (event.store) return Storing{*event.store};
        return Waiting{};
    }
};

// Waiting: tokens and chunks are those of a step that was in flight at retraction.
template <> struct On<Waiting, Admit> {
    static std::variant<Loading, Prefilling> apply(Waiting&&, Admit&& event) {
        if (event.load)
            return Loading{std::move(event.home), event.load->ticket, event.load->loaded,
                           event.target};
        return Prefilling{std::move(event.home), event.target};
    }
};

template <> struct On<Waiting, Token> {
    static void apply(Waiting&, Token&&) {}
};

template <> struct On<Waiting, Finish> : Ends<Waiting, Finish> {};

template <> struct On<Waiting, Abort> : Ends<Waiting, Abort> {};

template <> struct On<Waiting, Chunk> : Ignore {};

template <> struct On<Waiting, LoadDone> : Reject {};

template <> struct On<Waiting, LoadFailed> : Reject {};

template <> struct On<Waiting, Retract> : Reject {};

template <> struct On<Waiting, StoreDone> : Reject {};

template <> struct On<Waiting, StoreFailed> : Reject {};

// Loading
template <> struct On<Loading, LoadDone> {
    static Prefilling apply(Loading&& state, LoadDone&& event) {
        for (std::int32_t g = 0; g < state.home.tables.count(); ++g)
            state.home.tables[g].append(std::move(event.pages[g]));
        state.home.planned = state.home.committed = state.loaded;
        return {std::move(state.home), state.target};
    }
};

template <> struct On<Loading, LoadFailed> {
    static Waiting apply(Loading&&, LoadFailed&&) { return {}; }
};

template <> struct On<Loading, Abort> : Ends<Loading, Abort> {};

template <> struct On<Loading, Admit> : Reject {};

template <> struct On<Loading, Chunk> : Reject {};

template <> struct On<Loading, Token> : Reject {};

template <> struct On<Loading, Retract> : Reject {};

template <> struct On<Loading, StoreDone> : Reject {};

template <> struct On<Loading, StoreFailed> : Reject {};

template <> struct On<Loading, Finish> : Reject {};

// Prefilling
template <> struct On<Prefilling, Chunk> {
    static void apply(Prefilling& state, Chunk&& event) { state.home.committed = event.committed; }
};

template <> struct On<Prefilling, Token> {
    static Decoding apply(Prefilling&& state, Token&& event) {
        state.home.committed = event.committed;
        return {std::move(state.home)};
    }
};

template <> struct On<Prefilling, Retract> : Retracts<Prefilling> {};

template <> struct On<Prefilling, Finish> : Ends<Prefilling, Finish> {};

template <> struct On<Prefilling, Abort> : Ends<Prefilling, Abort> {};

template <> struct On<Prefilling, Admit> : Reject {};

template <> struct On<Prefilling, LoadDone> : Reject {};

template <> struct On<Prefilling, LoadFailed> : Reject {};

template <> struct On<Prefilling, StoreDone> : Reject {};

template <> struct On<Prefilling, StoreFailed> : Reject {};

// Decoding
template <> struct On<Decoding, Token> {
    static void apply(Decoding& state, Token&& event) { state.home.committed = event.committed; }
};

template <> struct On<Decoding, Retract> : Retracts<Decoding> {};

template <> struct On<Decoding, Finish> : Ends<Decoding, Finish> {};

template <> struct On<Decoding, Abort> : Ends<Decoding, Abort> {};

template <> struct On<Decoding, Admit> : Reject {};

template <> struct On<Decoding, LoadDone> : Reject {};

template <> struct On<Decoding, LoadFailed> : Reject {};

template <> struct On<Decoding, Chunk> : Reject {};

template <> struct On<Decoding, StoreDone> : Reject {};

template <> struct On<Decoding, StoreFailed> : Reject {};

// Storing: the transfer list keeps the ticket until it is acknowledged.
template <> struct On<Storing, StoreDone> {
    static Waiting apply(Storing&&, StoreDone&&) { return {}; }
};

template <> struct On<Storing, StoreFailed> {
    static Waiting apply(Storing&&, StoreFailed&&) { return {}; }
};

template <> struct On<Storing, Token> {
    static void apply(Storing&, Token&&) {}
};

template <> struct On<Storing, Finish> : Ends<Storing, Finish> {};

template <> struct On<Storing, Abort> : Ends<Storing, Abort> {};

template <> struct On<Storing, Chunk> : Ignore {};

template <> struct On<Storing, Admit> : Reject {};

template <> struct On<Storing, LoadDone> : Reject {};

template <> struct On<Storing, LoadFailed> : Reject {};

template <> struct On<Storing, Retract> : Reject {};

// Finished: whatever is late is ignored; nothing begins.
template <> struct On<Finished, LoadDone> : Ignore {};

template <> struct On<Finished, LoadFailed> : Ignore {};

template <> struct On<Finished, Chunk> : Ignore {};

template <> struct On<Finished, Token> : Ignore {};

template <> struct On<Finished, StoreDone> : Ignore {};

template <> struct On<Finished, StoreFailed> : Ignore {};

template <> struct On<Finished, Finish> : Ignore {};

template <> struct On<Finished, Abort> : Ignore {};

template <> struct On<Finished, Admit> : Reject {};

template <> struct On<Finished, Retract> : Reject {};

} // namespace tsscheduler
