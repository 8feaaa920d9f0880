"""Reads the text form of a plan back: the inverse of `printer.print_draft`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, cast

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight, Edge
from tscompile.ir.errors import PlanTextError
from tscompile.ir.graph import Node
from tscompile.ir.placement import Placement, Placements, parse_label
from tscompile.ir.strides import contiguous_strides
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
    Axis,
    CacheGroup,
    CacheStorage,
    InputStorage,
    KvCache,
    Limits,
    Mesh,
    Phase,
    RankIndex,
    Stack,
    Storage,
    Target,
    WeightPart,
    WeightStorage,
)

_BLOCK = re.compile(r"layers (\d+)(?:\.\.(\d+))?((?: \[\S+ = \S+\])*) \{")
_BINDING = re.compile(r"\[(\S+) = (\S+)\]")
_NODE = re.compile(
    r"(?P<outputs>.+?) = (?P<op>\w+)\((?P<args>.*)\)(?: !(?P<pin>\S+))? in (\S+)"
    r"(?: fused (?P<fused>\S+))?"
)
_VALUE = re.compile(r"(\S+): (\w+)\[([\d,]*)\]((?: [A-Z]\S*@\S+)*)(?: @(\S+))?")
_PART = re.compile(
    r"(\S+)\[([\d,]+)\](?: stack (\d+)@(\S*))?(?: cut (\d+)@(\S*))?(?: padded (\d+))?"
)
_PROGRAM = re.compile(
    r"program (\S+) (\w+) tokens (\d+) sequences (\d+) logits (\w+) arena (\d+) \{"
)
_CACHE = re.compile(
    r"cache (\S+) (\w+) heads (\d+)x(\d+) over \[(\S*)\] layers (\S*)"
    r"(?: window (\d+))?(?: planes (\d+))?"
)


def parse_draft(text: str) -> Draft:
    """The draft that `print_draft` printed, without its pin records. Raises PlanTextError."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return _Reader([(number, line) for number, line in lines if line]).draft()


@dataclass
class _Body:
    """What has been read of a program."""

    values: dict[str, DraftValue] = field(default_factory=dict[str, DraftValue])
    nodes: list[Node] = field(default_factory=list[Node])
    edges: list[Edge] = field(default_factory=list[Edge])
    inputs: list[str] = field(default_factory=list[str])
    output: str = ""


class _Reader:
    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines, self.at = lines, 0

    def draft(self) -> Draft:
        name, architecture, dtype, vocab = self._take(r"plan (\S+) (\S+) (\w+) vocab (\d+)")
        device, arch, topology = self._take(r"target (cpu|cuda) (\S+) (\S+)")
        axes, groups = self._take(r"mesh \[(.*?)\] (.*)")
        self.mesh = _mesh(axes, groups)
        *sizes, steps = self._take(r"limits (\d+) (\d+) (\d+) (\d+)(?: steps (\d+))?")
        limits = Limits(*map(int, sizes), steps_in_flight=int(steps or 1))
        kv = self._take(r"kv page_size (\d+) pages (\d+)(?: host (\d+))?")
        page_size, pages, host_pages = (int(number or 0) for number in kv)
        caches = tuple(self._caches())
        seed = int(self._take(r"dummy_seed (\d+)")[0]) if self._next("dummy_seed ") else None
        self.weights = self._weights()
        return Draft(
            name=name,
            architecture=architecture,
            target=Target(cast("Literal['cpu', 'cuda']", device), arch, topology),
            mesh=self.mesh,
            dtype=DType(dtype),
            vocab_size=int(vocab),
            limits=limits,
            kv_cache=KvCache(page_size, pages, caches, host_pages),
            weights=self.weights,
            programs=tuple(self._programs()),
            dummy_seed=seed,
        )

    def _next(self, prefix: str) -> bool:
        return self.at < len(self.lines) and self.lines[self.at][1].startswith(prefix)

    def _wrong(self, what: str) -> PlanTextError:
        number, line = ([(1, ""), *self.lines])[min(self.at + 1, len(self.lines))]
        return PlanTextError(
            f"{what}: {line!r}",
            remedy="print the plan again instead of editing its text",
            where=f"line {number}",
        )

    def _take(self, pattern: str | re.Pattern[str]) -> tuple[str, ...]:
        if self.at >= len(self.lines):
            raise self._wrong("the text ends too early")
        match = re.fullmatch(pattern, self.lines[self.at][1])
        if match is None:
            raise self._wrong("not as expected here")
        self.at += 1
        return match.groups()

    def _caches(self) -> Iterator[CacheGroup]:
        while self._next("cache "):
            name, dtype, heads, dim, axes, layers, window, planes = self._take(_CACHE)
            yield CacheGroup(
                name,
                tuple(n for run in layers.split(",") for n in _range(run)),
                int(heads),
                int(dim),
                DType(dtype),
                _names(axes),
                int(window) if window else None,
                int(planes) if planes else 2,
            )

    def _block(self) -> Iterator[str]:
        """Lines up to the closing brace, blocks of layers written out."""
        for line in self._until_brace():
            header = _BLOCK.fullmatch(line)
            if header is None:
                yield line
            else:
                yield from _written_out(header, list(self._until_brace()))

    def _until_brace(self) -> Iterator[str]:
        while not self._next("}"):
            if self.at >= len(self.lines):
                raise self._wrong("the text ends inside a block")
            self.at += 1
            yield self.lines[self.at - 1][1]
        self.at += 1

    def _weights(self) -> dict[str, DraftWeight]:
        self._take(r"weights \{")
        weights: dict[str, DraftWeight] = {}
        for line in self._block():
            declared, _, source = line.partition(" = ")
            value = self._value(declared)
            constant: tuple[float, ...] | None = None
            parts: tuple[WeightPart, ...] = ()
            if source.startswith("constant("):
                constant = tuple(ast.literal_eval(source.removeprefix("constant")))
            else:
                parts = tuple(self._part(part) for part in source.split(" + "))
            weights[value.name] = DraftWeight(
                value.name, value.type, value.placements, parts, constant
            )
        return weights

    def _part(self, text: str) -> WeightPart:
        match = _PART.fullmatch(text)
        if match is None:
            raise self._wrong(f"{text!r} is no part of a weight")
        tensor, shape, count, over, dim, axes, padded = match.groups()
        sizes = tuple(map(int, shape.split(",")))
        stack = Stack(int(count), _names(over)) if count else None
        if dim is None:
            return WeightPart(tensor, sizes, stack=stack)
        whole = int(padded) if padded else sizes[int(dim)]
        return WeightPart(tensor, sizes, int(dim), _names(axes), whole, stack)

    def _programs(self) -> Iterator[DraftProgram]:
        while self.at < len(self.lines):
            name, phase, tokens, sequences, logits, arena = self._take(_PROGRAM)
            body = _Body()
            for line in self._block():
                self._line(line, body)
            yield DraftProgram(
                name=name,
                phase=Phase(phase),
                tokens=int(tokens),
                sequences=int(sequences),
                logits=cast("Literal['last', 'all']", logits),
                inputs=tuple(body.inputs),
                values=body.values,
                nodes=tuple(body.nodes),
                output=body.output,
                edges=tuple(body.edges),
                arena_bytes=int(arena),
            )

    def _line(self, line: str, body: _Body) -> None:
        if line.startswith("output "):
            body.output = line.removeprefix("output ")
        elif line.startswith("edge "):
            body.edges.append(self._edge(line))
        elif match := _NODE.fullmatch(line):
            self._node(match, body)
        else:
            value = self._value(line)
            body.values[value.name] = value
            if isinstance(value.storage, InputStorage):
                body.inputs.append(value.name)

    def _edge(self, line: str) -> Edge:
        _, side, module, value, *required = line.split(" ")
        by_axis: dict[str, Placement] = {}
        for word in required:
            axis = word.rpartition("@")[2]
            order = [a.name for a in self.mesh.axes]
            by_axis[axis] = self._placements(word)[order.index(axis)]
        return Edge(
            module,
            cast("Literal['input', 'output']", side),
            value,
            tuple(by_axis.get(axis.name) for axis in self.mesh.axes),
        )

    def _node(self, match: re.Match[str], body: _Body) -> None:
        module = "" if match[5] == "." else match[5]
        outputs = [self._value(text) for text in match["outputs"].split(", ")]
        operands, _, attributes = match["args"].partition("; ")
        inputs = tuple(_operand(text, module) for text in operands.split(", "))
        for name in inputs:
            if name is not None and name not in body.values and name in self.weights:
                weight = self.weights[name]
                body.values[name] = DraftValue(
                    name, weight.type, weight.placements, WeightStorage(name)
                )
        body.values.update({value.name: value for value in outputs})
        body.nodes.append(
            Node(
                match["op"],
                inputs,
                tuple(value.name for value in outputs),
                self._attributes(attributes),
                module,
                match["pin"] or "",
                match["fused"] or "",
            )
        )

    def _attributes(self, text: str) -> dict[str, Attribute]:
        try:
            call = ast.parse(f"f({text})", mode="eval").body
            assert isinstance(call, ast.Call)
            return {k.arg: _attribute(k.value) for k in call.keywords if k.arg is not None}
        except (SyntaxError, ValueError) as error:
            raise self._wrong(f"attributes {text!r} do not parse") from error

    def _value(self, text: str) -> DraftValue:
        match = _VALUE.fullmatch(text)
        if match is None:
            raise self._wrong(f"{text!r} is no value")
        name, dtype, shape, placements, storage = match.groups()
        if dtype not in DType.__members__.values():
            raise self._wrong(f"{dtype} is no dtype")
        type_ = TensorType(DType(dtype), tuple(int(n) for n in shape.split(",") if n))
        return DraftValue(name, type_, self._placements(placements), _storage(name, type_, storage))

    def _placements(self, text: str) -> Placements:
        try:
            return parse_label(self.mesh, text)
        except ValueError as error:
            raise self._wrong(str(error)) from error


def _written_out(header: re.Match[str], body: list[str]) -> Iterator[str]:
    first = int(header[1])
    bindings = dict(_BINDING.findall(header[3]))
    for layer in range(first, int(header[2] or first) + 1):
        for line in body:
            entered = line
            if layer == first and bindings:
                entered = re.sub(r"<[\w.]+", lambda m: bindings.get(m[0], m[0]), line)
            yield entered.replace("<", f"layers.{layer - 1}").replace("*", f"layers.{layer}")


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")) if text else ()


def _mesh(axes: str, groups: str) -> Mesh:
    sizes = [axis.split("=") for axis in axes.split()]
    named = [group.split("=") for group in groups.split()]
    return Mesh(
        tuple(Axis(name, int(size)) for name, size in sizes),
        {name: _names(members) for name, members in named},
    )


def _operand(text: str, module: str) -> str | None:
    if text == "-":
        return None
    return f"{module}{text}" if text.startswith(".") else text


def _attribute(node: ast.expr) -> Attribute:
    if isinstance(node, ast.Call):
        axes, stride = node.args
        return RankIndex(ast.literal_eval(axes), ast.literal_eval(stride))
    return cast("Attribute", ast.literal_eval(node))


def _storage(name: str, type_: TensorType, text: str | None) -> Storage | None:
    if text is None:
        return None
    if text == "input":
        return InputStorage(name)
    if not text[0].isdigit():
        group, _, layer = text.partition(".layers.")
        return CacheStorage(group, int(layer))
    offset, _, strides = text.partition(":")
    plain = contiguous_strides(type_.shape)
    return ArenaStorage(int(offset), tuple(map(int, strides.split(","))) if strides else plain)
