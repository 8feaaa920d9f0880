"""Layers that are equal modules, called alike: what one of them did stands for the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from tscompile.models.annotations import Boundary
from tscompile.trace.modules import BUFFERS, CHILDREN, PARAMETERS

_LAYER = re.compile(r"(?:^|\.)layers\.\d+$")

_TABLES = frozenset((CHILDREN, PARAMETERS, BUFFERS))


@dataclass(frozen=True, slots=True)
class Crossing:
    """The values that enter and leave a module that annotates its boundary."""

    ends: tuple[fx.Node, fx.Node]
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Call:
    """A layer with what it was called with."""

    module: nn.Module
    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the call of a layer did: its nodes in order, its inner boundaries, and what it gave."""

    call: Call
    nodes: tuple[fx.Node, ...]
    crossings: tuple[tuple[str, Crossing], ...]
    result: fx.Node


@dataclass(frozen=True, slots=True)
class Copy:
    """A call that does what a recorded one did, of its own inputs and tensors.

    `inputs` and `tensors` (by name) are those of the recorded call with what stands for them.
    """

    of: Recorded
    path: str
    inputs: Mapping[fx.Node, fx.Node]
    tensors: Mapping[str, str]

    def moved(self, path: str) -> str:
        """The path in the copy of what lies at `path` in the recorded layer."""
        return self.path + path.removeprefix(self.of.call.path)


def is_layer(path: str) -> bool:
    """Whether the module at `path` is one of a list of layers."""
    return _LAYER.search(path) is not None


def copied(call: Call, of: Recorded, names: Mapping[int, str]) -> Copy | None:
    """A call as the copy of a recorded one, None where they differ in more than tensors.

    What a module does follows from its class, its attributes and what it is called with. `names`
    are those of tensors by identity.
    """
    inputs = _inputs(of.call, call)
    tensors = None if inputs is None else _tensors(of.call.module, call.module, names)
    return None if inputs is None or tensors is None else Copy(of, call.path, inputs, tensors)


def _inputs(here: Call, there: Call) -> dict[fx.Node, fx.Node] | None:
    """Traced arguments by those in the same places; None where others are not the same objects."""
    if len(here.args) != len(there.args) or here.kwargs.keys() != there.kwargs.keys():
        return None
    found: dict[fx.Node, fx.Node] = {}
    pairs = [*zip(here.args, there.args, strict=True)]
    pairs += [(value, there.kwargs[name]) for name, value in here.kwargs.items()]
    for one, other in pairs:
        if isinstance(one, fx.Proxy) and isinstance(other, fx.Proxy):
            if found.setdefault(one.node, other.node) is not other.node:
                return None
        elif one is not other:
            return None
    return found


def _tensors(here: nn.Module, there: nn.Module, names: Mapping[int, str]) -> dict[str, str] | None:
    """Names of one module's tensors by those of an equal one, None where the two are not equal."""
    pairs = _pairs(here, there)
    if pairs is None:
        return None
    found: dict[str, str] = {}
    for one, other in pairs:
        if found.setdefault(names[id(one)], names[id(other)]) != names[id(other)]:
            return None
    return found


def _pairs(here: nn.Module, there: nn.Module) -> list[tuple[Tensor, Tensor]] | None:
    """The tensors in the same places of two modules, None where the modules are not equal."""
    mine, own = vars(here), vars(there)
    if type(here) is not type(there) or not _equal_states(mine, own):
        return None
    found: list[tuple[Tensor, Tensor]] = []
    for table in (PARAMETERS, BUFFERS):
        for name, one in mine[table].items():
            other = own[table][name]
            if one is None and other is None:
                continue
            if one is None or other is None or not _same_type(one, other):
                return None
            found.append((one, other))
    for name, child in mine[CHILDREN].items():
        inner = _pairs(child, own[CHILDREN][name]) if child else []
        if inner is None:
            return None
        found += inner
    return found


def _equal_states(here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether two modules have equal attributes, and tensors and children of the same names."""
    if here.keys() != there.keys():
        return False
    for name, value in here.items():
        other = there[name]
        if name in _TABLES:
            if [*value] != [*other]:
                return False
        elif value is not other and not _equal(value, other):
            return False
    return True


def _equal(one: object, other: object) -> bool:
    """Whether attributes are known to be equal: of what holds tensors, that is not asked."""
    try:
        return type(one) is type(other) and bool(one == other)
    except (RuntimeError, ValueError):  # of tensors and arrays: they say so for each element
        return False


def _same_type(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
