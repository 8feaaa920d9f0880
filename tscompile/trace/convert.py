"""Conversion of a torch.fx graph of ops into nodes that name their values."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, cast

from torch import fx

from tscompile.ir.graph import Node, layer_of
from tskernels.ops import Op


@dataclass
class Converted:
    """Nodes in order, every tensor's name, and the values that come from outside, as read."""

    nodes: tuple[Node, ...] = ()
    output: str = ""
    inputs: tuple[str, ...] = ()
    names: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])

    def name(self, node: fx.Node) -> str:
        """The name of the value that an fx node stands for."""
        return self.names[node]


def convert(graph: fx.Graph, module_of: Mapping[fx.Node, str], leaves: Set[str]) -> Converted:
    """Name every op's output after its module: `layers.3.q_proj`, `layers.3.rotary_1`.

    Of an op with several: `layers.3.route.ids`.
    """
    result = Converted()
    nodes: list[Node] = []
    read: dict[str, None] = {}
    taken: set[str] = set()
    parts: dict[fx.Node, tuple[str, ...]] = {}
    for node in graph.nodes:
        match node.op:
            case "placeholder" | "get_attr":
                result.names[node] = cast("str", node.meta["value"])
            case "call_function" if node.target is getitem:
                source, index = cast("tuple[fx.Node, int]", node.args)
                result.names[node] = parts[source][index]
            case "call_function":
                op = cast("Op[..., Any]", node.target)
                module = module_of[node]
                name = _unique(_value_name(module, op.schema.name, leaves), taken)
                inputs = tuple(None if a is None else result.names[a] for a in _inputs(node))
                read.update(dict.fromkeys(i for i in inputs if i and i not in taken))
                outputs = _outputs(name, op.schema.outputs)
                taken.update((name, *outputs))
                result.names[node], parts[node] = outputs[0], outputs
                nodes.append(Node(op.schema.name, inputs, outputs, dict(node.kwargs), module))
            case _:
                result.output = result.names[cast("fx.Node", node.args[0])]
    result.nodes, result.inputs = tuple(nodes), tuple(read)
    return result


def _outputs(name: str, schema: tuple[str, ...]) -> tuple[str, ...]:
    """Names of an op's outputs: several are told apart as the schema calls them."""
    return (name,) if len(schema) == 1 else tuple(f"{name}.{output}" for output in schema)


def _inputs(node: fx.Node) -> tuple[fx.Node | None, ...]:
    return cast("tuple[fx.Node | None, ...]", node.args)


def _value_name(module: str, op: str, leaves: Set[str]) -> str:
    layer = layer_of(module)
    last = module.rpartition(".")[2] if module in leaves else op
    return last if layer is None else f"layers.{layer}.{last}"


def _unique(name: str, taken: Set[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}_{n}" for n in range(1, len(taken) + 2) if f"{name}_{n}" not in taken)
