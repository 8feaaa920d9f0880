"""The checked-in stub of the scheduler says what the extension has: names, arguments, defaults."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

import tsschedulers
from tsschedulers import _core

STUB = Path(tsschedulers.__file__).with_name("_core.pyi")


@dataclass(frozen=True, slots=True)
class Signature:
    """Argument names in order, which of them are keyword-only, and the defaults."""

    positional: tuple[str, ...]
    keyword: tuple[str, ...]
    defaults: tuple[object, ...]


def _signature(node: ast.FunctionDef) -> Signature:
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    return Signature(
        tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args)),
        tuple(arg.arg for arg in node.args.kwonlyargs),
        tuple(ast.literal_eval(default) for default in defaults),
    )


def _is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def _stub_classes() -> dict[str, ast.ClassDef]:
    body = ast.parse(STUB.read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def _functions(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def _overload(text: str, defaults: Sequence[object]) -> Signature:
    """Parses one of nanobind's signatures, whose defaults stand as \\0, \\1 or as None."""
    plain = re.sub(r"ndarray\[[^\]]*\]", "ndarray", text)
    node = ast.parse(re.sub(r"\\\d+", "None", plain) + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    bare = _signature(node)
    nones = [None] * (len(bare.defaults) - len(defaults))
    return Signature(bare.positional, bare.keyword, (*defaults, *nones))


def _extension_signature(function: object) -> Signature:
    overloads = cast(
        "tuple[tuple[str, object, tuple[object, ...] | None], ...]",
        getattr(function, "__nb_signature__"),  # noqa: B009
    )
    found = {_overload(text, defaults or ()) for text, _, defaults in overloads}
    assert len(found) == 1, "overloads differ in their arguments"
    return found.pop()


CLASSES = _stub_classes()
PROPERTIES = [
    (name, item.name)
    for name, node in CLASSES.items()
    for item in _functions(node).values()
    if _is_property(item)
]
METHODS = [
    (name, item.name)
    for name, node in CLASSES.items()
    for item in _functions(node).values()
    if not _is_property(item) and item.name not in ("__eq__", "__hash__")
]


def test_classes_are_the_same() -> None:
    extension = {name for name, value in vars(_core).items() if inspect.isclass(value)}
    assert set(CLASSES) == extension


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_members_are_the_same(name: str) -> None:
    cls: type = getattr(_core, name)
    hidden = {"__init__", "__eq__", "__hash__"}
    stub = set(_functions(CLASSES[name])) - hidden
    assert stub == {member for member in vars(cls) if not member.startswith("__")}


@pytest.mark.parametrize(("name", "member"), PROPERTIES)
def test_properties_are_properties(name: str, member: str) -> None:
    assert isinstance(vars(getattr(_core, name))[member], property)


@pytest.mark.parametrize(("name", "member"), METHODS)
def test_methods_take_the_same_arguments(name: str, member: str) -> None:
    stub = _signature(_functions(CLASSES[name])[member])
    assert stub == _extension_signature(getattr(getattr(_core, name), member))


def test_every_class_is_exported() -> None:
    assert set(tsschedulers.__all__) == {*CLASSES, "__version__"}
