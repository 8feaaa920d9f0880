"""Collective kernels over a communicator of threads, against the whole group's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from thread_group import SIZE, Exchange, ThreadCommunicator, run_group
from torch import Tensor

from tskernels.kernel import BoundCall
from tskernels.ops.collectives import group
from tskernels.registry import REGISTRY
from tskernels.schema import AttributeValue


def run(op: str, shards: Sequence[Tensor], given: Mapping[str, object]) -> list[Tensor]:
    """Each rank's output of one collective."""
    return [y for (y,) in run_group(f"{op}.communicator", [(x,) for x in shards], given)]


def shards_of(*shape: int) -> list[Tensor]:
    """Column slices of wider buffers: what a rank holds need not be contiguous."""
    return [torch.randn(*shape[:-1], shape[-1] + 4)[..., 2:-2] for _ in range(SIZE)]


def check(got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    for mine, wanted in zip(got, want, strict=True):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_all_reduce(reduce: str) -> None:
    shards = shards_of(4, 6)
    check(run("all_reduce", shards, {"reduce": reduce}), group.all_reduce(shards, reduce))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_all_gather(dim: int) -> None:
    shards = shards_of(4, 6)
    check(run("all_gather", shards, {"dim": dim}), [torch.cat(shards, dim)] * SIZE)


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reduce_scatter(dim: int, reduce: str) -> None:
    shards = shards_of(3, 6)
    got = run("reduce_scatter", shards, {"dim": dim, "reduce": reduce})
    stacked = torch.stack(shards)
    total = shards[0] + shards[1] + shards[2] if reduce == "sum" else stacked.max(0).values
    check(got, total.chunk(SIZE, dim))


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(split: int, concat: int) -> None:
    shards = shards_of(3, 6)
    got = run("all_to_all", shards, {"split_dim": split, "concat_dim": concat})
    want = [torch.cat([s.chunk(SIZE, split)[i] for s in shards], concat) for i in range(SIZE)]
    check(got, want)


def test_a_communicator_of_another_size_is_refused() -> None:
    x = torch.randn(2, 2)
    spec = REGISTRY.resolve("all_reduce.communicator")
    attributes: dict[str, AttributeValue] = {"axes": ("a",), "size": 2, "reduce": "sum"}
    with pytest.raises(TypeError, match="2 ranks is bound to a communicator of 3"):
        spec.bind(BoundCall((x,), (x,), attributes, ThreadCommunicator(Exchange(), 0)))
    with pytest.raises(TypeError, match="without its communicator"):
        spec.bind(BoundCall((x,), (x,), attributes))
