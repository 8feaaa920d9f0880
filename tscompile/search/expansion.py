"""What a stage's options make of all states before it, without what another option does better."""

from __future__ import annotations

import numpy as np

from tscompile.search.frontier import Frontier
from tscompile.search.graph import Indices, Prices, Times
from tscompile.search.segment import Segment
from tscompile.search.ways import Ways

_AT_ONCE = 1 << 20
"""Numbers in the largest array."""


def expanded(segment: Segment, position: int, ways: Ways, frontier: Frontier) -> Frontier:
    """The states behind `ways`, by way of each option that no other of the same state beats."""
    live, after = segment.live[position], segment.live[position + ways.span]
    held = dict(zip(live, frontier.states.T, strict=True))
    state, option, price = _chosen(segment, ways, after, held, len(frontier))
    states = np.zeros((len(state), len(after)), np.int64)
    requires = dict(zip(ways.inputs, ways.requires, strict=True))
    gives = dict(zip(ways.outputs, ways.gives, strict=True))
    for k, value in enumerate(after):
        if value in gives:
            states[:, k] = segment.stocks[value].produced(gives[value])[option]
        elif value in requires:
            now = held[value][state]
            states[:, k] = segment.stocks[value].used(now, requires[value][option])
        else:
            states[:, k] = held[value][state]
    origins = np.empty((len(state), 4), np.int64)
    origins[:, 0], origins[:, 1] = position, state
    origins[:, 2], origins[:, 3] = ways.batch[option], ways.column[option]
    return Frontier(states, frontier.prices[state] + price, origins)


def _chosen(
    segment: Segment,
    ways: Ways,
    after: tuple[int, ...],
    held: dict[int, Indices],
    count: int,
) -> tuple[Indices, Indices, Prices]:
    """States and options by number, with what the option costs there.

    An option is beaten by one that costs less even when it goes on to give what this one gives, and
    repeats this one's reshards of values that stay live.
    """
    price: Prices = np.repeat(ways.prices[None, :], count, axis=0)
    redo: Times = np.zeros(price.shape)
    for value, requires in zip(ways.inputs, ways.requires, strict=True):
        reach = segment.stocks[value].reach(held[value])[:, requires]
        price += reach
        if value in after:
            redo += reach.real
    if len(ways) == 1:
        return np.arange(count), np.zeros(count, np.int64), price[:, 0]
    state, option = np.nonzero(_instead(price.real, ways.instead) + redo >= price.real)
    return state, option, price[state, option]


def _instead(price: Times, instead: Times) -> Times:
    """[state, option]: the least time in which an option of the state gives what this one gives."""
    states = max(1, _AT_ONCE // instead.size)
    parts = [
        (price[at : at + states, :, None] + instead).min(axis=1)
        for at in range(0, len(price), states)
    ]
    return np.concatenate(parts)
