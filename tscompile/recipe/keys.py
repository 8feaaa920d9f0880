"""Every key of a recipe as data: for the table in docs/recipe.md and for suggestions."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from .recipe import Recipe
from .section import Default, Section, Vllm

MetadataT = TypeVar("MetadataT", Default, Vllm)


@dataclass(frozen=True, slots=True)
class KeyDoc:
    """One key: dotted path, type and default in words, vLLM's name, meaning."""

    path: str
    type: str
    default: str
    vllm: str
    meaning: str

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]


@cache
def all_keys() -> tuple[KeyDoc, ...]:
    """Every key that holds a value, in the order of the models."""
    return tuple(_walk(Recipe, ""))


def section_of(path: tuple[str, ...]) -> type[Section] | None:
    """The model of the section at `path` (empty for the recipe itself), None if it is none."""
    section: type[Section] = Recipe
    for part in path:
        field = section.model_fields.get(part)
        inner = None if field is None else _section(field)
        if inner is None:
            return None
        section = inner
    return section


def _walk(section: type[Section], prefix: str) -> Iterator[KeyDoc]:
    for name, field in section.model_fields.items():
        inner = _section(field)
        if inner is None or _metadata(field, Default) is not None:
            yield _document(f"{prefix}{name}", field)
        if inner is not None:
            yield from _walk(inner, f"{prefix}{name}.")


def _document(path: str, field: FieldInfo) -> KeyDoc:
    default = _metadata(field, Default)
    vllm = _metadata(field, Vllm)
    return KeyDoc(
        path,
        _type_text(field.annotation),
        default.text if default else _default_text(field),
        vllm.name if vllm else "",
        " ".join((field.description or "").split()),
    )


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default()
    if value is None:
        return "none"
    return "[]" if value == () else str(value)


def _metadata(field: FieldInfo, kind: type[MetadataT]) -> MetadataT | None:
    return next((m for m in field.metadata if isinstance(m, kind)), None)


def _section(field: FieldInfo) -> type[Section] | None:
    for option in (field.annotation, *_options(field.annotation)):
        if isinstance(option, type) and issubclass(option, Section):
            return option
    return None


def _options(annotation: object) -> tuple[object, ...]:
    """Members of a union, without their tags."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return ()
    return tuple(_bare(option) for option in get_args(annotation))


def _bare(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _type_text(annotation: object) -> str:
    """A type in words: `whole number`, `cpu or cuda`, `list of [whole number, whole number]`."""
    annotation = _bare(annotation)
    options = [o for o in _options(annotation) if o is not type(None)]
    if options:
        return " or ".join(_type_text(option) for option in options)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Literal:
            return " or ".join(str(value).lower() for value in arguments)
        case origin if origin is tuple and arguments[-1] is Ellipsis:
            return f"list of {_type_text(arguments[0])}"
        case origin if origin is tuple:
            return f"[{', '.join(_type_text(a) for a in arguments)}]"
        case origin if origin is dict:
            return "mapping of " + " to ".join(_type_text(a) for a in arguments)
        case _:
            return _NAMES.get(cast("type", annotation), "mapping")


_NAMES: Final[Mapping[type, str]] = {int: "whole number", str: "text", bool: "true or false"}
