"""Turns pydantic's errors into problems that name the key, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from tscompile.errors import Problem

from .keys import all_keys, section_of
from .section import RefusalError
from .source import Document, Key, dotted


def diagnose(document: Document, error: ValidationError) -> Iterator[Problem]:
    """One problem for each of pydantic's errors."""
    for item in error.errors(include_url=False):
        key = _key(item["loc"])
        context = cast("Mapping[str, Any]", item.get("ctx", {}))
        if item["type"] == "too_short" and item["input"]:
            continue  # its entries failed, which is reported for each of them
        if item["type"] == "extra_forbidden":
            yield unknown_key(document, key)
            continue
        cause = context.get("error")
        if isinstance(cause, RefusalError):
            message, remedy = cause.message, cause.remedy
        else:
            message, remedy = _explain(item["type"], item["input"], context, item["msg"], key)
        yield Problem(document.where(key), message, remedy)


def unknown_key(document: Document, key: Key) -> Problem:
    """An unknown key, with the nearest known one."""
    name = str(key[-1])
    return Problem(document.where(key), f"unknown key {name!r}", _suggest(name, key[:-1]))


def _key(location: tuple[int | str, ...]) -> Key:
    """Pydantic's location as a path; `chat` carries the tag of its union, a mapping `[key]`."""
    if location[0] == "chat":
        location = ("chat", *location[2:])
    return tuple(part for part in location if part != "[key]")


def _suggest(name: str, section: Key) -> str:
    """The nearest key of the section, else the key of that name elsewhere, else vLLM's."""
    model = section_of(tuple(str(part) for part in section))
    known = list(model.model_fields) if model is not None else []
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {dotted((*section, near[0]))}?"
    flag = "--" + name.lower().strip("-").replace("_", "-")
    for key in all_keys():
        if key.name == name:
            return f"did you mean {key.path}?"
        if flag in key.vllm.split():
            return f"vLLM's {flag} is {key.path} here"
    near = difflib.get_close_matches(name, [key.name for key in all_keys()], n=1, cutoff=0.75)
    if near:
        return f"did you mean {next(k.path for k in all_keys() if k.name == near[0])}?"
    place = f"keys of {dotted(section)}" if section else "top-level keys"
    return f"{place}: {', '.join(known)}"


def _explain(
    kind: str, value: object, context: Mapping[str, Any], fallback: str, key: Key
) -> tuple[str, str]:
    """Message and remedy for one kind of pydantic error."""
    shown = _show(value)
    match kind:
        case "missing":
            return f"{key[-1]} is required", f"add `{key[-1]}:` there (see docs/recipe.md)"
        case "greater_than" | "greater_than_equal" | "less_than":
            least = {"greater_than": "above", "greater_than_equal": "at least"}.get(kind, "below")
            bound = next(context[name] for name in ("gt", "ge", "lt") if name in context)
            return f"{shown} is out of range: it must be {least} {bound}", "give a number in range"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"{shown} is not a whole number", "write a plain number, without quotes"
        case "string_type":
            return f"{shown} is not text", "quote it if it is meant as text"
        case "string_too_short":
            return f"{shown} is empty", "write a value or leave the key out"
        case "string_pattern_mismatch":
            return (
                f"{shown} is not a name: a letter or digit, then letters, digits, '.', '_', '-'",
                "choose a name such as llama-3-8b-tp4",
            )
        case "literal_error":
            return _explain_literal(shown, value, str(context["expected"]))
        case "tuple_type" | "list_type" | "too_short" | "too_long" | "dict_type":
            return _explain_shape(kind, shown, context, key)
        case "model_type" | "model_attributes_type":
            return f"{shown} is not a mapping", f"write keys below `{key[-1]}:`"
        case _:
            return f"{shown}: {fallback}", "see docs/recipe.md"


def _explain_literal(shown: str, value: object, expected: str) -> tuple[str, str]:
    options = expected.replace("'", "").replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(str(value), options, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]}?" if near else f"write {' or '.join(options)}"
    return f"{shown} is not one of {', '.join(options)}", remedy


def _explain_shape(kind: str, shown: str, context: Mapping[str, Any], key: Key) -> tuple[str, str]:
    if key[:2] in (("buckets", "extend"), ("buckets", "all_logits")):
        remedy = "write pairs such as [[64, 8], [256, 8]]"
    elif key[:2] == ("buckets", "decode"):
        remedy = "write a list such as [1, 2, 4, 8]"
    else:
        remedy = "write a mapping from file name to SHA-256"
    if kind == "too_short":
        return f"{shown} has fewer than {context['min_length']} entries", remedy
    if kind == "too_long":
        return f"{shown} has more than {context['max_length']} entries", remedy
    return f"{shown} is not a {'mapping' if kind == 'dict_type' else 'list'}", remedy


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
