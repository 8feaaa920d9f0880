"""Pack linears that read one value into one linear and a split: QKV, gate and up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight
from tscompile.ir.graph import Node
from tsruntime.artifact.schema import WeightStorage


@dataclass(frozen=True, slots=True)
class Pack:
    """Linears that become one: their weights (and biases, or none) in order, and its name."""

    module: str
    name: str
    weights: tuple[str, ...]
    biases: tuple[str, ...]


def pack(draft: Draft) -> Draft:
    """Pack, in every program alike, the linears that all programs allow to be packed."""
    first, *others = (_packs(draft, program) for program in draft.programs)
    packs = [p for p in first if all(p in other for other in others)]
    weights = dict(draft.weights)
    for p in packs:
        for suffix, parts in (("weight", p.weights), ("bias", p.biases)):
            if parts:
                joined = _joined(f"{p.module}.{p.name}.{suffix}", [weights.pop(w) for w in parts])
                weights[joined.name] = joined
    programs = tuple(_packed(program, packs, weights) for program in draft.programs)
    return replace(draft, weights=weights, programs=programs)


def _packs(draft: Draft, program: DraftProgram) -> dict[Pack, None]:
    """Groups of two or more linears under one parent module, of one input and one placement."""
    readers: dict[str, int] = {}
    groups: dict[object, list[Node]] = {}
    for node in program.nodes:
        for name in node.inputs:
            if name is not None:
                readers[name] = readers.get(name, 0) + 1
        if node.op == "linear" and node.inputs[1] in draft.weights:
            groups.setdefault(_group_key(draft, node), []).append(node)
    return {
        _pack(group): None
        for group in groups.values()
        if len(group) > 1 and all(readers[w] == 1 for n in group for w in n.inputs[1:] if w)
    }


def _group_key(draft: Draft, node: Node) -> object:
    x, weight, bias = node.inputs
    placed = tuple(None if w is None else draft.weights.get(w) for w in (weight, bias))
    return (
        x,
        node.module.rpartition(".")[0],
        tuple(None if w is None else (w.placements, w.type.dtype) for w in placed),
        bias is None or bias in draft.weights,
    )


def _pack(group: Sequence[Node]) -> Pack:
    parent = group[0].module.rpartition(".")[0]
    stems = [n.module.rpartition(".")[2].removesuffix("_proj") for n in group]
    joint = "" if all(len(stem) == 1 for stem in stems) else "_"
    weights = tuple(n.inputs[1] for n in group if n.inputs[1] is not None)
    biases = tuple(n.inputs[2] for n in group if n.inputs[2] is not None)
    return Pack(parent, f"{joint.join(stems)}_proj", weights, biases)


def _joined(name: str, weights: Sequence[DraftWeight]) -> DraftWeight:
    first = weights[0]
    rows = sum(w.type.shape[0] for w in weights)
    parts = tuple(part for w in weights for part in w.parts)
    type_ = replace(first.type, shape=(rows, *first.type.shape[1:]))
    return DraftWeight(name, type_, first.placements, parts)


def _packed(
    program: DraftProgram, packs: Sequence[Pack], weights: Mapping[str, DraftWeight]
) -> DraftProgram:
    """The first linear of each pack becomes the joint one and its split; the others go."""
    leaders = {p.weights[0]: p for p in packs}
    members = {w: p for p in packs for w in p.weights}
    outputs = {n.inputs[1]: n.outputs[0] for n in program.nodes if n.inputs[1:2]}
    gone = {w for p in packs for w in (*p.weights, *p.biases)}
    values = {name: v for name, v in program.values.items() if name not in gone}
    nodes: list[Node] = []
    for node in program.nodes:
        weight = node.inputs[1] if node.op == "linear" else None
        if weight in leaders:
            parts = tuple(outputs[w] for w in leaders[weight].weights)
            nodes.extend(_joint_nodes(node, leaders[weight], parts, values, weights))
        elif weight not in members:
            nodes.append(node)
    return replace(program, values=values, nodes=tuple(nodes))


def _joint_nodes(
    node: Node,
    pack: Pack,
    parts: tuple[str, ...],
    values: dict[str, DraftValue],
    weights: Mapping[str, DraftWeight],
) -> tuple[Node, Node]:
    stem = node.outputs[0].rpartition(".")[0]
    joint = f"{stem}.{pack.name}" if stem else pack.name
    full = f"{pack.module}.{pack.name}"
    weight = weights[f"{full}.weight"]
    bias = weights[f"{full}.bias"] if pack.biases else None
    for w in (weight, bias):
        if w is not None:
            values[w.name] = DraftValue(w.name, w.type, w.placements, WeightStorage(w.name))
    part = values[parts[0]]
    shape = (part.type.shape[0], weight.type.shape[0])
    values[joint] = DraftValue(joint, replace(part.type, shape=shape), part.placements)
    sizes = tuple(values[name].type.shape[1] for name in parts)
    inputs = (node.inputs[0], weight.name, None if bias is None else bias.name)
    return (
        Node("linear", inputs, (joint,), node.attributes, pack.module, fused=node.fused),
        Node("split", (joint,), parts, {"sizes": sizes}, pack.module, fused=node.fused),
    )
