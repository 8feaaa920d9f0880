"""Pack linears that read one value into one linear and a split: QKV, gate and up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight
from tscompile.ir.graph import Node
from tsruntime.artifact.schema import WeightStorage

_PARTS: Mapping[str, tuple[str, ...]] = {
    "linear": ("weight", "bias"),
    "scaled_linear": ("weight", "weight_scale_inv", "bias"),
}
"""The products that are packed: what their inputs behind x are called."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Linears that become one: its name, and under `joined` what is joined, in order.

    That is for each input behind x its name and those of the linears' own, where it is not absent.
    """

    module: str
    name: str
    joined: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def weights(self) -> tuple[str, ...]:
        """Their weights, in order."""
        return self.joined[0][1]

    @property
    def operands(self) -> tuple[str, ...]:
        """Everything that is joined."""
        return tuple(name for _, names in self.joined for name in names)


def pack(draft: Draft) -> Draft:
    """Pack, in every program alike, the linears that all programs allow to be packed."""
    first, *others = (_packs(draft, program) for program in draft.programs)
    packs = [p for p in first if all(p in other for other in others)]
    weights = dict(draft.weights)
    for p in packs:
        for suffix, parts in p.joined:
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
        if node.op in _PARTS and all(w is None or w in draft.weights for w in node.inputs[1:]):
            groups.setdefault(_group_key(draft, node), []).append(node)
    return {
        _pack(group): None
        for group in groups.values()
        if len(group) > 1
        and all(readers[w] == 1 for n in group for w in n.inputs[1:] if w)
        and _in_blocks(draft, group)
    }


def _in_blocks(draft: Draft, group: Sequence[Node]) -> bool:
    """Whether each packed weight begins with a whole block of those that share a scale."""
    match group[0].attributes.get("block"):
        case (int(rows), *_):
            weights = [draft.weights[node.inputs[1] or ""] for node in group[:-1]]
            return all(weight.type.shape[0] % rows == 0 for weight in weights)
        case _:
            return True


def _group_key(draft: Draft, node: Node) -> object:
    x, *operands = node.inputs
    placed = tuple(None if w is None else draft.weights[w] for w in operands)
    return (
        x,
        node.op,
        tuple(sorted(node.attributes.items())),
        node.module.rpartition(".")[0],
        tuple(None if w is None else (w.placements, w.type.dtype) for w in placed),
    )


def _pack(group: Sequence[Node]) -> Pack:
    parent = group[0].module.rpartition(".")[0]
    stems = [n.module.rpartition(".")[2].removesuffix("_proj") for n in group]
    joint = "" if all(len(stem) == 1 for stem in stems) else "_"
    joined = tuple(
        (suffix, names)
        for i, suffix in enumerate(_PARTS[group[0].op], 1)
        if (names := tuple(name for n in group if (name := n.inputs[i]) is not None))
    )
    return Pack(parent, f"{joint.join(stems)}_proj", joined)


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
    gone = {w for p in packs for w in p.operands}
    values = {name: v for name, v in program.values.items() if name not in gone}
    nodes: list[Node] = []
    for node in program.nodes:
        weight = node.inputs[1] if node.op in _PARTS else None
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
    joined = {suffix: weights[f"{pack.module}.{pack.name}.{suffix}"] for suffix, _ in pack.joined}
    for w in joined.values():
        values[w.name] = DraftValue(w.name, w.type, w.placements, WeightStorage(w.name))
    part = values[parts[0]]
    shape = (part.type.shape[0], joined["weight"].type.shape[0])
    values[joint] = DraftValue(joint, replace(part.type, shape=shape), part.placements)
    sizes = tuple(values[name].type.shape[1] for name in parts)
    present = (joined.get(suffix) for suffix in _PARTS[node.op])
    inputs = (node.inputs[0], *(None if w is None else w.name for w in present))
    return (
        Node(node.op, inputs, (joint,), node.attributes, pack.module, fused=node.fused),
        Node("split", (joint,), parts, {"sizes": sizes}, pack.module, fused=node.fused),
    )
