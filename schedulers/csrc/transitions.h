// Every pair of state and event: a transition, ignored, or rejected. A forgotten one won't compile.
#pragma once

#include "events.h"
#include "states.h"

#include <concepts>
#include <type_traits>

namespace tsscheduler {

enum class Outcome { applied, ignored, rejected };

struct Ignore {
    static constexpr Outcome outcome = Outcome::ignored;
};

struct Reject {
    static constexpr Outcome outcome = Outcome::rejected;
};

// Left undefined: each pair is specialised below. A transition has one of two forms:
//   static Next apply(State&&, Event&&)   consumes the state and makes the next one;
//   static void apply(State&, Event&&)    stays in the state.
template <class State, class Event> struct On;

template <class S, class E>
concept Stays = requires(S& state, E&& event) {
    { On<S, E>::apply(state, std::move(event)) } -> std::same_as<void>;
};

template <class S, class E>
concept Moves = !Stays<S, E> && requires(S&& state, E&& event) {
    On<S, E>::apply(std::move(state), std::move(event));
};

template <class S, class E>
concept Legal = Stays<S, E> || Moves<S, E>;

// Waiting
template <> struct On<Waiting, Admit> {
    static Prefilling apply(Waiting&&, Admit&& event) {
        return {std::move(event.home), event.target};
    }
};

template <> struct On<Waiting, Chunk> : Ignore {}; // of a step that was in flight at retraction

template <> struct On<Waiting, Token> {
    static void apply(Waiting&, Token&&) {}
};

template <> struct On<Waiting, Retract> : Reject {};

template <> struct On<Waiting, Finish> {
    static Finished apply(Waiting&&, Finish&&) { return {}; }
};

template <> struct On<Waiting, Abort> {
    static Finished apply(Waiting&&, Abort&&) { return {}; }
};

// Prefilling
template <> struct On<Prefilling, Admit> : Reject {};

template <> struct On<Prefilling, Chunk> {
    static void apply(Prefilling& state, Chunk&& event) { state.home.committed = event.committed; }
};

template <> struct On<Prefilling, Token> {
    static Decoding apply(Prefilling&& state, Token&& event) {
        state.home.committed = event.committed;
        return {std::move(state.home)};
    }
};

template <> struct On<Prefilling, Retract> {
    static Waiting apply(Prefilling&&, Retract&&) { return {}; }
};

template <> struct On<Prefilling, Finish> {
    static Finished apply(Prefilling&&, Finish&&) { return {}; }
};

template <> struct On<Prefilling, Abort> {
    static Finished apply(Prefilling&&, Abort&&) { return {}; }
};

// Decoding
template <> struct On<Decoding, Admit> : Reject {};

template <> struct On<Decoding, Chunk> : Reject {};

template <> struct On<Decoding, Token> {
    static void apply(Decoding& state, Token&& event) { state.home.committed = event.committed; }
};

template <> struct On<Decoding, Retract> {
    static Waiting apply(Decoding&&, Retract&&) { return {}; }
};

template <> struct On<Decoding, Finish> {
    static Finished apply(Decoding&&, Finish&&) { return {}; }
};

template <> struct On<Decoding, Abort> {
    static Finished apply(Decoding&&, Abort&&) { return {}; }
};

// Finished
template <class E> struct On<Finished, E> : Ignore {};

template <> struct On<Finished, Admit> : Reject {};

template <> struct On<Finished, Retract> : Reject {};

} // namespace tsscheduler
