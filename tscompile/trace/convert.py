"""Conversion of a torch.fx graph of ops into nodes that name their values."""

from __future__ import annotations

from collections.abc import Mapping, Set
from operator import getitem
from typing import Any, cast

from torch import fx

from tscompile.ir.graph import Node, layer_of
from tscompile.trace.copies import Copy
from tskernels.ops import Op


def convert(
    graph: fx.Graph,
    module_of: Mapping[fx.Node, str],
    copies: Mapping[fx.Node, Copy],
    leaves: Set[str],
) -> Converted:
    """Name every op's output after its module: `layers.3.q_proj`, `layers.3.rotary_1`.

    Of an op with several: `layers.3.route.ids`.
    """
    result = Converted(leaves)
    for node in graph.nodes:
        match node.op:
            case "placeholder" | "get_attr":
                result.names[node] = cast("str", node.meta["value"])
            case "call_function":
                result.add(node, module_of[node], result.names)
            case "call_module":
                result.copy(node, copies[node], module_of)
            case _:
                result.output = result.names[cast("fx.Node", node.args[0])]
    return result


class _CopyNames(dict[fx.Node, str]):
    """Names of a copy's values, by the fx nodes of the call that it copies."""

    def __init__(self, copy: Copy, outer: Mapping[fx.Node, str]) -> None:
        super().__init__({here: outer[there] for here, there in copy.inputs.items()})
        self._tensors, self._outer = copy.tensors, outer

    def __missing__(self, node: fx.Node) -> str:
        name = self._outer[node]
        return self._tensors.get(name, name)


class Converted:
    """Nodes in order, every tensor's name, and the values that come from outside, as read."""

    def __init__(self, leaves: Set[str]) -> None:
        self.nodes: list[Node] = []
        self.output = ""
        self.inputs: dict[str, None] = {}
        self.names: dict[fx.Node, str] = {}
        self._leaves = leaves
        self._copies: dict[fx.Node, _CopyNames] = {}
        self._taken: set[str] = set()
        self._attributes: dict[fx.Node, dict[str, Any]] = {}
        self._outputs: dict[str, tuple[str, ...]] = {}

    def name(self, node: fx.Node, copy: fx.Node | None = None) -> str:
        """The name of the value that an fx node stands for, or stands for in a copy."""
        return (self.names if copy is None else self._copies[copy])[node]

    def add(self, node: fx.Node, module: str, names: dict[fx.Node, str]) -> None:
        """Append what a call of a function is; `names` knows its inputs, and is told of it."""
        if node.target is getitem:
            source, index = cast("tuple[fx.Node, int]", node.args)
            names[node] = self._outputs[names[source]][index]
            return
        schema = cast("Op[..., Any]", node.target).schema
        name = self._unique(self._value_name(module, schema.name))
        inputs = tuple([None if a is None else names[a] for a in _inputs(node)])
        self.inputs.update(dict.fromkeys(i for i in inputs if i and i not in self._taken))
        outputs = _outputs(name, schema.outputs)
        self._taken.update((name, *outputs))
        names[node], self._outputs[outputs[0]] = outputs[0], outputs
        attributes = self._attributes.get(node)
        if attributes is None:
            attributes = self._attributes[node] = dict(node.kwargs)
        self.nodes.append(Node(schema.name, inputs, outputs, attributes, module))

    def copy(self, node: fx.Node, copy: Copy, module_of: Mapping[fx.Node, str]) -> None:
        """Append what a copy's recorded call did."""
        names = self._copies[node] = _CopyNames(copy, self.names)
        for one in copy.of.nodes:
            if one.op == "call_function":
                self.add(one, copy.moved(module_of[one]), names)
        self.names[node] = names[copy.of.result]

    def _value_name(self, module: str, op: str) -> str:
        layer = layer_of(module)
        last = module.rpartition(".")[2] if module in self._leaves else op
        return last if layer is None else f"layers.{layer}.{last}"

    def _unique(self, name: str) -> str:
        taken = self._taken
        if name not in taken:
            return name
        return next(f"{name}_{n}" for n in range(1, len(taken) + 2) if f"{name}_{n}" not in taken)


def _outputs(name: str, schema: tuple[str, ...]) -> tuple[str, ...]:
    """Names of an op's outputs: several are told apart as the schema calls them."""
    return (name,) if len(schema) == 1 else tuple(f"{name}.{output}" for output in schema)


def _inputs(node: fx.Node) -> tuple[fx.Node | None, ...]:
    return cast("tuple[fx.Node | None, ...]", node.args)
