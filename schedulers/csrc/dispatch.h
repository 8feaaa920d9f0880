// Applying events: `transition` where the state is known, `dispatch` at the boundary.
#pragma once

#include "transitions.h"

#include <type_traits>

namespace tsscheduler {

template <class... T> struct Types {};

template <class T> struct AlternativesOf;

template <class... S> struct AlternativesOf<std::variant<S...>> {
    using types = Types<S...>;
};

using AllStates = AlternativesOf<State>::types;
using AllEvents = Types<Admit, LoadDone, LoadFailed, Chunk, Token, Retract, StoreDone, StoreFailed,
                        Finish, Abort>;

// sizeof of an undefined On stops the compiler and names the pair.
template <class S, class... E> consteval bool classified_for(Types<E...>) {
    return ((sizeof(On<S, E>) > 0) && ...);
}

template <class... S, class Events> consteval bool classified(Types<S...>, Events events) {
    return (classified_for<S>(events) && ...);
}

static_assert(classified(AllStates{}, AllEvents{}));

// Only legal transitions can be named; a state or event that was not moved in cannot be consumed.
template <class S, class E>
    requires(!std::is_reference_v<S> && Moves<S, E>)
auto transition(S&& state, E&& event) {
    return On<S, E>::apply(std::move(state), std::move(event));
}

template <class S, class E>
    requires Stays<S, E>
void transition(S& state, E&& event) {
    On<S, E>::apply(state, std::move(event));
}

template <class Next> void assume(State& state, Next&& next) {
    state = std::forward<Next>(next);
}

template <class... Next> void assume(State& state, std::variant<Next...>&& next) {
    std::visit([&state](auto&& one) { state = std::move(one); }, std::move(next));
}

// Total over all states, and never throws. What is not applied changes nothing.
template <class E> Outcome dispatch(State& state, E event) noexcept {
    return std::visit(
        [&]<class S>(S& current) {
            if constexpr (Moves<S, E>) {
                assume(state, transition(std::move(current), std::move(event)));
                return Outcome::applied;
            } else if constexpr (Stays<S, E>) {
                transition(current, std::move(event));
                return Outcome::applied;
            } else {
                return On<S, E>::outcome;
            }
        },
        state);
}

} // namespace tsscheduler
