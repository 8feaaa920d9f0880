"""What naive code, TokenSpeed and vLLM do with communication, as constraints on the same search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from tscompile.ir.errors import PolicyError
from tscompile.ir.mesh import ATTN_DP, ATTN_TP
from tscompile.ir.placement import REPLICATE, Placement, Placements, Shard
from tscompile.ir.request import PolicyName
from tscompile.search.graph import Indices, step_graph
from tscompile.search.layout import MeshAxes
from tscompile.search.program import Operation, Program
from tscompile.search.strategies import Batch
from tsruntime.artifact.schema import Mesh

_ATTENTION = frozenset({"attention", "mla"})
_STREAM = frozenset({"identity", "add", "select_rows"})
_NAIVE_WAYS = frozenset({"mask"})
_WAYS = _NAIVE_WAYS | {"all_to_all", "deferred"}
"""Tagged strategies: a bias that is added once; experts by all-to-all, and their sum with shared
ones reduced once.
"""
_FUSED_REDUCTION = "all_reduce+add+rms_norm"
_FUSED_FIRST_REDUCTION = "all_reduce+identity+rms_norm"


class Limits(Protocol):
    """What leaves out strategies of the search."""

    def columns(self, axes: MeshAxes, program: Program, batch: Batch) -> Indices:
        """The strategies of a batch that are left."""
        ...

    def signature(self, operation: Operation) -> tuple[object, ...]:
        """What is said of an op, for telling layers apart."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """The constraints: placements of some values, kernels with a collective inside, tagged ways.

    `places` lists for each value of the residual stream the placements that it may be produced in.
    """

    name: PolicyName
    places: Mapping[str, tuple[Placements, ...]]
    reductions: frozenset[str]
    tags: frozenset[str]

    def columns(self, axes: MeshAxes, program: Program, batch: Batch) -> Indices:
        """The strategies of a batch that it leaves."""
        kept = np.ones(len(batch), np.bool_)
        if "reduce" in batch.kind.split("+")[0] and batch.kind not in self.reductions:
            kept[:] = False
        if batch.notes:
            kept &= np.array([self._tagged(note) for note in batch.notes], np.bool_)
        for value, numbers in batch.places().items():
            if value in batch.outputs and value in self.places:
                graph = step_graph(axes, program.values[value].digits)
                allowed = [graph.index[p] for p in self.places[value]]
                kept &= np.isin(numbers, allowed)
        return np.flatnonzero(kept)

    def signature(self, operation: Operation) -> tuple[object, ...]:
        """What it says of an op, for telling layers apart."""
        return tuple(self.places.get(value) for value in operation.outputs)

    def _tagged(self, note: str) -> bool:
        return all(word.partition("[")[0] in self.tags for word in note.split())


def check_expressible(name: PolicyName, mesh: Mesh, program: Program) -> None:
    """PolicyError where the peer has no such sizes: vLLM has one for attention and dense layers."""
    if name is not PolicyName.VLLM:
        return
    attention = frozenset(mesh.groups[ATTN_TP])
    for block in _blocks(mesh.axes, program):
        if not block.attention and not block.experts and block.axes != attention:
            sizes = mesh.size(tuple(attention)), mesh.size(tuple(block.axes))
            raise PolicyError(
                f"vLLM has one size for attention and dense layers, not {sizes[0]} and {sizes[1]}",
                remedy="make attn_tp and dense_tp equal, or compare with another policy",
                where="parallel.dense_tp",
            )


def policy_of(name: PolicyName, mesh: Mesh, program: Program) -> Policy | None:
    """The constraints for one program; None where there are none."""
    match name:
        case PolicyName.OURS:
            return None
        case PolicyName.NAIVE:
            return _stream_policy(name, mesh, program, _whole, frozenset())
        case PolicyName.VLLM:
            fused = frozenset({_FUSED_REDUCTION, _FUSED_FIRST_REDUCTION})
            return _stream_policy(name, mesh, program, _whole_or_cut, fused)
        case PolicyName.TOKENSPEED:
            return _tokenspeed(mesh, program)


@dataclass(frozen=True, slots=True)
class _Block:
    """The last op of a block, whose output is a sum over `axes`, and its position."""

    position: int
    axes: frozenset[str]
    attention: bool
    experts: bool


def _blocks(axes: MeshAxes, program: Program) -> list[_Block]:
    """What is added to the residual stream: of attention, then of the MLP with all its experts."""
    readers = program.readers()
    found: list[_Block] = []
    attention = False
    for position, operation in enumerate(program.operations):
        attention = attention or operation.kind in _ATTENTION
        kinds = {program.operations[r].kind for v in operation.outputs for r in readers[v]}
        if operation.kind not in ("linear", "scaled_linear", "experts") or "add" not in kinds:
            continue
        block = _Block(position, _summed(axes, operation), attention, operation.kind == "experts")
        if found and not block.attention and not found[-1].attention:
            last = found.pop()  # an MLP in several parts: routed and shared experts
            parts = last.axes | block.axes
            block = replace(block, axes=parts, experts=block.experts or last.experts)
        found.append(block)
        attention = False
    return found


def _summed(axes: MeshAxes, operation: Operation) -> frozenset[str]:
    """The axes over which the output is a sum."""
    return frozenset(
        axis.name
        for i, axis in enumerate(axes)
        if any(_contracts(operation, b.placements[i]) for b in operation.bound)
    )


def _contracts(operation: Operation, placement: Placement) -> bool:
    """Whether a bound operand cut so makes the output a sum."""
    if operation.kind == "experts":
        return isinstance(placement, Shard)
    return placement == Shard(1)


def _residual_stream(program: Program) -> list[str]:
    """The values of the residual stream, and what its norms make of them, in order."""
    stream: set[str] = set()
    found: list[str] = []
    for operation in program.operations:
        inside = any(value in stream for value in operation.inputs)
        if operation.kind == "embedding" or (operation.kind in _STREAM and inside):
            stream.update(operation.outputs)
        if inside and operation.kind in ("identity", "add", "rms_norm"):
            found += operation.outputs
    return found


Places = Callable[[Mesh, tuple[str, ...]], tuple[Placements, ...]]


def _stream_policy(
    name: PolicyName, mesh: Mesh, program: Program, places: Places, reductions: frozenset[str]
) -> Policy:
    """One answer for the whole residual stream."""
    allowed = {
        value: places(mesh, program.values[value].digits[0]) for value in _residual_stream(program)
    }
    tags = _NAIVE_WAYS if name is PolicyName.NAIVE else _WAYS
    return Policy(name, MappingProxyType(allowed), reductions, tags)


def _whole(mesh: Mesh, tokens: tuple[str, ...]) -> tuple[Placements, ...]:
    """Each replica's rows on all of its ranks."""
    return (_rows_over(mesh, set(mesh.groups[ATTN_DP]) & set(tokens)),)


def _cut(mesh: Mesh, tokens: tuple[str, ...]) -> tuple[Placements, ...]:
    """Rows over all axes that divide them."""
    return (_rows_over(mesh, set(tokens)),)


def _whole_or_cut(mesh: Mesh, tokens: tuple[str, ...]) -> tuple[Placements, ...]:
    return tuple(dict.fromkeys((*_whole(mesh, tokens), *_cut(mesh, tokens))))


def _rows_over(mesh: Mesh, names: set[str]) -> Placements:
    return tuple(Shard(0) if axis.name in names else REPLICATE for axis in mesh.axes)


def _tokenspeed(mesh: Mesh, program: Program) -> Policy:
    """Whole rows where the sizes of ATTN_TP and of the nearest MLP's group are equal, else cut.

    What follows attention goes by the MLP to come, what follows an MLP by that one; before the
    first MLP the rows are whole.
    """
    size = mesh.size(mesh.groups[ATTN_TP])
    blocks, stream = _blocks(mesh.axes, program), frozenset(_residual_stream(program))
    allowed: dict[str, tuple[Placements, ...]] = {}
    for position, operation in enumerate(program.operations):
        if not stream.intersection(operation.outputs):
            continue
        before = [b for b in blocks if b.position < position]
        coming = [b for b in blocks if b.position > position and not b.attention]
        mlp = coming[0] if before and before[-1].attention and coming else None
        if before and not before[-1].attention:
            mlp = before[-1]
        equal = mlp is None or mesh.size(tuple(mlp.axes)) == size
        for value in operation.outputs:
            tokens = program.values[value].digits[0]
            allowed[value] = _whole(mesh, tokens) if equal else _cut(mesh, tokens)
    fused = frozenset({_FUSED_REDUCTION, _FUSED_FIRST_REDUCTION})
    return Policy(PolicyName.TOKENSPEED, MappingProxyType(allowed), fused, _WAYS)
