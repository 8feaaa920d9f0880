"""Collective kernels of one group, bound to communicators that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


def run_group(
    pin: str, members: Sequence[Sequence[Tensor | None]], given: Mapping[str, object]
) -> list[tuple[Tensor, ...]]:
    """Each rank's outputs of the kernel `pin`, which runs twice, as in two steps."""
    spec = REGISTRY.resolve(pin)
    schema = OPS[spec.op].schema
    attributes: dict[str, AttributeValue] = resolve_attributes(
        schema, {"axes": ("a",), "size": SIZE, **given}
    )
    types = [None if x is None else tensor_type(x) for x in members[0]]
    outputs = [
        tuple(
            torch.full(made.shape, float("nan"), dtype=made.dtype.torch)
            for made in schema.infer(types, attributes)
        )
        for _ in members
    ]
    exchange = Exchange()

    def rank(i: int) -> None:
        communicator = ThreadCommunicator(exchange, i)
        kernel = spec.bind(BoundCall(tuple(members[i]), outputs[i], attributes, communicator))
        kernel()
        kernel()

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return outputs
