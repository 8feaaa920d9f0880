// Applying events: `transition` where the state is known, `dispatch` at the boundary.
#pragma once

#include "transitions.h"

#include <utility>

namespace tsscheduler {

template <class... T> struct Types {};

using AllEvents = Types<Admit, Chunk, Token, Retract, Finish, Abort>;

template <class T> struct Alternatives;

template <class... S> struct Alternatives<std::variant<S...>> {
    using types = Types<S...>;
};

using AllStates = Alternatives<State>::types;

// Every pair is classified; sizeof of an undefined On stops the compiler and names the pair.
template <class S, class... E> constexpr bool classified_for(Types<E...>) {
    return ((sizeof(On<S, E>) > 0) && ...);
}

template <class... S, class Events> constexpr bool classified(Types<S...>, Events events) {
    return (classified_for<S>(events) && ...);
}

static_assert(classified(AllStates{}, AllEvents{}));

// Only legal transitions can be named.
template <class S, class E>
    requires Moves<S, E>
auto transition(S&& state, E&& event) {
    return On<S, E>::apply(std::move(state), std::move(event));
}

template <class S, class E>
    requires Stays<S, E>
void transition(S& state, E&& event) {
    On<S, E>::apply(state, std::move(event));
}

namespace detail {

template <class Next> void assign(State& state, Next&& next) {
    state = std::move(next);
}

template <class... Next> void assign(State& state, std::variant<Next...>&& next) {
    std::visit([&state](auto&& one) { state = std::move(one); }, std::move(next));
}

} // namespace detail

// Total over all states; never throws. What is not applied changes nothing.
template <class E> Outcome dispatch(State& state, E event) noexcept {
    return std::visit(
        [&]<class S>(S& current) {
            if constexpr (Moves<S, E>) {
                detail::assign(state, transition(std::move(current), std::move(event)));
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
