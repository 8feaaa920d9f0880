"""A recipe's YAML as plain data, with the line of every key and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tscompile.errors import OverrideError, Problem, RecipeNotFoundError, RecipeSyntaxError

_yaml = cast("Any", yaml)  # its stubs leave much unknown

Key: TypeAlias = tuple[str | int, ...]
"""Path of a value: `("buckets", "extend", 1, 0)`."""

MAX_BYTES = 1 << 20
"""A recipe larger than this is some other file."""


def dotted(key: Key) -> str:
    """`buckets.extend[1][0]` of a path."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


@dataclass(slots=True)
class Document:
    """The data of a recipe and where each key stands; grows while it is read, then is kept.

    `places` maps a path to `recipe.yaml:12` or `--set`.
    """

    file: str
    data: dict[str, object]
    places: dict[Key, str] = field(default_factory=dict[Key, str])
    problems: list[tuple[Key, Problem]] = field(default_factory=list[tuple[Key, Problem]])

    def where(self, key: Key) -> str:
        """The place of `key`, or of the nearest mapping around it, and its dotted path."""
        for length in range(len(key), -1, -1):
            place = self.places.get(key[:length])
            if place is not None:
                return f"{place} {dotted(key)}".rstrip()
        return f"{self.file} {dotted(key)}".rstrip()


def read_document(path: Path) -> Document:
    """Read and parse `path`; duplicate keys and the like are noted as problems."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RecipeNotFoundError(
            f"cannot read the recipe: {error.strerror}",
            remedy="name a recipe such as recipes/smollm2-135m-cpu.yaml",
            where=str(path),
        ) from error
    if len(raw) > MAX_BYTES:
        raise RecipeSyntaxError(
            f"{len(raw)} bytes is no recipe (at most {MAX_BYTES})",
            remedy="name the YAML recipe, not a checkpoint",
            where=str(path),
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecipeSyntaxError(
            f"not UTF-8 text (byte {error.start})",
            remedy="save the recipe as UTF-8",
            where=str(path),
        ) from error
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> Document:
    """Parse YAML `text` that came from `file`."""
    root = _compose(text, file)
    document = Document(file, {})
    if not isinstance(root, MappingNode):
        found = "empty" if root is None else f"a {_kind(root)}"
        raise RecipeSyntaxError(
            f"a recipe is a mapping of keys, this is {found}",
            remedy="start with `name: my-deployment`",
            where=file,
        )
    reader = _NodeReader(document, file)
    document.data = cast("dict[str, object]", reader.read(root, ()))
    return document


def override(document: Document, assignment: str) -> None:
    """Apply one `--set key.path=value`; `null` takes the key out, so that its default holds."""
    name, equals, text = assignment.partition("=")
    parts = tuple(name.strip().split("."))
    if not equals or not all(parts):
        raise OverrideError(
            f"{assignment!r} is not key.path=value",
            remedy="write for example --set parallel.world=3",
            where="--set",
        )
    parsed = _parse_value(text, parts)
    _forget(document, parts)
    section = document.data
    for depth, part in enumerate(parts[:-1], 1):
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = section[part] = {}
            document.places.pop(parts[:depth], None)
        document.places.setdefault(parts[:depth], "--set")
        section = cast("dict[str, object]", inner)
    if parsed.data["value"] is None:
        section.pop(parts[-1], None)
        return
    section[parts[-1]] = parsed.data["value"]
    document.places[parts] = "--set"
    document.problems.extend(parsed.problems)


def _parse_value(text: str, parts: tuple[str, ...]) -> Document:
    where = f"--set {'.'.join(parts)}"
    node = _compose(text, where, override=True)
    parsed = Document(where, {"value": None})
    if node is not None:
        parsed.data["value"] = _NodeReader(parsed, "--set", placed=False).read(node, parts)
    return parsed


def _forget(document: Document, parts: tuple[str, ...]) -> None:
    """Drop the places under a path, and the problems found there: they are overridden."""
    for key in [key for key in document.places if key[: len(parts)] == parts]:
        del document.places[key]
    document.problems = [p for p in document.problems if p[0][: len(parts)] != parts]


def _compose(text: str, where: str, *, override: bool = False) -> Node | None:
    """The YAML node tree of `text`; a syntax error becomes one clear line."""
    try:
        return cast("Node | None", _yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        kind = OverrideError if override else RecipeSyntaxError
        message, line = _explain(error, text)
        place = where if override or line is None else f"{where}:{line}"
        raise kind(message, remedy=_syntax_remedy(message), where=place) from error


def _explain(error: yaml.YAMLError, text: str) -> tuple[str, int | None]:
    """One line about a YAML error, and its line number."""
    mark = cast(
        "yaml.Mark | None",
        getattr(error, "problem_mark", None) or getattr(error, "context_mark", None),
    )
    if mark is None:
        return str(error).replace("\n", " "), None
    line = mark.line + 1
    lines = text.splitlines()
    content = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in content[: mark.column + 1]:
        return f"a tab at column {content.index(chr(9)) + 1}; YAML indents with spaces", line
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    context = getattr(error, "context", None)
    return "not YAML: " + (f"{context}, {problem}" if context else problem), line


def _syntax_remedy(message: str) -> str:
    if message.startswith("a tab"):
        return "replace the tab with spaces"
    return "correct the YAML there; the mistake may be on the line before"


class _NodeReader:
    """Turns YAML nodes into data, noting places and problems in the document."""

    def __init__(self, document: Document, file: str, *, placed: bool = True) -> None:
        self._document = document
        self._file = file
        self._placed = placed
        self._scalars = cast("Any", yaml.SafeLoader(""))
        self._open: list[Node] = []

    def read(self, node: Node, key: Key) -> object:
        """The value of `node`, which stands at `key`."""
        if any(node is outer for outer in self._open):
            self._refuse(node, key, "an alias refers to itself", "write the value out")
            return None
        self._mark(node, key)
        self._open.append(node)
        try:
            return self._value(node, key)
        finally:
            self._open.pop()

    def _value(self, node: Node, key: Key) -> object:
        match node:
            case MappingNode():
                return dict(self._entries(node, key))
            case SequenceNode():
                return [self.read(item, (*key, i)) for i, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, key)
            case _:
                raise TypeError(f"unexpected YAML node {node!r}")

    def _scalar(self, node: ScalarNode, key: Key) -> object:
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            reason = getattr(error, "problem", None) or str(error)
            self._refuse(node, key, f"{node.value!r}: {reason}", "write a plain value or quote it")
            return None

    def _entries(self, node: MappingNode, key: Key) -> Iterator[tuple[str, object]]:
        seen: dict[str, int] = {}
        for name_node, value_node in node.value:
            name = self._scalar(name_node, key) if isinstance(name_node, ScalarNode) else None
            if not isinstance(name, str):
                text = getattr(name_node, "value", "")
                shown = repr(text) if isinstance(text, str) else "a collection"
                self._refuse(name_node, key, f"{shown} is not a key's name", "keys are plain words")
                continue
            line = _line(name_node)
            if name in seen:
                self._refuse(
                    name_node,
                    (*key, name),
                    f"the key is there twice, first on line {seen[name]}",
                    "keep one of them",
                )
                continue
            seen[name] = line
            value = self.read(value_node, (*key, name))
            if self._placed:  # a key's place is where its name stands, not its block of values
                self._document.places[(*key, name)] = f"{self._file}:{line}"
            yield name, value

    def _mark(self, node: Node, key: Key) -> None:
        if self._placed:
            self._document.places[key] = f"{self._file}:{_line(node)}"

    def _refuse(self, node: Node, key: Key, message: str, remedy: str) -> None:
        place = f"{self._file}:{_line(node)}" if self._placed else self._file
        where = f"{place} {dotted(key)}".rstrip()
        self._document.problems.append((key, Problem(where, message, remedy)))


def _kind(node: Node) -> str:
    return "list" if isinstance(node, SequenceNode) else "single value"


def _line(node: Node) -> int:
    mark = cast("yaml.Mark | None", node.start_mark)
    return 1 if mark is None else mark.line + 1


def plain(value: object) -> Mapping[str, object]:
    """`value` if it is a mapping, else an empty one (what it is instead is reported elsewhere)."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
