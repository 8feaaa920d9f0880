"""Freeze a finished draft into the artifact's plan."""

from __future__ import annotations

from itertools import chain

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight
from tscompile.ir.placement import Labels
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
    labels = Labels(draft.mesh)
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
        programs=tuple(_program(labels, program) for program in draft.programs),
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


def _program(labels: Labels, program: DraftProgram) -> Program:
    return Program(
        name=program.name,
        phase=program.phase,
        tokens=program.tokens,
        sequences=program.sequences,
        logits=program.logits,
        inputs=program.inputs,
        values=tuple(_values(labels, program)),
        ops=tuple(
            [
                Op(node.op, node.pin, node.inputs, node.outputs, node.attributes, node.module)
                for node in program.nodes
            ]
        ),
        output=program.output,
        arena_bytes=program.arena_bytes,
    )


def _values(labels: Labels, program: DraftProgram) -> list[Value]:
    """The values that ops touch, in the order in which they first do."""
    ends = chain.from_iterable((node.inputs, node.outputs) for node in program.nodes)
    order = dict.fromkeys(chain.from_iterable(ends))
    return [_value(labels, program.values[name]) for name in order if name is not None]


def _value(labels: Labels, value: DraftValue) -> Value:
    assert value.storage is not None, f"{value.name} has no storage"
    type_ = value.type
    return Value(value.name, type_.dtype, type_.shape, value.storage, labels(value.placements))
