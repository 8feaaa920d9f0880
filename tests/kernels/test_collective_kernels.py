"""Collective kernels over a communicator of threads, against the whole group's result."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from tskernels.kernel import BoundCall
from tskernels.op import resolve_attributes, tensor_type
from tskernels.ops import OPS
from tskernels.ops.collectives import group
from tskernels.registry import REGISTRY
from tskernels.schema import AttributeValue

SIZE = 3


@dataclass
class Exchange:
    """What the threads of one group share."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(SIZE))
    slots: list[Tensor | None] = field(default_factory=lambda: [None] * SIZE)


@dataclass
class ThreadCommunicator:
    """A rank of `Exchange`; every call is checked for contiguous tensors."""

    exchange: Exchange
    rank: int
    size: int = SIZE

    def _all(self, x: Tensor) -> list[Tensor]:
        assert x.is_contiguous()
        self.exchange.slots[self.rank] = x.clone()
        self.exchange.barrier.wait(10)
        held = [slot for slot in self.exchange.slots if slot is not None]
        self.exchange.barrier.wait(10)
        return held

    def all_reduce(self, x: Tensor, reduce: str) -> None:
        x.copy_(group.all_reduce(self._all(x), reduce)[self.rank])

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        assert out.is_contiguous()
        out.copy_(torch.stack(self._all(x)))

    def reduce_scatter(self, out: Tensor, x: Tensor, reduce: str) -> None:
        assert out.is_contiguous()
        out.copy_(group.all_reduce([held[self.rank] for held in self._all(x)], reduce)[0])

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        assert out.is_contiguous()
        out.copy_(torch.stack([held[self.rank] for held in self._all(x)]))


def run_group(op: str, shards: Sequence[Tensor], given: Mapping[str, object]) -> list[Tensor]:
    """Each rank's output of one collective; every kernel runs twice, as in two steps."""
    schema = OPS[op].schema
    attributes: dict[str, AttributeValue] = resolve_attributes(
        schema, {"axes": ("a",), "size": SIZE, **given}
    )
    (made,) = schema.infer([tensor_type(shards[0])], attributes)
    outputs = [torch.full(made.shape, float("nan")) for _ in shards]
    exchange = Exchange()

    def rank(i: int) -> None:
        communicator = ThreadCommunicator(exchange, i)
        call = BoundCall((shards[i],), (outputs[i],), attributes, communicator)
        kernel = REGISTRY.resolve(f"{op}.communicator").bind(call)
        kernel()
        kernel()

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return outputs


def shards_of(*shape: int) -> list[Tensor]:
    """Column slices of wider buffers: what a rank holds need not be contiguous."""
    return [torch.randn(*shape[:-1], shape[-1] + 4)[..., 2:-2] for _ in range(SIZE)]


def check(got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    for mine, wanted in zip(got, want, strict=True):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_all_reduce(reduce: str) -> None:
    shards = shards_of(4, 6)
    check(run_group("all_reduce", shards, {"reduce": reduce}), group.all_reduce(shards, reduce))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_all_gather(dim: int) -> None:
    shards = shards_of(4, 6)
    check(run_group("all_gather", shards, {"dim": dim}), [torch.cat(shards, dim)] * SIZE)


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reduce_scatter(dim: int, reduce: str) -> None:
    shards = shards_of(3, 6)
    got = run_group("reduce_scatter", shards, {"dim": dim, "reduce": reduce})
    stacked = torch.stack(shards)
    total = shards[0] + shards[1] + shards[2] if reduce == "sum" else stacked.max(0).values
    check(got, total.chunk(SIZE, dim))


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(split: int, concat: int) -> None:
    shards = shards_of(3, 6)
    got = run_group("all_to_all", shards, {"split_dim": split, "concat_dim": concat})
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
