"""Communicators: how the ranks of one group exchange data on the host."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tskernels.communicator import Communicator
from tsruntime.artifact.schema import Plan
from tsruntime.executor.bind import Communicators
from tsruntime.executor.errors import PeerLostError

_REDUCE_OPS = {"sum": dist.ReduceOp(dist.ReduceOp.SUM), "max": dist.ReduceOp(dist.ReduceOp.MAX)}


class _Work(Protocol):
    def wait(self) -> object: ...


class _ProcessGroup(Protocol):
    """What is used of torch's gloo group, whose own stubs leave out its methods."""

    def allreduce(self, tensors: list[Tensor], op: dist.ReduceOp) -> _Work: ...
    def _allgather_base(self, output: Tensor, source: Tensor) -> _Work: ...
    def _reduce_scatter_base(
        self, output: Tensor, source: Tensor, opts: dist.ReduceScatterOptions
    ) -> _Work: ...
    def alltoall_base(
        self, output: Tensor, source: Tensor, output_sizes: list[int], input_sizes: list[int]
    ) -> _Work: ...
    def broadcast(self, tensor: Tensor, root: int) -> _Work: ...
    def barrier(self) -> _Work: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...


class LocalCommunicator:
    """The communicator of a group of one: a reduction is the value itself."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor, reduce: str) -> None:
        """Leave `x` [...] as it is."""

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """`out` [1, *x.shape] becomes `x`."""
        out.copy_(x.view(out.shape))

    def reduce_scatter(self, out: Tensor, x: Tensor, reduce: str) -> None:
        """`out` becomes `x` [1, *out.shape]."""
        out.copy_(x.view(out.shape))

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        """`out` [1, ...] becomes `x` [1, ...]."""
        out.copy_(x)


class GlooCommunicator:
    """A gloo process group, on its own and not torch's default group.

    Every call blocks until this rank's part is done and raises `PeerLostError` when a peer is gone
    or silent for longer than the group's timeout.
    """

    def __init__(self, group: _ProcessGroup) -> None:
        self._group = group
        self.rank: int = group.rank()
        self.size: int = group.size()

    def all_reduce(self, x: Tensor, reduce: str) -> None:
        """Replace contiguous `x` by the elementwise `reduce` ("sum", "max") over the ranks.

        Every rank ends with the same bits.
        """
        _wait(self._group.allreduce([x], _REDUCE_OPS[reduce]))

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """`out` [size, *x.shape] becomes every rank's `x`, by rank; both contiguous."""
        _wait(self._group._allgather_base(out.view(-1), x.view(-1)))  # pyright: ignore[reportPrivateUsage]

    def reduce_scatter(self, out: Tensor, x: Tensor, reduce: str) -> None:
        """`out` becomes row `rank` of the reduced `x` [size, *out.shape]; both contiguous."""
        options = dist.ReduceScatterOptions()
        options.reduceOp = _REDUCE_OPS[reduce]
        _wait(self._group._reduce_scatter_base(out.view(-1), x.view(-1), options))  # pyright: ignore[reportPrivateUsage]

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        """`out[i]` becomes rank i's `x[rank]`; both [size, ...], contiguous."""
        _wait(self._group.alltoall_base(out, x, [], []))

    def broadcast(self, x: Tensor, root: int) -> None:
        """Replace contiguous `x` by the root's."""
        _wait(self._group.broadcast(x, root))

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        _wait(self._group.barrier())


def _wait(work: _Work) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise PeerLostError(str(error).splitlines()[0]) from error


def connect(store: Store, name: str, rank: int, size: int, timeout: timedelta) -> GlooCommunicator:
    """Join the group `name` of `size` ranks, which meet at `store`; blocks until all have come.

    The interface is the one that GLOO_SOCKET_IFNAME names, if it is set.
    """
    try:
        group = dist.ProcessGroupGloo(dist.PrefixStore(name, store), rank, size, timeout)  # pyright: ignore[reportPrivateImportUsage]
    except RuntimeError as error:
        raise PeerLostError(str(error).splitlines()[0]) from error
    return GlooCommunicator(cast("_ProcessGroup", group))


def collective_axes(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Every set of axes that some collective of the plan joins, sorted: the same on all ranks."""
    found = {
        tuple(str(axis) for axis in axes)
        for program in plan.programs
        for op in program.ops
        if isinstance(axes := op.attributes.get("axes"), tuple)
    }
    return tuple(sorted(found))


def connect_mesh(plan: Plan, rank: int, store: Store, timeout: timedelta) -> Communicators:
    """The communicator of `rank` along each set of axes that the plan's collectives join."""
    mesh = plan.mesh
    joined: dict[tuple[str, ...], Communicator] = {}
    for axes in collective_axes(plan):
        members = mesh.members(rank, axes)
        if len(members) == 1:
            joined[axes] = LocalCommunicator()
        else:
            name = f"{'+'.join(axes)}@{members[0]}"
            joined[axes] = connect(store, name, members.index(rank), len(members), timeout)
    return joined.__getitem__
