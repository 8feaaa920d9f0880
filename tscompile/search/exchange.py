"""Experts by all-to-all: what it costs, and the nodes that it becomes.

Ranks along the exchanged axes hold rows of their own and experts of their own. `dispatch` lays out
a block of rows for each of them, three all-to-alls carry rows, ids and weights, the experts run on
what arrives, one more all-to-all carries their sums back, and `combine` adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tscompile.cost.model import Collective, CostModel, Price
from tscompile.ir.draft import DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.placement import Shard, axes_with
from tscompile.rules import OpTypes
from tscompile.rules.rule import size_in_bytes
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Attribute, Mesh, RankIndex

ALL_TO_ALL = "all_to_all"
"""Tag of the axes along which experts get their rows by an exchange."""

_ROWS = 3
"""The experts' rows, ids and weights: their first inputs."""

_GATE = 3
"""Position of a weight that is cut as the experts are."""

IMPOSSIBLE = Price(1 << 50)
"""More than any program costs: an exchange whose experts no one `dispatch` can describe."""


def at_experts(types: OpTypes, ranks: int) -> OpTypes:
    """The local types behind the exchange: the rows of all its ranks."""

    def more(type_: TensorType | None) -> TensorType | None:
        if type_ is None:
            return None
        rows, *others = type_.shape
        return replace(type_, shape=(rows * ranks, *others))

    inputs = (*map(more, types.inputs[:_ROWS]), *types.inputs[_ROWS:])
    outputs = tuple(t for t in map(more, types.outputs) if t is not None)
    return replace(types, inputs=inputs, outputs=outputs)


def exchange_price(
    costs: CostModel, mesh: Mesh, experts: Sequence[str], axes: tuple[str, ...], types: OpTypes
) -> Price:
    """There and back, before and behind the experts, whose local `types` are of one rank's rows.

    `experts` are the axes that cut the experts. With static capacity a row goes to every rank; a
    backend that sends valid rows only sends it to at most as many as it has choices.
    """
    if not _describable(experts, axes):
        return IMPOSSIBLE
    rows, ids, weights = types.inputs[:_ROWS]
    assert ids is not None
    ranks = mesh.size(axes)
    copies = min(ranks, ids.shape[1]) if costs.topology.valid_rows_only else ranks
    held, choices = copies * size_in_bytes(rows), size_in_bytes(ids) + size_in_bytes(weights)
    legs = [held, held, ranks * size_in_bytes(ids), ranks * size_in_bytes(weights)]
    price = costs.kernel(2 * held + 2 * ranks * choices) + costs.kernel(2 * held)
    for leg in legs:
        price += costs.collective(Collective.ALL_TO_ALL, axes, leg)
    return price


def exchanged(
    mesh: Mesh,
    node: Node,
    axes: tuple[str, ...],
    values: Mapping[str, DraftValue],
    fresh: Callable[[str], str],
) -> tuple[list[Node], dict[str, DraftValue]]:
    """The nodes that do what the experts' `node` does, by an exchange over `axes`; new values.

    Its rows, ids, weights and output are cut along dim 0 over `axes` (and lie there already),
    its weights' experts too. `fresh` makes a value's name unique.
    """
    ranks, stem = mesh.size(axes), node.outputs[0]
    where = _destinations(mesh, values[node.inputs[_GATE] or ""], axes)
    over: dict[str, Attribute] = {"axes": axes, "size": ranks, "split_dim": 0, "concat_dim": 0}
    made: dict[str, DraftValue] = {}

    def name(word: str, model: str) -> str:
        """A value `word` with the rows of all ranks' blocks, otherwise as `model`."""
        result, value = fresh(f"{stem}.{word}"), values[model]
        rows, *others = value.type.shape
        type_ = replace(value.type, shape=(rows * ranks, *others))
        made[result] = DraftValue(result, type_, value.placements)
        return result

    own = [source or "" for source in node.inputs[:_ROWS]]
    words = ("rows", "ids", "weights")
    sent = [name(f"sent_{word}", model) for word, model in zip(words, own, strict=True)]
    come = [name(word, model) for word, model in zip(words, own, strict=True)]
    done, back = name("done", stem), name("back", stem)
    there = [
        Node(ALL_TO_ALL, (source,), (target,), over, node.module)
        for source, target in zip(sent, come, strict=True)
    ]
    nodes = [
        Node("dispatch", tuple(own), tuple(sent), where, node.module),
        *there,
        replace(node, inputs=(*come, *node.inputs[_ROWS:]), outputs=(done,)),
        Node(ALL_TO_ALL, (done,), (back,), over, node.module),
        Node("combine", (back, own[1]), (stem,), where, node.module),
    ]
    return nodes, made


def _destinations(mesh: Mesh, gate: DraftValue, axes: tuple[str, ...]) -> dict[str, Attribute]:
    """Whose experts begin where: evenly apart, from this rank's place on the other axes on."""
    cut = axes_with(mesh, gate.placements, Shard(0))
    assert _describable(cut, axes), f"{axes} of {cut}"
    held = gate.type.shape[0] // mesh.size(cut)
    others = tuple(axis for axis in cut if axis not in axes)
    inner = others if cut[: len(others)] == others else ()
    step = held * mesh.size(inner)
    apart = held if inner else step * mesh.size(axes)
    first: Attribute = RankIndex(others, apart) if others else 0
    return {"ranks": mesh.size(axes), "step": step, "held": held, "first": first}


def _describable(experts: Sequence[str], axes: tuple[str, ...]) -> bool:
    """Whether the exchanged axes are the innermost or the outermost ones of the experts' digits."""
    count = len(axes)
    return tuple(experts[:count]) == axes or tuple(experts[-count:]) == axes
