"""The communication plan: what every program sends, runs and holds on one rank, without times.

Names of modules and weights that belong to a layer are relative to it (`mlp.down_proj`), so that
layers that do the same are equal; sections say which layers those are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tskernels.schema import DType
from tsruntime.artifact.schema import Limits, Mesh, Phase, Target


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel or collective, as one rank runs it.

    `shape` is that of its first input. `axes` are those of the ranks that talk, innermost first,
    none for a kernel; `note` is what else says how they do (`dim=1`). `moved` are bytes between
    memory and the chip and `flops` operations, also of the copies beside a collective; `wire` are
    the bytes that the rank sends. `launches` counts the kernel and those copies. `pin` is empty
    where no kernel is pinned.
    """

    module: str
    op: str
    dtype: DType
    shape: tuple[int, ...]
    moved: int = 0
    flops: int = 0
    axes: tuple[str, ...] = ()
    note: str = ""
    wire: int = 0
    launches: int = 1
    pin: str = ""

    @property
    def communicates(self) -> bool:
        """Whether ranks talk."""
        return bool(self.axes)

    @property
    def held(self) -> int:
        """Bytes of the first input: what a rank holds before a collective."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Section:
    """What each of some layers does, in order; without layers, what comes before or after all."""

    layers: tuple[int, ...]
    entries: tuple[Entry, ...]

    @property
    def times(self) -> int:
        """How often a step runs it."""
        return max(1, len(self.layers))


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One phase at one bucket of one attention replica; see `schema.Program`.

    `sections`: what comes before the layers, the layers by kind, and what comes behind them.
    """

    name: str
    phase: Phase
    tokens: int
    sequences: int
    logits: str
    arena_bytes: int
    sections: tuple[Section, ...]

    def in_order(self) -> Iterator[tuple[int | None, Entry]]:
        """Every entry of a step with its layer."""
        head, *kinds, tail = self.sections
        bodies = {layer: kind.entries for kind in kinds for layer in kind.layers}
        yield from ((None, entry) for entry in head.entries)
        for layer in sorted(bodies):
            yield from ((layer, entry) for entry in bodies[layer])
        yield from ((None, entry) for entry in tail.entries)


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """A weight of some layers (none: it belongs to no layer): what one rank holds of it.

    `kind` says what it is part of, one of WEIGHT_KINDS; a `constant` derives from the config alone.
    `cut` says over which axes which dims are cut, such as `0@a+b`; `stack@c` is the number of
    experts. It is empty for a replicated weight.
    """

    name: str
    layers: tuple[int, ...]
    kind: str
    dtype: DType
    shape: tuple[int, ...]
    cut: str

    @property
    def bytes_(self) -> int:
        """Of all its layers, on one rank."""
        return prod(self.shape) * self.dtype.itemsize * max(1, len(self.layers))


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Layers that share a page layout: `heads` of one rank, cut over `axes`."""

    name: str
    layers: tuple[int, ...]
    dtype: DType
    heads: int
    width: int
    planes: int
    window: int | None
    axes: tuple[str, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over its layers, on one rank."""
        return len(self.layers) * self.planes * self.heads * self.width * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pages of one rank; `pages` counts the null page, `host_pages` lie in host memory."""

    page_size: int
    pages: int
    host_pages: int
    caches: tuple[CacheLayout, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over all layers, on one rank."""
        return sum(cache.token_bytes for cache in self.caches)

    @property
    def bytes_(self) -> int:
        """Bytes of the pool in device memory."""
        return self.pages * self.page_size * self.token_bytes


@dataclass(frozen=True, slots=True)
class CommunicationPlan:
    """A whole deployment. `unpinned` says why no kernel is pinned, and is empty where all are."""

    name: str
    architecture: str
    dtype: DType
    target: Target
    mesh: Mesh
    limits: Limits
    pool: Pool
    weights: tuple[WeightLayout, ...]
    programs: tuple[ProgramPlan, ...]
    unpinned: str = ""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of one rank by what takes them: weights by kind, `kv`, `arena`."""
        taken: dict[str, int] = {}
        for weight in self.weights:
            taken[weight.kind] = taken.get(weight.kind, 0) + weight.bytes_
        arena = max((program.arena_bytes for program in self.programs), default=0)
        return {**taken, "kv": self.pool.bytes_, "arena": arena}


WEIGHT_KINDS = ("embedding", "head", "attention", "mlp", "experts", "other", "constant")
"""What a weight may be part of, in the order in which memory is listed."""
