"""The checked-in stub of the scheduler says what the extension has: names, arguments, defaults."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from nanobind_stubs import extension_signature, signature

import tsschedulers
from tsschedulers import _core

STUB = Path(tsschedulers.__file__).with_name("_core.pyi")


def _is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def _stub_classes() -> dict[str, ast.ClassDef]:
    body = ast.parse(STUB.read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def _functions(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


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
    stub = signature(_functions(CLASSES[name])[member])
    assert stub == extension_signature(getattr(getattr(_core, name), member))


def test_every_class_is_exported() -> None:
    assert set(tsschedulers.__all__) == {*CLASSES, "__version__"}
