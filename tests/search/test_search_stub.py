"""The checked-in stub of the search's core names what the extension has, argument by argument."""

from __future__ import annotations

import ast
from pathlib import Path

from nanobind_stubs import Signature, extension_signature, signature

import tscompile.search
from tscompile.search import _core

PROPERTY = Signature(("self",), (), ())


def stub() -> dict[str, Signature]:
    """Signatures by `Class.method`."""
    folders = [Path(folder) for folder in tscompile.search.__path__]  # an editable install has two
    (path,) = {folder / "_core.pyi" for folder in folders if (folder / "_core.pyi").exists()}
    return {
        f"{node.name}.{item.name}": signature(item)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    }


def extension() -> dict[str, Signature]:
    """The same of the extension."""
    classes = {name: value for name, value in vars(_core).items() if isinstance(value, type)}
    return {
        f"{name}.{member}": PROPERTY if isinstance(value, property) else extension_signature(value)
        for name, cls in classes.items()
        for member, value in vars(cls).items()
        if isinstance(value, property) or hasattr(value, "__nb_signature__")
    }


def test_the_stub_is_the_extension() -> None:
    assert stub() == extension()
