"""The search's core against an enumeration of all runs, on drawn programs over drawn steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tscompile.search._core import Explored, Options, Segment, States, Stock, Trees

Price: TypeAlias = tuple[int, int]
Run: TypeAlias = tuple[tuple[int, int, int], ...]
"""Positions, what is taken of each one's stage, and by which option."""

PLACEMENTS = range(4)


def plus(*prices: Price) -> Price:
    return sum(time for time, _ in prices), sum(rest for _, rest in prices)


def numbers(prices: list[Price]) -> NDArray[np.complex128]:
    return np.array([complex(*price) for price in prices], np.complex128)


def draw_price(random: Random) -> Price:
    """Few times, so that many are equal."""
    return random.randint(1, 6), random.randint(0, 5)


@dataclass(frozen=True, eq=False)
class Graph:
    """Steps between placements; a ring, so that all are reached, and some more."""

    steps: Mapping[tuple[int, int], Price]

    @staticmethod
    def drawn(random: Random) -> Graph:
        ring = {(p, (p + 1) % len(PLACEMENTS)) for p in PLACEMENTS}
        more = {pair for pair in itertools.permutations(PLACEMENTS, 2) if random.random() < 0.4}
        return Graph({pair: draw_price(random) for pair in sorted(ring | more)})

    def trees(self) -> Trees:
        pairs = np.array(list(self.steps), np.int64)
        return Trees(len(PLACEMENTS), pairs[:, 0], pairs[:, 1], numbers([*self.steps.values()]))


@lru_cache(maxsize=4096)
def span(graph: Graph, root: int, used: frozenset[int]) -> Price:
    """The cheapest tree, of all that there are: a step into each placement that it has."""
    found: list[Price] = []
    others = [p for p in PLACEMENTS if p != root]
    for sources in itertools.product((None, *PLACEMENTS), repeat=len(others)):
        into = {p: s for p, s in zip(others, sources, strict=True) if s is not None}
        if used - {root} <= into.keys() and is_tree(graph, root, into):
            found.append(plus(*(graph.steps[s, p] for p, s in into.items())))
    return min(found)


def is_tree(graph: Graph, root: int, into: Mapping[int, int]) -> bool:
    if not all((source, place) in graph.steps for place, source in into.items()):
        return False
    reached = {root}
    for _ in into:
        reached |= {place for place, source in into.items() if source in reached}
    return into.keys() <= reached


@dataclass(frozen=True)
class Taken:
    """Operations from a position on, with options: what each reads and gives where, and costs."""

    span: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: tuple[tuple[tuple[int, ...], tuple[int, ...], Price], ...]

    @staticmethod
    def drawn(random: Random, span: int, inputs: set[int], outputs: range) -> Taken:
        def places(count: int) -> tuple[int, ...]:
            return tuple(random.choice(PLACEMENTS) for _ in range(count))

        return Taken(
            span,
            tuple(sorted(inputs)),
            tuple(outputs),
            tuple(
                (places(len(inputs)), places(len(outputs)), draw_price(random))
                for _ in range(random.randint(1, 3))
            ),
        )

    def numbered(self, number: Mapping[int, int]) -> Options:
        def rows(side: int, count: int) -> NDArray[np.int64]:
            columns = [option[side] for option in self.options]
            return np.array(columns, np.int64).reshape(len(columns), count).T

        return Options(
            self.span,
            [number[v] for v in self.inputs],
            [number[v] for v in self.outputs],
            rows(0, len(self.inputs)),
            rows(1, len(self.outputs)),
            numbers([price for *_, price in self.options]),
        )


@dataclass(frozen=True)
class Drawn:
    """Value 0 is given at placement 0; operation i reads value i and others, and gives i + 1."""

    graphs: tuple[Graph, ...]
    reads: tuple[frozenset[int], ...]
    stages: tuple[tuple[Taken, ...], ...]
    cuts: tuple[int, ...]

    @staticmethod
    def of(seed: int) -> Drawn:
        random = Random(seed)
        count, often = random.randint(1, 5), random.random()
        reads = [{i, *(v for v in range(i) if random.random() < often)} for i in range(count)]
        cuts = sorted(random.sample(range(1, count), random.randint(0, min(2, count - 1))))
        bounds = (0, *cuts, count)
        stages: list[tuple[Taken, ...]] = []
        for i in range(count):
            stage = [Taken.drawn(random, 1, reads[i], range(i + 1, i + 2))]
            if i + 2 <= min(b for b in bounds if b > i) and random.random() < 0.6:
                both = (reads[i] | reads[i + 1]) - {i + 1}
                stage.append(Taken.drawn(random, 2, both, range(i + 1, i + 3)))
            stages.append(tuple(stage))
        graphs = tuple(Graph.drawn(random) for _ in range(count + 1))
        return Drawn(graphs, tuple(map(frozenset, reads)), tuple(stages), bounds)

    @staticmethod
    def of_one_value(seed: int) -> Drawn:
        """Up to five operations that read value 0 and nothing else."""
        random = Random(seed)
        count = random.randint(3, 5)
        pairs = [p for p in itertools.permutations(PLACEMENTS, 2) if random.random() < 0.5]
        ring = [(p, (p + 1) % len(PLACEMENTS)) for p in PLACEMENTS]
        graph = Graph({pair: (random.randint(2, 3), 0) for pair in sorted({*pairs, *ring})})
        stages = tuple((Taken.drawn(random, 1, {0}, range(0)),) for _ in range(count))
        return Drawn((graph,), (frozenset({0}),) * count, stages, (0, count))

    def runs(self, position: int = 0) -> Iterator[Run]:
        """All ways through from a position on."""
        if position == len(self.stages):
            yield ()
            return
        for number, taken in enumerate(self.stages[position]):
            for rest in self.runs(position + taken.span):
                for option in range(len(taken.options)):
                    yield ((position, number, option), *rest)

    def price(self, run: Run) -> Price:
        """What a run costs with the cheapest tree of each value."""
        produced, used, prices = {0: 0}, dict[int, set[int]](), list[Price]()
        for position, number, option in run:
            taken = self.stages[position][number]
            requires, gives, price = taken.options[option]
            prices.append(price)
            for value, place in zip(taken.inputs, requires, strict=True):
                used.setdefault(value, set()).add(place)
            produced.update(zip(taken.outputs, gives, strict=True))
        spans = [span(self.graphs[v], produced[v], frozenset(u)) for v, u in used.items()]
        return plus(*prices, *spans)

    def readers(self, value: int, start: int) -> list[int]:
        return [i for i in range(start, len(self.reads)) if value in self.reads[i]]

    def segments(self, stocks: list[Stock]) -> Iterator[tuple[int, Segment]]:
        """Where each starts, and the segment."""
        for start, end in itertools.pairwise(self.cuts):
            entering = [v for v in range(start + 1) if self.readers(v, start)]
            names = [*entering, *range(start + 1, min(end + 1, len(self.graphs)))]
            number = {value: i for i, value in enumerate(names)}
            live, once = list[list[int]](), list[list[int]]()
            for p in range(start, end + 1):
                now = [v for v in names if v <= p and self.readers(v, p)]
                live.append([number[v] for v in now])
                once.append([number[v] for v in now if len(self.readers(v, p)) == 1])
            stages = [[t.numbered(number) for t in stage] for stage in self.stages[start:end]]
            yield start, Segment([stocks[v] for v in names], live, once, stages)


def explored(drawn: Drawn) -> tuple[Price, Run]:
    """The least price by the core, and the run that it tells."""
    stocks = [Stock(graph.trees()) for graph in drawn.graphs]
    states, total = States([stocks[0].start(0)]), 0j
    passages: list[tuple[int, States, Explored]] = []
    for start, segment in drawn.segments(stocks):
        found = segment.explore(states)
        assert segment.explore(states) is found
        passages.append((start, states, found))
        states, total = found.exit, total + found.least
    assert len(states) == 1, "nothing is live any more"
    exit_: tuple[int, ...] = states.held(0)
    run: Run = ()
    for start, before, found in reversed(passages):
        row, origins = found.passage(exit_)
        exit_ = before.held(row)
        run = (*((start + position, n, option) for position, n, option in origins), *run)
    return (int(total.real), int(total.imag)), run


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_core_finds_a_cheapest_run_of_all_that_there_are(seed: int) -> None:
    drawn = Drawn.of(seed)
    price, run = explored(drawn)
    assert price == min(map(drawn.price, drawn.runs()))
    assert drawn.price(run) == price


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_value_that_all_read_has_the_cheapest_tree_of_all_that_there_are(seed: int) -> None:
    """Many trees cost the same, and what one more placement costs depends on which is taken."""
    drawn = Drawn.of_one_value(seed)
    price, run = explored(drawn)
    assert price == min(map(drawn.price, drawn.runs()))
    assert drawn.price(run) == price


def test_a_placement_that_costs_a_small_tree_nothing_may_cost_a_larger_one_something() -> None:
    """Ways to 3 lead over 1 or over 2: who takes 1 on the way must pay for 2 later."""
    pairs = ((0, 1), (0, 2), (1, 3), (2, 3), (3, 0))
    graph = Graph(dict.fromkeys(pairs, (10, 0)))
    stages = (
        (Taken(1, (0,), (), (((3,), (), (0, 0)),)),),
        (Taken(1, (0,), (), (((1,), (), (1, 0)), ((2,), (), (5, 0)))),),
        (Taken(1, (0,), (), (((2,), (), (0, 0)),)),),
    )
    drawn = Drawn((graph,), (frozenset({0}),) * 3, stages, (0, 3))
    price, run = explored(drawn)
    assert price == (25, 0)
    assert run == ((0, 0, 0), (1, 0, 1), (2, 0, 0))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_trees_are_the_cheapest_of_all_that_there_are(seed: int) -> None:
    random = Random(seed)
    graph = Graph.drawn(random)
    root, used = random.choice(PLACEMENTS), random.sample(PLACEMENTS, random.randint(0, 4))
    trees, pairs = graph.trees(), list(graph.steps)
    least = span(graph, root, frozenset(used))
    assert trees.span(root, used) == complex(*least)
    reached, total = {root}, (0, 0)
    for step in trees.steps(root, used):
        source, target = pairs[step]
        assert source in reached
        reached.add(target)
        total = plus(total, graph.steps[source, target])
    assert set(used) <= reached
    assert total == least


def test_what_does_not_fit_is_refused() -> None:
    graph = Graph.drawn(Random(0))
    trees = graph.trees()
    none = np.zeros((0, 1), np.int64)
    with pytest.raises(ValueError, match="no such placement"):
        trees.span(0, [4])
    with pytest.raises(ValueError, match="no such placement"):
        Stock(trees).start(-1)
    with pytest.raises(ValueError, match="a row of placements for each value"):
        Options(1, [0], [], none, none, numbers([(1, 0)]))
    with pytest.raises(ValueError, match="a column of placements for each price"):
        Options(1, [], [], none, none, numbers([(1, 0), (2, 0)]))
    with pytest.raises(ValueError, match="no option"):
        Options(1, [], [], none[:, :0], none[:, :0], numbers([]))
    with pytest.raises(IndexError, match="no such state"):
        States([]).held(1)


def test_a_segment_of_numbers_that_name_nothing_is_refused() -> None:
    stock = Stock(Graph.drawn(Random(0)).trees())
    one, price = np.zeros((1, 1), np.int64), numbers([(1, 0)])
    fits = Options(1, [0], [1], one, one, price)
    segment = Segment([stock, stock], [[0], []], [[0], []], [[fits]])
    assert segment.explore(States([stock.start(0)])).least == 1
    with pytest.raises(ValueError, match="live at its entry"):
        segment.explore(States([99]))
    with pytest.raises(ValueError, match="live at its entry"):
        segment.explore(States([]))
    with pytest.raises(ValueError, match="no such value"):
        Segment([stock], [[0], []], [[0], []], [[fits]])
    with pytest.raises(ValueError, match="no such operation"):
        Segment([stock] * 2, [[0], []], [[0], []], [[Options(2, [0], [1], one, one, price)]])
    with pytest.raises(ValueError, match="no such placement"):
        Segment([stock] * 2, [[0], []], [[0], []], [[Options(1, [0], [1], one + 4, one, price)]])
    with pytest.raises(ValueError, match="before each operation"):
        Segment([stock] * 2, [[0]], [[0]], [[fits]])
