"""Freeze a finished draft into the artifact's plan, unfolding it where it is folded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain

from tscompile.ir.alike import Numbers
from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight, renamed_storage
from tscompile.ir.graph import Node
from tscompile.ir.placement import Labels
from tscompile.ir.unfolding import Group, Unfolding
from tsruntime.artifact.schema import (
    SCHEMA_VERSION,
    ArenaStorage,
    Mesh,
    Op,
    Plan,
    Program,
    Value,
    Weight,
    WeightStorage,
    part_axes,
)


def finish(draft: Draft) -> Plan:
    """The plan of a draft that has been through all passes and `verify`.

    Of a folded one the whole model's: its copies are alike.
    """
    finishing = _Finishing(draft)
    return Plan(
        schema_version=SCHEMA_VERSION,
        name=draft.name,
        architecture=draft.architecture,
        target=draft.target,
        mesh=draft.mesh,
        dtype=draft.dtype,
        vocab_size=draft.vocab_size,
        limits=draft.limits,
        kv_cache=draft.kv_cache,
        weights=finishing.weights(),
        programs=tuple(finishing.program(program) for program in draft.programs),
        dummy_seed=draft.dummy_seed,
    )


def _weight(mesh: Mesh, weight: DraftWeight) -> Weight:
    cut = {axis for part in weight.parts for axis in part_axes(part)}
    return Weight(
        name=weight.name,
        dtype=weight.type.dtype,
        shape=weight.type.shape,
        parts=weight.parts,
        axes=tuple(axis.name for axis in mesh.axes if axis.name in cut),
        constant=weight.constant,
    )


class _Finishing:
    """What programs share: names, labels, and the ops and weights that are the same in them."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._labels = draft, Labels(draft.mesh)
        self._unfolding = Unfolding(draft.repeats)
        self._numbers = Numbers()
        self._ops: dict[Hashable, Sequence[Op]] = {}
        self._weights: dict[str, Sequence[Value]] = {}

    def weights(self) -> tuple[Weight, ...]:
        """All of them, in the draft's order."""
        mesh, weights = self._draft.mesh, self._draft.weights
        groups = {name: self._unfolding.group_of(name) for name in weights}
        each = self._unfolding.each(weights, groups)
        return tuple([_weight(mesh, weight.renamed(names)) for weight, names in each])

    def program(self, program: DraftProgram) -> Program:
        """One of the draft's programs."""
        stretches = self._unfolding.stretches(program)
        ops = self._ops_of(stretches)
        groups = self._unfolding.groups(program, stretches)
        return Program(
            name=program.name,
            phase=program.phase,
            tokens=program.tokens,
            sequences=program.sequences,
            logits=program.logits,
            inputs=program.inputs,
            values=self._values_of(program, groups, ops),
            ops=ops,
            output=self._unfolding.once[program.output],
            arena_bytes=program.arena_bytes,
        )

    def _ops_of(self, stretches: Iterable[tuple[Group, Sequence[Node]]]) -> tuple[Op, ...]:
        found: list[Op] = []
        for group, nodes in stretches:
            copies = zip(*[self._copies(node, group) for node in nodes], strict=True)
            found += chain.from_iterable(copies)
        return tuple(found)

    def _copies(self, node: Node, group: Group) -> Sequence[Op]:
        """The op of each copy; most programs do most of the same."""
        attributes = self._numbers.attributes(node)
        key = (node.op, node.pin, node.inputs, node.outputs, attributes, node.module, group)
        ops = self._ops.get(key)
        if ops is None:
            each = (node.renamed(names) for names in self._unfolding.names(group))
            ops = self._ops[key] = [
                Op(n.op, n.pin, n.inputs, n.outputs, n.attributes, n.module) for n in each
            ]
        return ops

    def _values_of(
        self, program: DraftProgram, groups: Mapping[str, Group], ops: Sequence[Op]
    ) -> tuple[Value, ...]:
        """The values that ops touch, in the order in which they first do."""
        ends = chain.from_iterable((op.inputs, op.outputs) for op in ops)
        order = dict.fromkeys(chain.from_iterable(ends))
        found = {
            value.name: value
            for name, one in program.values.items()
            for value in self._value_copies(one, groups[name])
        }
        return tuple([found[name] for name in order if name is not None])

    def _value_copies(self, value: DraftValue, group: Group) -> Sequence[Value]:
        """The value of each copy; a weight is the same in all programs."""
        if not isinstance(value.storage, WeightStorage):
            return self._values(value, group)
        found = self._weights.get(value.name)
        if found is None:
            found = self._weights[value.name] = self._values(value, group)
        return found

    def _values(self, value: DraftValue, group: Group) -> list[Value]:
        type_, label, storage = value.type, self._labels(value.placements), value.storage
        assert storage is not None, f"{value.name} has no storage"
        every = self._unfolding.names(group)
        if isinstance(storage, ArenaStorage):
            return [Value(n[value.name], type_.dtype, type_.shape, storage, label) for n in every]
        return [
            Value(n[value.name], type_.dtype, type_.shape, renamed_storage(storage, n), label)
            for n in every
        ]
