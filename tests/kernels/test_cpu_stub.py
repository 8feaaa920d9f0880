"""The checked-in stub `_cpu.pyi` names what the extension has, parameter by parameter."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tskernels
from tskernels import _cpu


def stub() -> dict[str, list[str]]:
    """Functions of the stub with their parameters; classes with none."""
    folders = [Path(folder) for folder in tskernels.__path__]  # an editable install has two
    (path,) = {folder / "_cpu.pyi" for folder in folders if (folder / "_cpu.pyi").exists()}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [a.arg for a in node.args.args]
        elif isinstance(node, ast.ClassDef):
            found[node.name] = []
    return found


def extension() -> dict[str, list[str]]:
    """The same, from the docstrings that the binding generates: `add(a: int, b: int) -> ...`."""
    found: dict[str, list[str]] = {}
    for name in (n for n in dir(_cpu) if not n.startswith("__")):
        value = getattr(_cpu, name)
        text = "" if isinstance(value, type) else str(value.__doc__)
        inside = text.split("(", 1)[-1].rsplit(") ->", 1)[0]
        found[name] = re.findall(r"(\w+):", inside)
    return found


def test_the_stub_is_the_extension() -> None:
    assert stub() == extension()
