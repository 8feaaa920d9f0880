"""Signatures in stubs, and those that nanobind keeps of its functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Signature:
    """Argument names in order, which of them are keyword-only, and the defaults."""

    positional: tuple[str, ...]
    keyword: tuple[str, ...]
    defaults: tuple[object, ...]


def signature(node: ast.FunctionDef) -> Signature:
    """Of a function in a stub."""
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    return Signature(
        tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args)),
        tuple(arg.arg for arg in node.args.kwonlyargs),
        tuple(ast.literal_eval(default) for default in defaults),
    )


def _overload(text: str, defaults: Sequence[object]) -> Signature:
    """Parses one of nanobind's signatures, whose defaults stand as \\0, \\1 or as None."""
    plain = re.sub(r"ndarray\[[^\]]*\]", "ndarray", text)
    node = ast.parse(re.sub(r"\\\d+", "None", plain) + ": ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    bare = signature(node)
    nones = [None] * (len(bare.defaults) - len(defaults))
    return Signature(bare.positional, bare.keyword, (*defaults, *nones))


def extension_signature(function: object) -> Signature:
    """Of a function in an extension."""
    overloads = cast(
        "tuple[tuple[str, object, tuple[object, ...] | None], ...]",
        getattr(function, "__nb_signature__"),  # noqa: B009
    )
    found = {_overload(text, defaults or ()) for text, _, defaults in overloads}
    assert len(found) == 1, "overloads differ in their arguments"
    return found.pop()
