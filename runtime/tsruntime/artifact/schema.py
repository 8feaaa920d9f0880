"""The frozen plan: what the compiler writes and the runtime executes, as plain data.

Everything is static: shapes, storage, kernels and collectives of every program. Values are named;
names are unique in a program. All sizes in a program are those of one rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from tskernels.schema import DType

SCHEMA_VERSION = 1

NULL_PAGE = 0
"""KV page that padding rows write to and unused block-table entries name; never allocated."""

NULL_SLOT = 0
"""Slot, in the null page, of every padding row and of no other: it tells ops which rows they are.
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the mesh."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ordered axes, innermost first, and each group as a set of them (innermost first).

    rank = sum of coordinate(axis) * stride(axis), the innermost axis having stride 1.
    """

    axes: tuple[Axis, ...]
    groups: Mapping[str, tuple[str, ...]]

    @property
    def world(self) -> int:
        """Number of ranks."""
        size = 1
        for axis in self.axes:
            size *= axis.size
        return size

    def size(self, axes: tuple[str, ...]) -> int:
        """Number of ranks along `axes` together."""
        sizes = {axis.name: axis.size for axis in self.axes}
        product = 1
        for name in axes:
            product *= sizes[name]
        return product

    def coordinate(self, rank: int, axes: tuple[str, ...]) -> int:
        """Index of `rank` along `axes`, the first named being the innermost digit."""
        digits: dict[str, int] = {}
        for axis in self.axes:
            rank, digits[axis.name] = divmod(rank, axis.size)
        sizes = {axis.name: axis.size for axis in self.axes}
        index, stride = 0, 1
        for name in axes:
            index += digits[name] * stride
            stride *= sizes[name]
        return index

    def members(self, rank: int, axes: tuple[str, ...]) -> tuple[int, ...]:
        """The ranks that share `rank`'s coordinates outside `axes`, ordered by coordinate."""
        outside = tuple(axis.name for axis in self.axes if axis.name not in axes)
        home = self.coordinate(rank, outside)
        peers = [r for r in range(self.world) if self.coordinate(r, outside) == home]
        return tuple(sorted(peers, key=lambda r: self.coordinate(r, axes)))


@dataclass(frozen=True, slots=True)
class RankIndex:
    """An integer attribute that differs by rank: coordinate(axes) * stride."""

    axes: tuple[str, ...]
    stride: int


Attribute: TypeAlias = bool | int | float | str | tuple[int, ...] | tuple[str, ...] | RankIndex


@dataclass(frozen=True, slots=True)
class ArenaStorage:
    """Bytes of the program's arena. Strides and offset in elements; `offset_bytes` is absolute."""

    offset_bytes: int
    strides: tuple[int, ...]
    kind: Literal["arena"] = "arena"


@dataclass(frozen=True, slots=True)
class WeightStorage:
    """A weight of the plan, by name."""

    weight: str
    kind: Literal["weight"] = "weight"


@dataclass(frozen=True, slots=True)
class InputStorage:
    """A program input, by name; the executor owns its buffer."""

    input: str
    kind: Literal["input"] = "input"


@dataclass(frozen=True, slots=True)
class CacheStorage:
    """The KV pool of one layer in one cache group."""

    group: str
    layer: int
    kind: Literal["cache"] = "cache"


Storage: TypeAlias = Annotated[
    ArenaStorage | WeightStorage | InputStorage | CacheStorage, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a program: its local type, where it lives, and its placement for people.

    `placement` is a label such as `Partial@a`; nothing trusts it.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    storage: Storage
    placement: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """One step: the op's schema name, its pinned kernel, values by name, typed attributes.

    `pin` names a registered solution (`linear.native_cpu`), or is `view` for ops that only alias.
    `module` is the dotted path of the module that asked for it.
    """

    op: str
    pin: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    module: str


class Phase(StrEnum):
    """What a program's rows are."""

    DECODE = "decode"  # one token of each sequence
    EXTEND = "extend"  # prefill chunks and decodes mixed


@dataclass(frozen=True, slots=True)
class Program:
    """One phase at one bucket: at most `tokens` rows of at most `sequences` sequences.

    `logits` is "last" (one row a sequence) or "all" (one row a token). Inputs, all int32:
    `token_ids`, `positions` [tokens]; `query_starts` [sequences + 1]; `seq_lens`, `logit_rows`
    [sequences]; per cache group G `slot_mapping.G` [tokens] and `block_table.G`
    [sequences, max_pages]. A program names just those that it reads. Padding sequences have
    length 0 and an empty query range; padding tokens map to the null slot.
    `output` names the value that holds the logits [rows, vocab_size], equal on every rank.
    """

    name: str
    phase: Phase
    tokens: int
    sequences: int
    logits: Literal["last", "all"]
    inputs: tuple[str, ...]
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    output: str
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` tensors of one shape (experts), stacked along a new dim 0, which `axes` cut."""

    count: int
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightPart:
    """A slice of one checkpoint tensor: its `dim` cut over `axes`, this rank's digit kept.

    `shape` is the whole tensor's; `padded` is the size of `dim` after padding with zeros (equal to
    shape[dim] where nothing is padded). With `dim` None the tensor is taken whole.

    With a `stack` the part is of `count` tensors, each cut so: `{}` in `tensor` stands for a
    tensor's number, `shape` and `dim` are one tensor's, and this rank keeps its digit of the
    numbers too. Such a part is the only one of its weight.
    """

    tensor: str
    shape: tuple[int, ...]
    dim: int | None = None
    axes: tuple[str, ...] = ()
    padded: int | None = None
    stack: Stack | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """One local weight: parts concatenated along dim 0, each sharded first.

    It is stored once per coordinate along `axes`: see `weight_file`. A `constant` is derived from
    the config alone (inverse RoPE frequencies) and given by value, so that it exists without a
    checkpoint.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    parts: tuple[WeightPart, ...]
    axes: tuple[str, ...] = ()
    constant: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share a page layout.

    A layer's pool is [pages, planes, kv_heads, page_size, head_dim]: of two planes the key is at
    index 0 and the value at 1; one plane holds latents, from which both follow. `kv_heads` are this
    rank's, cut over `axes`. `window` is the sliding window in tokens, or None.
    """

    name: str
    layers: tuple[int, ...]
    kv_heads: int
    head_dim: int
    dtype: DType
    axes: tuple[str, ...]
    window: int | None = None
    planes: int = 2


@dataclass(frozen=True, slots=True)
class KvCache:
    """Pages of every group. `pages` counts the null page; `host_pages` does not.

    Of each group, `host_pages` more lie in host memory: what a retracted request had computed
    waits there. With 0 it is computed again.
    """

    page_size: int
    pages: int
    groups: tuple[CacheGroup, ...]
    host_pages: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the runtime admits. `max_pages` = ceil(max_model_len / page_size).

    With `steps_in_flight` 2 a step is planned while the one before it runs; with 1, after it.
    """

    max_model_len: int
    max_batch: int
    token_budget: int
    max_pages: int
    steps_in_flight: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """The hardware that the plan was built for."""

    device: Literal["cpu", "cuda"]
    arch: str
    topology: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `tsrun` executes."""

    schema_version: int
    name: str
    architecture: str
    target: Target
    mesh: Mesh
    dtype: DType
    vocab_size: int
    limits: Limits
    kv_cache: KvCache
    weights: tuple[Weight, ...]
    programs: tuple[Program, ...]
    dummy_seed: int | None = None
    """Seed of the counter-based weights where the recipe asks for `weights: dummy`, else None."""


def part_shape(mesh: Mesh, part: WeightPart) -> tuple[int, ...]:
    """What one rank holds of a part: [numbers, ...] of a stack."""
    shape = list(part.shape)
    if part.dim is not None:
        whole = shape[part.dim] if part.padded is None else part.padded
        shape[part.dim] = whole // mesh.size(part.axes)
    if part.stack is not None:
        shape.insert(0, part.stack.count // mesh.size(part.stack.axes))
    return tuple(shape)


def part_axes(part: WeightPart) -> tuple[str, ...]:
    """All axes that cut a part."""
    return part.axes if part.stack is None else (*part.stack.axes, *part.axes)


def part_tensors(part: WeightPart) -> tuple[str, ...]:
    """Names of the checkpoint tensors that a part is made of, in their order."""
    if part.stack is None:
        return (part.tensor,)
    return tuple(part.tensor.format(number) for number in range(part.stack.count))


def weight_file(mesh: Mesh, weight: Weight, rank: int) -> str:
    """File under `weights/` that holds `rank`'s shard of `weight`.

    `replicated.safetensors`, or `<axes joined by +>-<coordinate>.safetensors` (`a-2.safetensors`).
    """
    if not weight.axes:
        return "replicated.safetensors"
    return f"{'+'.join(weight.axes)}-{mesh.coordinate(rank, weight.axes)}.safetensors"
