"""Gluon for Triton's interpreter, which has none: Triton's functions, with layouts left out.

A layout says which thread holds what, and changes no value.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

_LAYOUTS = (
    "BlockedLayout",
    "DotOperandLayout",
    "NVMMADistributedLayout",
    "SliceLayout",
    "SwizzledSharedLayout",
)


class _Shared:
    """Shared memory: what was stored last."""

    def __init__(self) -> None:
        self._value: object = None

    def store(self, value: object) -> None:
        self._value = value

    def load(self, _: object) -> object:
        return self._value


def install() -> None:
    """Have Gluon's kernels that are imported from here on be defined for the interpreter."""
    triton, language = (importlib.import_module(f"triton{end}") for end in ("", ".language"))
    functions = ModuleType("gluon_interpreter.language")
    names: dict[str, Any] = dict.fromkeys(_LAYOUTS, _none)
    names["__getattr__"] = partial(getattr, language)
    names["arange"] = lambda start, end, _: language.arange(start, end)  # pyright: ignore[reportUnknownLambdaType]
    names["zeros"] = lambda shape, dtype, _: language.zeros(shape, dtype)  # pyright: ignore[reportUnknownLambdaType]
    names["allocate_shared_memory"] = lambda *_: _Shared()  # pyright: ignore[reportUnknownLambdaType]
    names["barrier"] = lambda: None
    names["nvidia"] = SimpleNamespace(ampere=SimpleNamespace(mma_v2=partial(_dot, language)))
    vars(functions).update(names)
    language.block_type.layout = language.dtype.layout = None
    gluon = importlib.import_module("triton.experimental.gluon")
    vars(gluon).update(jit=triton.jit, language=functions)


def _none(*_: object) -> None:
    return None


def _dot(language: Any, a: object, b: object, sums: object) -> object:
    return language.dot(a, b, sums, input_precision="ieee")
