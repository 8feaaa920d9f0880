"""What a rewrite is, and how it sees the nodes that it joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tscompile.ir.errors import FusionError
from tscompile.ir.graph import Node
from tsruntime.artifact.schema import Attribute


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Nodes of one fusion, in order, to the node of the fused op `op`.

    `join` raises FusionError where they are not what the op stands for. It decides nothing: the
    search has, and says so by the nodes' mark.
    """

    op: str
    join: Callable[[Sequence[Node]], Node]


def taken(op: str, nodes: Sequence[Node], kinds: Sequence[str]) -> Sequence[Node]:
    """The nodes, which must be of these kinds in this order."""
    found = [node.op for node in nodes]
    if found != list(kinds):
        refuse(op, nodes, f"it joins {', '.join(kinds)}, not {', '.join(found)}")
    return nodes


def needs(op: str, nodes: Sequence[Node], what: str, condition: bool) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        refuse(op, nodes, what)


def equal_attribute(op: str, nodes: Sequence[Node], name: str) -> Attribute:
    """An attribute that all the nodes have, and have alike."""
    values = [node.attributes[name] for node in nodes]
    if any(value != values[0] for value in values):
        refuse(op, nodes, f"{name} differs: {', '.join(map(str, values))}")
    return values[0]


def refuse(op: str, nodes: Sequence[Node], why: str) -> NoReturn:
    """Raise FusionError."""
    module = nodes[-1].module if nodes else ""
    raise FusionError(
        f"the search fused nodes into {op} that cannot be one: {why}",
        remedy="if no one edited the plan, the search has a defect: report it",
        where=module,
    )
