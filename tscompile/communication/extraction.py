"""From a frozen plan to what it communicates: one pure function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tscompile.communication.plan import (
    CacheLayout,
    CommunicationPlan,
    Entry,
    Pool,
    ProgramPlan,
    Section,
    WeightLayout,
)
from tscompile.communication.prices import BOTH, LEGS, wires
from tscompile.communication.work import Call, work_of
from tscompile.cost.model import CostModel
from tscompile.cost.topology import find_topology
from tskernels.ops import OPS
from tskernels.schema import OpKind, TensorType
from tsruntime.artifact.schema import (
    CacheGroup,
    InputStorage,
    KvCache,
    Op,
    Plan,
    Program,
    Value,
    Weight,
    WeightPart,
    WeightStorage,
)

_LAYERED = re.compile(r"^(?:.*\.)?layers\.(\d+)(?:\.(.*))?$")
_RESHARDS = frozenset((*LEGS, "slice", "mask", "permute"))
"""Ops that change a value's placement, fused or not."""

_ATTENTION = re.compile(r"attn|attention")


def communication(plan: Plan, unpinned: str = "") -> CommunicationPlan:
    """What `plan` sends, runs and holds on one rank.

    `unpinned` says why its ops have no kernels, where they have none.
    """
    costs = CostModel(find_topology(plan.target.topology), plan.mesh.axes)
    return CommunicationPlan(
        name=plan.name,
        architecture=plan.architecture,
        dtype=plan.dtype,
        target=plan.target,
        mesh=replace(plan.mesh, groups=dict(sorted(plan.mesh.groups.items()))),
        limits=plan.limits,
        pool=_pool(plan.kv_cache),
        weights=_weights(plan),
        programs=tuple(_program(plan, program, costs) for program in plan.programs),
        unpinned=unpinned,
    )


def placed(name: str) -> tuple[int | None, str]:
    """The layer that a module or weight belongs to, and its name within that layer."""
    match = _LAYERED.match(name)
    return (None, name) if match is None else (int(match[1]), match[2] or "")


def _pool(cache: KvCache) -> Pool:
    groups = tuple(_cache(group) for group in cache.groups)
    return Pool(cache.page_size, cache.pages, cache.host_pages, groups)


def _cache(group: CacheGroup) -> CacheLayout:
    return CacheLayout(
        group.name,
        group.layers,
        group.dtype,
        group.kv_heads,
        group.head_dim,
        group.planes,
        group.window,
        group.axes,
    )


def _weights(plan: Plan) -> tuple[WeightLayout, ...]:
    """Every distinct weight, those of layers that are alike together."""
    kinds = _kinds(plan)
    layers: dict[WeightLayout, list[int]] = {}
    for weight in plan.weights:
        layer, name = placed(weight.name)
        kind = kinds.get(weight.name, "other") if weight.parts else "constant"
        layout = WeightLayout(name, (), kind, weight.dtype, weight.shape, _cut(weight))
        layers.setdefault(layout, []).extend(() if layer is None else (layer,))
    return tuple(replace(layout, layers=tuple(found)) for layout, found in layers.items())


def _cut(weight: Weight) -> str:
    """Where the parts of a packed weight are cut differently, all are listed."""
    cuts = dict.fromkeys(cut for part in weight.parts for cut in _part_cuts(part))
    return " ".join(cuts)


def _part_cuts(part: WeightPart) -> list[str]:
    cuts: list[str] = []
    if part.stack is not None and part.stack.axes:
        cuts.append(f"stack@{'+'.join(part.stack.axes)}")
    if part.dim is not None and part.axes:
        cuts.append(f"{part.dim}@{'+'.join(part.axes)}")
    return cuts


def _kinds(plan: Plan) -> dict[str, str]:
    """What each weight is part of, by the first op that reads it."""
    kinds: dict[str, str] = {}
    for program in plan.programs[:1]:
        storages = {v.name: v.storage for v in program.values}
        for op in program.ops:
            for name in op.inputs:
                storage = storages[name] if name is not None else None
                if isinstance(storage, WeightStorage):
                    kinds.setdefault(storage.weight, _kind(op, storage.weight))
    return kinds


def _kind(op: Op, weight: str) -> str:
    if op.op in ("embedding", "experts"):
        return {"embedding": "embedding", "experts": "experts"}[op.op]
    layer, module = placed(op.module)
    if not weight.endswith("weight") or "norm" in weight:
        return "other"
    if layer is None:
        return "head"
    return "attention" if _ATTENTION.search(module) else "mlp"


def _program(plan: Plan, program: Program, costs: CostModel) -> ProgramPlan:
    reader = _Reader.of(plan, program, costs)
    head: list[Entry] = []
    bodies: dict[int, list[Entry]] = {}
    tail: list[Entry] = []
    for op in program.ops:
        if OPS[op.op].schema.kind is OpKind.VIEW:
            continue
        layer, module = placed(reader.module(op))
        entry = reader.entry(op, module)
        if layer is not None:
            bodies.setdefault(layer, []).append(entry)
        else:
            (tail if bodies and not reader.of_input(op) else head).append(entry)
    return ProgramPlan(
        name=program.name,
        phase=program.phase,
        tokens=program.tokens,
        sequences=program.sequences,
        logits=program.logits,
        arena_bytes=program.arena_bytes,
        sections=(Section((), tuple(head)), *_alike(bodies), Section((), tuple(tail))),
    )


def _alike(bodies: Mapping[int, Iterable[Entry]]) -> list[Section]:
    """Layers that do the same together, the kinds in the order of their first layers."""
    kinds: dict[tuple[Entry, ...], list[int]] = {}
    for layer in sorted(bodies):
        kinds.setdefault(tuple(bodies[layer]), []).append(layer)
    return [Section(tuple(layers), entries) for entries, layers in kinds.items()]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the ops of one program; `whole` are the numbers of experts of stacked weights."""

    plan: Plan
    costs: CostModel
    values: Mapping[str, Value]
    types: Mapping[str, TensorType]
    makers: Mapping[str, str]
    read: frozenset[str]
    stacks: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan, program: Program, costs: CostModel) -> _Reader:
        values = {value.name: value for value in program.values}
        makers = {name: op.module for op in program.ops for name in op.outputs}
        read = {name for op in program.ops for name in op.inputs if name is not None}
        stacks = {w.name: p.stack.count for w in plan.weights for p in w.parts if p.stack}
        types = {value.name: TensorType(value.dtype, value.shape) for value in program.values}
        return cls(plan, costs, values, types, makers, frozenset((*read, program.output)), stacks)

    def module(self, op: Op) -> str:
        """Who asked for an op; of a reshard who made the value that it changes.

        So a reduction is found under the same name whether it is fused with what follows or not.
        A value that a layer makes itself (a sum of branches) has no name of its own.
        """
        source = op.inputs[0]
        if op.op not in _RESHARDS or source is None:
            return op.module
        if self.of_input(op):
            return source
        maker = self.makers.get(source, "")
        return maker if placed(maker)[1] else op.module

    def of_input(self, op: Op) -> bool:
        """Whether a reshard is one of a program's inputs, which every layer may then read."""
        source = op.inputs[0]
        return (
            op.op in _RESHARDS
            and source is not None
            and isinstance(self.values[source].storage, InputStorage)
        )

    def entry(self, op: Op, module: str) -> Entry:
        call = self._call(op)
        work, first = work_of(call), next(t for t in call.inputs if t is not None)
        communicates = OPS[op.op].schema.kind is OpKind.COLLECTIVE
        axes = op.attributes["axes"] if communicates else ()
        assert isinstance(axes, tuple)
        entry = Entry(
            module=module,
            op=op.op,
            dtype=first.dtype,
            shape=first.shape,
            moved=work.moved,
            flops=work.flops,
            axes=tuple(str(axis) for axis in axes),
            note=_note(op) if communicates else "",
            launches=work.launches,
            pin=op.pin,
        )
        if not communicates:
            return entry
        return replace(entry, wire=wires(self.costs, self.plan.mesh, entry).wire_bytes)

    def _call(self, op: Op) -> Call:
        inputs = tuple(None if name is None else self.types[name] for name in op.inputs)
        unread = {i for i, name in enumerate(op.outputs) if name not in self.read}
        return Call(
            op.op,
            inputs,
            tuple(self.types[name] for name in op.outputs),
            op.attributes,
            tuple(None if n is None else self._whole(n) for n in op.inputs),
            frozenset(unread),
        )

    def _whole(self, name: str) -> TensorType:
        """A stacked weight with all of its experts; other types as they are, since rules read
        nothing else of the whole.
        """
        type_, storage = self.types[name], self.values[name].storage
        count = self.stacks.get(storage.weight) if isinstance(storage, WeightStorage) else None
        return type_ if count is None else replace(type_, shape=(count, *type_.shape[1:]))


def _note(op: Op) -> str:
    """Which dims a collective cuts and joins, where that is not plain."""
    if op.attributes.get("both"):
        return BOTH
    names = ("dim", "split_dim", "concat_dim")
    found = [f"{name}={op.attributes[name]}" for name in names if op.attributes.get(name)]
    return ",".join(found)
