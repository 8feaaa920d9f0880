"""Freeze a finished draft into the artifact's plan."""

from __future__ import annotations

from collections.abc import Mapping

from tscompile.ir.draft import Draft, DraftProgram, DraftWeight
from tscompile.ir.placement import Placements, label
from tsruntime.artifact.schema import (
    SCHEMA_VERSION,
    Mesh,
    Op,
    Plan,
    Program,
    Value,
    Weight,
    part_axes,
)


def finish(draft: Draft) -> Plan:
    """The plan of a draft that has been through all passes and `verify`."""
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
        weights=tuple(_weight(draft.mesh, w) for w in draft.weights.values()),
        programs=tuple(_program(draft.mesh, program) for program in draft.programs),
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


def _program(mesh: Mesh, program: DraftProgram) -> Program:
    return Program(
        name=program.name,
        phase=program.phase,
        tokens=program.tokens,
        sequences=program.sequences,
        logits=program.logits,
        inputs=program.inputs,
        values=tuple(_values(mesh, program)),
        ops=tuple(
            Op(node.op, node.pin, node.inputs, node.outputs, node.attributes, node.module)
            for node in program.nodes
        ),
        output=program.output,
        arena_bytes=program.arena_bytes,
    )


def _values(mesh: Mesh, program: DraftProgram) -> list[Value]:
    """The values that ops touch, in the order in which they first do."""
    order = dict.fromkeys(
        name for node in program.nodes for name in (*node.inputs, *node.outputs) if name is not None
    )
    distinct = dict.fromkeys(program.values[name].placements for name in order)
    labels = {placements: label(mesh, placements) for placements in distinct}
    return [_value(labels, program, name) for name in order]


def _value(labels: Mapping[Placements, str], program: DraftProgram, name: str) -> Value:
    value = program.values[name]
    assert value.storage is not None, f"{name} has no storage"
    type_, storage = value.type, value.storage
    return Value(name, type_.dtype, type_.shape, storage, labels[value.placements])
