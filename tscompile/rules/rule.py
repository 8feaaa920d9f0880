"""What a rule is: the ways in which one op may be spread over one axis of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tscompile.ir.mesh import ATTN_DP, sharing_axes
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Attribute, Mesh

R, P = REPLICATE, PARTIAL
S0, S1, S2 = Shard(0), Shard(1), Shard(2)


@dataclass(frozen=True, slots=True)
class OpTypes:
    """An op as a rule sees it: global types of its inputs and outputs, and its attributes.

    Where an op is priced, the types are one rank's, and `whole` are the global ones of its inputs.
    """

    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    attributes: Mapping[str, Attribute]
    whole: tuple[TensorType | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Strategy:
    """Placements along one axis under which each rank can run the op on its own tiles.

    An absent optional input ignores its entry. `spread` marks the strategies that cut what no
    weight cuts, such as rows.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    spread: bool = False


def elements(type_: TensorType | None) -> int:
    """Number of elements; 0 for an absent input."""
    if type_ is None:
        return 0
    count = 1
    for size in type_.shape:
        count *= size
    return count


def size_in_bytes(type_: TensorType | None) -> int:
    """Bytes of a value; 0 for an absent input."""
    return 0 if type_ is None else elements(type_) * type_.dtype.itemsize


def all_bytes(types: OpTypes) -> int:
    """Traffic of an op that reads all its inputs and writes all its outputs."""
    return sum(size_in_bytes(t) for t in (*types.inputs, *types.outputs))


@dataclass(frozen=True, slots=True)
class Rule:
    """The strategies of an op, and on local types its arithmetic and its bytes of memory traffic.

    Of equally cheap strategies the one listed first wins. `by_replica` is the only strategy along
    axes of attention replicas of an op whose rows and pages are counted in their own replica's,
    `by_sharing` the only one along axes whose ranks share a KV head (see `mesh.sharing_axes`).
    `variants` are attributes that choose how the op is computed, at another cost: the search takes
    the cheapest. `exchanges` are strategies that hold only behind an exchange of rows (see
    `search.exchange`), which the search adds.
    """

    op: str
    strategies: Callable[[OpTypes], tuple[Strategy, ...]]
    flops: Callable[[OpTypes], int]
    traffic: Callable[[OpTypes], int] = all_bytes
    by_replica: Strategy | None = None
    by_sharing: Strategy | None = None
    variants: tuple[Mapping[str, Attribute], ...] = ()
    exchanges: tuple[Strategy, ...] = ()

    def along(self, types: OpTypes, mesh: Mesh, axis: str) -> tuple[Strategy, ...]:
        """The strategies along one axis of `mesh`."""
        if self.by_replica is not None and axis in mesh.groups[ATTN_DP]:
            return (self.by_replica,)
        if self.by_sharing is not None and axis in sharing_axes(mesh):
            return (self.by_sharing,)
        return self.strategies(types)

    def ways(self, types: OpTypes) -> tuple[OpTypes, ...]:
        """The op under the attributes of each variant."""
        return tuple(replace(types, attributes={**types.attributes, **v}) for v in self.variants)


def output_elements(types: OpTypes) -> int:
    """One operation for each element of the outputs: what elementwise ops cost."""
    return sum(elements(t) for t in types.outputs)


def always(*strategies: Strategy) -> Callable[[OpTypes], tuple[Strategy, ...]]:
    """The same strategies whatever the types."""
    return lambda types: strategies


def rows(inputs: int) -> Strategy:
    """All `inputs` and the output cut along dim 0."""
    return Strategy((S0,) * inputs, (S0,), spread=True)


def everywhere(inputs: int) -> Strategy:
    """All replicated: every rank does the whole op."""
    return Strategy((R,) * inputs, (R,))
