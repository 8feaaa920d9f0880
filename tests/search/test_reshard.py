"""Reshards on real buffers: every pair of placements, right rows in the right order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from search.buffers import Buffer, holds, lay_out, rows_of, run

from tscompile.cost.model import CostModel, Price
from tscompile.cost.topology import find_topology
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, Shard
from tscompile.search.graph import all_edges, decode
from tscompile.search.layout import MeshAxes, View, make_view, token_axes
from tscompile.search.reshard import Reshards
from tscompile.search.steps import StepKind, actions, step_price
from tsruntime.artifact.schema import Axis

CUBE = (Axis("a", 2), Axis("b", 2), Axis("c", 2))
TOKENS = Shard(0)
H200 = CostModel(find_topology("h200-nvlink-8"), CUBE)


def tokens_by_hidden(rows: int = 16, hidden: int = 24) -> View:
    return make_view(CUBE, (rows, hidden), (("a", "b", "c"), ("a", "b", "c")), 2)


def legal_pairs() -> list[tuple[Placements, Placements]]:
    one = [
        (s, t)
        for s, t in itertools.product((REPLICATE, PARTIAL, TOKENS), repeat=2)
        if (s, t) != (TOKENS, PARTIAL)
    ]
    return [
        (tuple(s for s, _ in three), tuple(t for _, t in three))
        for three in itertools.product(one, repeat=3)
    ]


def moved(
    axes: MeshAxes, reshards: Reshards, source: Placements, target: Placements
) -> tuple[list[Buffer], Buffer]:
    """The buffers after the cheapest path, and the value."""
    view = reshards.view
    noise = np.random.default_rng(0)
    value = noise.integers(-99, 99, view.shape).astype(np.float64)
    tiles = lay_out(axes, view, source, value, noise)
    at = source
    for move in reshards.path(reshards.index(source), reshards.index(target)):
        assert move.source == at
        for action in actions(axes, view, at, move.step):
            tiles = run(axes, action, tiles)
        at = move.target
    assert at == target
    return tiles, value


def test_all_legal_pairs_on_a_cube_move_the_right_rows_in_the_right_order() -> None:
    pairs = legal_pairs()
    assert len(pairs) == 512
    view = tokens_by_hidden()
    reshards = Reshards(H200, view)
    for source, target in pairs:
        tiles, value = moved(CUBE, reshards, source, target)
        assert holds(CUBE, view, target, value, tiles), (source, target)


def test_pairs_over_two_dims_move_right_too() -> None:
    """Every step of the two-dim graph, unequal axes."""
    axes = (Axis("a", 2), Axis("b", 3))
    costs = CostModel(find_topology("h200-nvlink-8"), axes)
    view = make_view(axes, (12, 18), (("a", "b"), ("a", "b")), 4)
    reshards = Reshards(costs, view)
    noise = np.random.default_rng(1)
    value = noise.integers(-99, 99, view.shape).astype(np.float64)
    edges = all_edges(reshards.graph)
    assert {step.kind for _, _, step in edges} == set(StepKind)
    for source, target, step in edges:
        tiles = lay_out(axes, view, source, value, noise)
        for action in actions(axes, view, source, step):
            tiles = run(axes, action, tiles)
        assert holds(axes, view, target, value, tiles), (source, str(step))


def test_edge_prices_are_those_of_their_steps() -> None:
    view = tokens_by_hidden()
    reshards = Reshards(H200, view)
    for (source, _, step), price in zip(
        all_edges(reshards.graph), reshards.edges.tolist(), strict=True
    ):
        assert decode(price) == step_price(H200, view, source, step)


def test_paths_are_shortest_and_closed_under_composition() -> None:
    view = tokens_by_hidden()
    reshards = Reshards(H200, view)
    count = len(reshards.placements)
    best = {
        (i, j): Price() if i == j else Price(10**15) for i in range(count) for j in range(count)
    }
    for (source, target, _), price in zip(
        all_edges(reshards.graph), reshards.edges.tolist(), strict=True
    ):
        pair = reshards.index(source), reshards.index(target)
        best[pair] = min(best[pair], decode(price))
    for k, i in itertools.product(range(count), repeat=2):
        for j in range(count):
            best[i, j] = min(best[i, j], best[i, k] + best[k, j])
    for i, j in itertools.product(range(count), repeat=2):
        assert reshards.price(i, j) == best[i, j]
        total = Price()
        for move in reshards.path(i, j):
            total += move.price
        assert total == best[i, j]


def test_a_tree_may_branch_where_nobody_asked() -> None:
    """From a sum: once by all rows, once by a slice of hidden; scattering first serves both."""
    axes = (Axis("a", 4), Axis("b", 2))
    costs = CostModel(find_topology("h200-nvlink-8"), axes)
    view = make_view(axes, (4096, 4096), (("a", "b"), ("a", "b")), 2)
    reshards = Reshards(costs, view)
    exhaustive = 0
    root = reshards.index((PARTIAL, PARTIAL))
    for used in itertools.combinations(range(len(reshards.placements)), 2):
        direct = min(
            reshards.price(root, x) + reshards.price(x, used[0]) + reshards.price(x, used[1])
            for x in range(len(reshards.placements))
        )
        assert decode(reshards.span(root, used)) == direct
        total = Price()
        reached: set[Placements] = {(PARTIAL, PARTIAL)}
        for move in reshards.tree(root, used):
            assert move.source in reached
            reached.add(move.target)
            total += move.price
        assert total == direct
        assert {reshards.placements[u] for u in used} <= reached
        exhaustive += len(reached) > 3
    assert exhaustive


def test_tokens_over_both_axes_to_the_inner_one_keep_each_replicas_rows() -> None:
    """attn 2 = {a}, dense 4 = {a, b}, world 4, 4 rows a replica."""
    mesh = build_mesh(ParallelSizes(world=4, attn_tp=2, dense_tp=4))
    assert [axis.name for axis in mesh.axes] == ["a", "b"]
    view = make_view(mesh.axes, (8, 2), (token_axes(mesh, 4), ()), 8)
    costs = CostModel(find_topology("h200-nvlink-8"), mesh.axes)
    reshards = Reshards(costs, view)
    tiles, value = moved(mesh.axes, reshards, (TOKENS, TOKENS), (TOKENS, REPLICATE))
    for rank, rows in ((0, [0, 1, 4, 5]), (1, [2, 3, 6, 7]), (2, [0, 1, 4, 5]), (3, [2, 3, 6, 7])):
        assert rows_of(mesh.axes, view, (TOKENS, REPLICATE), 0, rank) == rows
        np.testing.assert_array_equal(tiles[rank], value[rows])


def test_two_rows_on_two_by_two_axes_of_one_replica_have_one_token_axis() -> None:
    mesh = build_mesh(ParallelSizes(world=4, attn_tp=4, dense_tp=2))
    assert token_axes(mesh, 2) == ("a",)
    assert token_axes(mesh, 4) == ("a", "b")
    assert token_axes(mesh, 3) == ()


def test_every_replica_is_a_token_digit_whatever_the_rows() -> None:
    mesh = build_mesh(ParallelSizes(world=8, attn_tp=2, dense_tp=4))
    assert token_axes(mesh, 1) == ("b", "c")
    assert token_axes(mesh, 2) == ("a", "b", "c")


def test_gathering_a_digit_that_is_no_neighbour_carries_a_permute() -> None:
    """Rows over the innermost axis alone are strided blocks: concatenating them is wrong."""
    view = tokens_by_hidden()
    reshards = Reshards(H200, view)
    source = reshards.index((TOKENS, REPLICATE, REPLICATE))
    (move,) = reshards.path(source, reshards.index((REPLICATE,) * 3))
    assert move.step.kind is StepKind.ALL_GATHER
    assert len(actions(CUBE, view, move.source, move.step)) == 2


def test_a_shard_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="not divided"):
        make_view(CUBE, (12, 8), (("a", "b", "c"), ()), 2)


def test_fixed_order_lowering_is_not_a_shortest_path() -> None:
    """Axis by axis, innermost first, costs more for some pairs and less for none."""
    view = tokens_by_hidden(4096, 4096)
    reshards = Reshards(H200, view)
    dearer = 0
    for source, target in legal_pairs():
        total, at = Price(), source
        for i in range(3):
            if at[i] != target[i]:
                there = (*at[:i], target[i], *at[i + 1 :])
                total += reshards.price(reshards.index(at), reshards.index(there))
                at = there
        best = reshards.price(reshards.index(source), reshards.index(target))
        assert best <= total
        dearer += best < total
    assert dearer > 50
