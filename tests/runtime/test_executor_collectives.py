"""Communicators against numpy, the groups of a mesh, and a sharded plan in one process."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks_in_threads import TIMEOUT, on_ranks
from tiny_plan import VOCAB, Sizes, tiny_logits, tiny_plan, whole_weights
from tiny_rows import OTHER, PROMPT, Rows, close
from torch import Tensor
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tskernels.communicator import Communicator
from tsruntime.artifact.schema import Axis, Mesh, Op, Plan
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor.collectives import (
    LocalCommunicator,
    collective_axes,
    connect,
    connect_mesh,
)
from tsruntime.executor.errors import PeerLostError
from tsruntime.executor.executor import Executor

WORLD = 3


def shards(*shape: int) -> list[Tensor]:
    """Every rank's own tensor, whole numbers so that sums are exact in any order."""
    random = np.random.default_rng(1)
    return [
        torch.tensor(random.integers(-99, 99, shape), dtype=torch.float32) for _ in range(WORLD)
    ]


def everywhere(x: list[Tensor]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.stack([shard.numpy() for shard in x])


def test_reductions_and_exchanges_equal_numpy() -> None:
    flat, blocks = shards(4, 5), shards(WORLD, 2, 5)

    def work(rank: int, store: Store) -> dict[str, Tensor]:
        group = connect(store, "all", rank, WORLD, TIMEOUT)
        assert (group.rank, group.size) == (rank, WORLD)
        got = {"sum": flat[rank].clone(), "max": flat[rank].clone()}
        group.all_reduce(got["sum"], "sum")
        group.all_reduce(got["max"], "max")
        got["gather"] = torch.empty(WORLD, 4, 5)
        group.all_gather(got["gather"], flat[rank])
        got["scatter"], got["scatter max"] = torch.empty(2, 5), torch.empty(2, 5)
        group.reduce_scatter(got["scatter"], blocks[rank], "sum")
        group.reduce_scatter(got["scatter max"], blocks[rank], "max")
        got["exchange"] = torch.empty(WORLD, 2, 5)
        group.all_to_all(got["exchange"], blocks[rank])
        got["broadcast"] = flat[rank].clone()
        group.broadcast(got["broadcast"], 1)
        group.barrier()
        return got

    x, y = everywhere(flat), everywhere(blocks)
    for rank, got in enumerate(on_ranks(WORLD, work)):
        expected = {
            "sum": x.sum(0),
            "max": x.max(0),
            "gather": x,
            "scatter": y.sum(0)[rank],
            "scatter max": y.max(0)[rank],
            "exchange": y[:, rank],
            "broadcast": x[1],
        }
        for name, tensor in got.items():
            assert np.array_equal(tensor.numpy(), expected[name]), (rank, name)


def test_a_reduction_gives_equal_bits_on_every_rank() -> None:
    def work(rank: int, store: Store) -> bytes:
        group = connect(store, "all", rank, WORLD, TIMEOUT)
        x = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
        group.all_reduce(x, "sum")
        return x.numpy().tobytes()

    assert len(set(on_ranks(WORLD, work))) == 1


def test_a_group_of_one_changes_nothing() -> None:
    group: Communicator = LocalCommunicator()
    x = torch.arange(6.0).view(2, 3)
    y = x.clone()
    group.all_reduce(y, "sum")
    assert torch.equal(x, y)
    gathered, scattered, exchanged = torch.zeros(1, 2, 3), torch.zeros(2, 3), torch.zeros(1, 2, 3)
    group.all_gather(gathered, x)
    group.reduce_scatter(scattered, x[None], "sum")
    group.all_to_all(exchanged, x[None])
    assert torch.equal(gathered[0], x)
    assert torch.equal(scattered, x)
    assert torch.equal(exchanged[0], x)


def joining(mesh: Mesh, *sets: tuple[str, ...]) -> Plan:
    """A plan on `mesh` whose collectives join each of `sets` of axes."""
    plan = tiny_plan()
    ops = tuple(Op("all_reduce", "", (), (), {"axes": axes}, "") for axes in sets)
    return replace(plan, mesh=mesh, programs=(replace(plan.programs[0], ops=ops),))


def test_each_set_of_axes_joins_its_own_ranks() -> None:
    mesh = Mesh((Axis("a", 2), Axis("b", 2), Axis("one", 1)), {})
    plan = joining(mesh, ("b",), ("a",), ("a", "b"), ("b", "a"), ("one",), ("a",))
    assert collective_axes(plan) == (("a",), ("a", "b"), ("b",), ("b", "a"), ("one",))

    def work(rank: int, store: Store) -> dict[tuple[str, ...], list[float]]:
        join = connect_mesh(plan, rank, store, TIMEOUT)
        got = dict[tuple[str, ...], list[float]]()
        for axes in collective_axes(plan):
            group = join(axes)
            out = torch.empty(group.size, 1)
            group.all_gather(out, torch.tensor([float(rank)]))
            got[axes] = out[:, 0].numpy().tolist()
        return got

    # rank = a + 2 b; members stand in the order of their coordinates, first named axis innermost
    for rank, got in enumerate(on_ranks(4, work)):
        a, b = rank % 2, rank // 2
        assert got == {
            ("a",): [2 * b, 2 * b + 1],
            ("b",): [a, a + 2],
            ("a", "b"): [0, 1, 2, 3],
            ("b", "a"): [0, 2, 1, 3],
            ("one",): [rank],
        }


def test_a_silent_peer_is_noticed_after_the_timeout() -> None:
    def work(rank: int, store: Store) -> None:
        group = connect(store, "all", rank, 2, timedelta(seconds=1))
        if rank == 0:
            with pytest.raises(PeerLostError):
                group.all_reduce(torch.ones(4), "sum")

    start = time.monotonic()
    on_ranks(2, work)
    assert time.monotonic() - start < 10


def test_a_missing_peer_is_noticed_while_joining() -> None:
    def work(rank: int, store: Store) -> None:
        with pytest.raises(PeerLostError):
            connect(store, "all", rank, 2, timedelta(seconds=1))

    on_ranks(1, work)


def test_three_ranks_of_a_sharded_plan_give_the_whole_models_logits() -> None:
    plan, whole = tiny_plan(Sizes(world=WORLD)), whole_weights()

    def work(rank: int, store: Store) -> list[Tensor]:
        weights = WeightStore(Path("unused"), plan, rank)
        executor = Executor(plan, rank, weights, connect_mesh(plan, rank, store, TIMEOUT))
        executor.arena.fill_(0xFF)
        rows = Rows(plan)
        first = executor.forward(rows.batch([(0, 0, PROMPT[:6]), (3, 0, OTHER[:2])])).clone()
        executor.forward(rows.batch([(3, 2, OTHER[2:]), (0, 6, PROMPT[6:10])]))
        return [first, executor.forward(rows.batch([(0, 10, PROMPT[10:])])).clone()]

    ranks = on_ranks(WORLD, work)
    for first, last in ranks:
        assert first.shape[1] == VOCAB
        assert close(first[0], tiny_logits(whole, PROMPT[:6])[-1])
        assert close(first[1], tiny_logits(whole, OTHER[:2])[-1])
        assert close(last[0], tiny_logits(whole, PROMPT)[-1])
        assert torch.equal(last[0], ranks[0][1][0])
