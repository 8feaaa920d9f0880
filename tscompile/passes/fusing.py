"""Making marked nodes one: what `fuse_collectives` and `fuse_compute` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from tscompile.ir.draft import DraftProgram
from tscompile.ir.graph import Node
from tscompile.ir.typing import infer_types
from tscompile.rewrites.rewrite import Rewrite, refuse
from tskernels.errors import TsError


def fused(program: DraftProgram, rewrites: Mapping[str, Rewrite]) -> DraftProgram:
    """The program with every run of nodes whose mark names one of `rewrites` made one node.

    Values that only lie inside go. Raises FusionError where something else reads one, where the
    types do not fit the fused op, and where the nodes are not what it stands for.
    """
    nodes: list[Node] = []
    gone: set[str] = set()
    readers = _readers(program)
    for mark, run in groupby(program.nodes, key=lambda node: node.fused):
        group = list(run)
        rewrite = rewrites.get(mark.partition(":")[0])
        if rewrite is None:
            nodes += group
            continue
        node = rewrite.join(group)
        gone |= _inner(program, readers, group, node)
        _check_types(program, group, node)
        nodes.append(node)
    values = {name: value for name, value in program.values.items() if name not in gone}
    return replace(program, nodes=tuple(nodes), values=values)


def _readers(program: DraftProgram) -> Mapping[str, Sequence[Node]]:
    found: dict[str, list[Node]] = {}
    for node in program.nodes:
        for name in node.inputs:
            if name is not None:
                found.setdefault(name, []).append(node)
    return found


def _inner(
    program: DraftProgram,
    readers: Mapping[str, Sequence[Node]],
    group: Sequence[Node],
    node: Node,
) -> set[str]:
    """The values that the group makes and the fused op does not give; nobody else may read them."""
    inner = {name for member in group for name in member.outputs} - set(node.outputs)
    inner = {name for name in inner if not program.values[name].is_bound}
    members = set(map(id, group))
    for name in sorted(inner):
        for other in readers.get(name, ()):
            if id(other) not in members:
                refuse(node.op, group, f"{other.op} in {other.module} reads {name} too")
    if program.output in inner:
        refuse(node.op, group, f"{program.output} is the program's output")
    return inner


def _check_types(program: DraftProgram, group: Sequence[Node], node: Node) -> None:
    try:
        types = infer_types(node, program.values)
    except TsError as error:
        refuse(node.op, group, error.message)
    for name, type_ in zip(node.outputs, types, strict=True):
        if program.values[name].type != type_:
            refuse(node.op, group, f"{name} is {program.values[name].type}, not {type_}")
