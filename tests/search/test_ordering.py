"""The order that the search takes against all orders that there are, on drawn operations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tscompile.search.ordering import Order, Wired

Drawn = tuple[tuple[Wired, ...], tuple[int, ...], tuple[int, ...]]
"""Operations; the placements of each value, and its uses behind them."""


def drawn(seed: int) -> Drawn:
    """Up to six operations over two values that enter, each giving at most two."""
    random = Random(seed)
    placements = [random.randint(1, 9) for _ in range(2)]
    wired: list[Wired] = []
    for position in range(random.randint(1, 6)):
        reads = sorted(random.sample(range(len(placements)), random.randint(0, 2)))
        gives = range(len(placements), len(placements) + random.choice((0, 1, 1, 2)))
        placements += [random.randint(1, 9) for _ in gives]
        needs = tuple(random.randint(1, placements[value]) for value in reads)
        joined = bool(position) and random.random() < 0.2
        wired.append(Wired(tuple(reads), tuple(gives), needs, random.randint(1, 9), joined))
    uses = tuple(random.choice((0, 0, 0, 1, 2)) for _ in placements)
    return tuple(wired), tuple(placements), uses


def legal(wired: tuple[Wired, ...]) -> Iterator[tuple[int, ...]]:
    """All orders that give each value before it is read and keep together what is joined."""
    giver = {value: p for p, one in enumerate(wired) for value in one.gives}
    for order in permutations(range(len(wired))):
        place = {position: i for i, position in enumerate(order)}
        fits = all(
            place[giver[value]] < place[position]
            for position, one in enumerate(wired)
            for value in one.reads
            if value in giver
        )
        together = all(
            place[p] == place[p - 1] + 1 for p, one in enumerate(wired) if p and one.joined
        )
        if fits and together:
            yield order


def left(value: int, wired: tuple[Wired, ...], rest: tuple[int, ...]) -> list[int]:
    """In how many placements each of the operations that are left needs a value."""
    pairs = ((v, n) for p in rest for v, n in zip(wired[p].reads, wired[p].placements, strict=True))
    return [count for reads, count in pairs if reads == value]


def there(wired: tuple[Wired, ...], values: int, rest: tuple[int, ...]) -> list[int]:
    return [v for v in range(values) if not any(v in wired[p].gives for p in rest)]


def met(case: Drawn, order: tuple[int, ...]) -> int:
    """The states before each task, each with each of its options."""
    wired, placements, uses = case
    total = states = 0
    for start, position in enumerate(order):
        rest = order[start:]
        if not (position and wired[position].joined):
            choices: list[int] = []
            for value in there(wired, len(placements), rest):
                needs = left(value, wired, rest)
                if uses[value] or len(needs) > 1:
                    choices.append(placements[value])
                elif needs:
                    choices.append(needs[0])
            states = prod(choices)
        total += states * wired[position].options
    return total


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_order_meets_fewer_states(seed: int) -> None:
    case = drawn(seed)
    order = Order(*case).positions
    orders = list(legal(case[0]))
    assert order in orders
    assert met(case, order) == min(met(case, one) for one in orders)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_values_live_from_where_they_are_given_to_their_last_use(seed: int) -> None:
    wired, placements, uses = case = drawn(seed)
    order = Order(*case)
    for start in range(len(wired) + 1):
        rest = order.positions[start:]
        counts = {
            value: uses[value] + len(left(value, wired, rest))
            for value in there(wired, len(placements), rest)
        }
        assert order.live(start) == [value for value, count in counts.items() if count]
        assert order.once(start) == [value for value, count in counts.items() if count == 1]


@pytest.mark.parametrize("joined", [False, True])
def test_of_two_chains_one_is_ended_before_the_other_begins(joined: bool) -> None:
    """Each from the value that enters to one that is read twice; one kernel may do both."""
    begin = Wired((0,), (1,), (2,)), Wired((0,), (2,), (2,), joined=joined)
    end = tuple(Wired((value,), (), (9,)) for value in (1, 1, 2, 2))
    order = Order((*begin, *end), (9, 9, 9), (0, 0, 0)).positions
    assert order == ((0, 1, 2, 3, 4, 5) if joined else (0, 2, 3, 1, 4, 5))
