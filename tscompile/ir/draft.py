"""The plan in progress: what every pass takes and returns, until it is frozen into a `Plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tscompile.cost.model import Price
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.placement import Placement, Placements
from tscompile.ir.repeats import Names, Repeats, times
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import (
    ArenaStorage,
    CacheStorage,
    KvCache,
    Limits,
    Mesh,
    Phase,
    Storage,
    Target,
    WeightPart,
    WeightStorage,
)


@dataclass(frozen=True, slots=True)
class DraftValue:
    """A tensor of a program: its type (global until `localize`, then one rank's) and placements.

    `placements` is empty until `propagate_placements` for values that ops produce. `storage` is
    None for those until `plan_memory`.
    """

    name: str
    type: TensorType
    placements: Placements = ()
    storage: Storage | None = None

    @property
    def is_bound(self) -> bool:
        """Whether its placement is given from outside: a weight, an input, a cache."""
        return self.storage is not None and not isinstance(self.storage, ArenaStorage)

    def of_type(self, type_: TensorType) -> DraftValue:
        """The same value of another type."""
        if type_ is self.type:
            return self
        return DraftValue(self.name, type_, self.placements, self.storage)

    def stored(self, storage: Storage) -> DraftValue:
        """The same value, stored somewhere."""
        return DraftValue(self.name, self.type, self.placements, storage)

    def renamed(self, names: Names) -> DraftValue:
        """The same value of another layer."""
        storage = None if self.storage is None else renamed_storage(self.storage, names)
        return DraftValue(names[self.name], self.type, self.placements, storage)


def renamed_storage(storage: Storage, names: Names) -> Storage:
    """The storage of the same value of another layer."""
    match storage:
        case WeightStorage(weight=weight):
            return WeightStorage(names[weight])
        case CacheStorage(group=group, layer=layer):
            return CacheStorage(group, names.number(layer))
        case other:
            return other


@dataclass(frozen=True, slots=True)
class DraftWeight:
    """A weight: its type (global, padded; then one rank's), placements and checkpoint parts.

    `layouts` are all placements that it may have, its own first, where the compiler may choose.
    """

    name: str
    type: TensorType
    placements: Placements
    parts: tuple[WeightPart, ...]
    constant: tuple[float, ...] | None = None
    layouts: tuple[Placements, ...] = ()

    def renamed(self, names: Names) -> DraftWeight:
        """The same weight of another layer."""
        parts = tuple(replace(part, tensor=names[part.tensor]) for part in self.parts)
        return replace(self, name=names[self.name], parts=parts)


@dataclass(frozen=True, slots=True)
class Edge:
    """A module's annotated boundary: what `value` must be on the axes that it speaks of.

    `required` holds one placement for each mesh axis, None where the annotation is silent.
    """

    module: str
    side: Literal["input", "output"]
    value: str
    required: tuple[Placement | None, ...]

    def renamed(self, names: Names) -> Edge:
        """The same boundary of another layer."""
        return replace(self, module=names[self.module], value=names[self.value])


@dataclass(frozen=True, slots=True)
class DraftProgram:
    """One phase at one bucket; see `schema.Program`.

    `tokens` and `sequences` are those of one attention replica, token dims of types are over all
    replicas until `localize`. `edges` are spent by the propagation, which sets `predicted`.
    """

    name: str
    phase: Phase
    tokens: int
    sequences: int
    logits: Literal["last", "all"]
    inputs: tuple[str, ...]
    values: Mapping[str, DraftValue]
    nodes: tuple[Node, ...]
    output: str
    edges: tuple[Edge, ...] = ()
    arena_bytes: int = 0
    predicted: Price | None = None


@dataclass(frozen=True, slots=True)
class PinRecord:
    """Why one kernel was pinned: the question as text, the winner, and each loser's reason."""

    op: str
    query: str
    winner: str
    reason: str
    losers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole deployment in progress. `kv_cache.pages` is 0 until `plan_memory`.

    While it is folded, layers of its weights and programs stand for more as `repeats` says; all
    else, `kv_cache` and predicted prices included, is the whole model's.
    """

    name: str
    architecture: str
    target: Target
    mesh: Mesh
    dtype: DType
    vocab_size: int
    limits: Limits
    kv_cache: KvCache
    weights: Mapping[str, DraftWeight]
    programs: tuple[DraftProgram, ...]
    dummy_seed: int | None = None
    pins: tuple[PinRecord, ...] = ()
    repeats: Repeats = ()

    def copies(self, name: str) -> int:
        """How many weights of the model one of this name stands for."""
        return times(self.repeats, layer_of(name))
