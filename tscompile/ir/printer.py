"""The text form of a plan in progress: short, for people and diffs; `parser` reads it back.

One line a value; layers that are alike print once:

    layers 0..29 [<.add_1 = embed_tokens.replicate] {
      *.q_proj: float32[8,192] Shard(1)@a = linear(*.input_layernorm, .weight, -) in model.*...
    }

Inside, `*` stands for `layers.<this layer>` and `<` for the layer before it; the brackets say what
the first layer reads in its stead. A name that begins with a dot continues the op's module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight, Edge
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.placement import Labels, Placement
from tscompile.ir.repeats import Number, Repeat, Repeats, copies, last_copies, renumbered
from tscompile.ir.strides import contiguous_strides
from tskernels.schema import TensorType
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
    CacheGroup,
    CacheStorage,
    InputStorage,
    Limits,
    Mesh,
    RankIndex,
    Storage,
    WeightPart,
    WeightStorage,
)

_TOKEN = re.compile(r"[\w.*<@:-]+|\S")


def print_draft(draft: Draft) -> str:
    """The whole plan. Pin records and anything that a clock or a directory changes are left out."""
    labels = Labels(draft.mesh)
    lines = [*_header(draft), "", "weights {"]
    weights = [(layer_of(name), _weight(labels, w)) for name, w in draft.weights.items()]
    lines += [*_indented(_blocks(_of_weights(_segments(weights), draft.repeats))), "}"]
    output = last_copies(draft.repeats)
    for program in draft.programs:
        segments = _segments(_program_lines(labels, program))
        lines += ["", _program_head(program)]
        lines += _indented(_blocks(_of_program(segments, draft.repeats)))
        lines += [f"  output {renumbered(program.output, output)}", "}"]
    return "\n".join(lines) + "\n"


def _header(draft: Draft) -> list[str]:
    target, limits, kv = draft.target, draft.limits, draft.kv_cache
    axes = " ".join(f"{axis.name}={axis.size}" for axis in draft.mesh.axes)
    groups = " ".join(f"{name}={'+'.join(axes)}" for name, axes in draft.mesh.groups.items())
    return [
        f"plan {draft.name} {draft.architecture} {draft.dtype} vocab {draft.vocab_size}",
        f"target {target.device} {target.arch} {target.topology}",
        f"mesh [{axes}] {groups}",
        _limits(limits),
        f"kv page_size {kv.page_size} pages {kv.pages}"
        + (f" host {kv.host_pages}" if kv.host_pages else ""),
        *(_cache_group(group) for group in kv.groups),
        *([] if draft.dummy_seed is None else [f"dummy_seed {draft.dummy_seed}"]),
    ]


def _limits(limits: Limits) -> str:
    sizes = (limits.max_model_len, limits.max_batch, limits.token_budget, limits.max_pages)
    steps = "" if limits.steps_in_flight == 1 else f" steps {limits.steps_in_flight}"
    return f"limits {' '.join(map(str, sizes))}{steps}"


def _cache_group(group: CacheGroup) -> str:
    layers = ",".join(_ranges(group.layers))
    window = "" if group.window is None else f" window {group.window}"
    planes = "" if group.planes == 2 else f" planes {group.planes}"
    return (
        f"cache {group.name} {group.dtype} heads {group.kv_heads}x{group.head_dim} "
        f"over [{'+'.join(group.axes)}] layers {layers}{window}{planes}"
    )


def _ranges(numbers: Iterable[int]) -> list[str]:
    """Consecutive numbers as `0..29`."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    found = [[n for _, n in run] for _, run in runs]
    return [str(r[0]) if len(r) == 1 else f"{r[0]}..{r[-1]}" for r in found]


def _type(type_: TensorType) -> str:
    return f"{type_.dtype}[{','.join(map(str, type_.shape))}]"


def _weight(labels: Labels, weight: DraftWeight) -> str:
    source = (
        f"constant{weight.constant!r}"
        if weight.constant is not None
        else " + ".join(_part(part) for part in weight.parts)
    )
    return f"{weight.name}: {_placed(labels, weight.type, weight.placements)} = {source}"


def _part(part: WeightPart) -> str:
    text = f"{part.tensor}[{','.join(map(str, part.shape))}]"
    if part.stack is not None:
        text += f" stack {part.stack.count}@{'+'.join(part.stack.axes)}"
    if part.dim is not None:
        text += f" cut {part.dim}@{'+'.join(part.axes)}"
        if part.padded != part.shape[part.dim]:
            text += f" padded {part.padded}"
    return text


def _placed(labels: Labels, type_: TensorType, placements: tuple[Placement, ...]) -> str:
    return f"{_type(type_)} {labels(placements)}".rstrip()


def _program_head(program: DraftProgram) -> str:
    return (
        f"program {program.name} {program.phase} tokens {program.tokens} "
        f"sequences {program.sequences} logits {program.logits} arena {program.arena_bytes} {{"
    )


def _program_lines(labels: Labels, program: DraftProgram) -> list[tuple[int | None, str]]:
    """Lines with their layer: declarations and edges before the first op of their layer."""
    ahead: dict[int | None, list[str]] = {}
    produced = {name for node in program.nodes for name in node.outputs}
    bound = {n: v for n, v in program.values.items() if v.is_bound and n not in produced}
    for name in (*program.inputs, *(n for n in bound if n not in program.inputs)):
        if not isinstance(program.values[name].storage, WeightStorage):
            ahead.setdefault(layer_of(name), []).append(_declared(labels, program.values[name]))
    for edge in program.edges:
        ahead.setdefault(layer_of(edge.module), []).append(_edge(labels.mesh, edge))
    lines: list[tuple[int | None, str]] = [(None, line) for line in ahead.pop(None, [])]
    for node in program.nodes:
        layer = node.layer
        lines += [(layer, line) for line in ahead.pop(layer, [])]
        lines.append((layer, _node(labels, node, program.values)))
    return lines


def _declared(labels: Labels, value: DraftValue) -> str:
    return f"{value.name}: {_placed(labels, value.type, value.placements)}{_storage(value)}"


def _storage(value: DraftValue) -> str:
    storage: Storage | None = value.storage
    match storage:
        case ArenaStorage(offset_bytes=offset, strides=strides):
            plain = strides == contiguous_strides(value.type.shape)
            return f" @{offset}" if plain else f" @{offset}:{','.join(map(str, strides))}"
        case CacheStorage(group=group, layer=layer):
            return f" @{group}.layers.{layer}"
        case InputStorage():
            return " @input"
        case _:
            return ""


def _edge(mesh: Mesh, edge: Edge) -> str:
    pairs = [(a.name, p) for a, p in zip(mesh.axes, edge.required, strict=True) if p is not None]
    required = " ".join(f"{p}@{name}" for name, p in pairs)
    return f"edge {edge.side} {edge.module} {edge.value} {required}".rstrip()


def _node(labels: Labels, node: Node, values: Mapping[str, DraftValue]) -> str:
    outputs = ", ".join(_declared(labels, values[name]) for name in node.outputs)
    inputs = ", ".join("-" if i is None else _relative(i, node.module) for i in node.inputs)
    attributes = ", ".join(f"{k}={_attribute(v)}" for k, v in node.attributes.items())
    call = f"{node.op}({inputs}; {attributes})" if attributes else f"{node.op}({inputs})"
    pin = f" !{node.pin}" if node.pin else ""
    fused = f" fused {node.fused}" if node.fused else ""
    return f"{outputs} = {call}{pin} in {node.module or '.'}{fused}"


def _relative(name: str, module: str) -> str:
    return name[len(module) :] if name.startswith(f"{module}.") else name


def _attribute(value: Attribute) -> str:
    if isinstance(value, RankIndex):
        return f"rank({value.axes!r}, {value.stride})"
    return repr(value)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


@dataclass(frozen=True, slots=True)
class _Segment:
    """Lines of one layer in a row, its own number `*` and the one before it `<`; or of none."""

    layer: int | None
    lines: list[str]

    def numbered(self, number: Number) -> _Segment:
        """The same segment of another layer."""
        layer = None if self.layer is None else number(self.layer)
        if not any("layers." in line for line in self.lines):
            return _Segment(layer, self.lines)
        return _Segment(layer, [renumbered(line, number) for line in self.lines])


def _segments(lines: Sequence[tuple[int | None, str]]) -> list[_Segment]:
    grouped = groupby(lines, key=lambda pair: pair[0])
    return [_Segment(layer, _general(layer, [line for _, line in run])) for layer, run in grouped]


def _general(layer: int | None, lines: list[str]) -> list[str]:
    if layer is None:
        return lines
    own = re.compile(rf"\blayers\.{layer}(?!\d)")
    before = re.compile(rf"\blayers\.{layer - 1}(?!\d)")
    return [before.sub("<", own.sub("*", line)) for line in lines]


def _of_weights(segments: Sequence[_Segment], repeats: Repeats) -> Iterator[_Segment]:
    """The model's segments, where layers may come more than once, but always one by one."""

    def group(segment: _Segment) -> Repeat | None:
        layer = segment.layer
        return next((r for r in repeats if layer is not None and r.first <= layer < r.last), None)

    for repeat, run in groupby(segments, key=group):
        yield from _copied(list(run), repeat, repeats)


def _of_program(segments: Sequence[_Segment], repeats: Repeats) -> Iterator[_Segment]:
    """The model's segments: a repeated group lasts until the layer behind it begins."""
    layers = [segment.layer for segment in segments]
    at = 0
    for repeat in repeats:
        first, last = layers.index(repeat.first), layers.index(repeat.last)
        yield from _copied(segments[at:first], None, repeats)
        yield from _copied(segments[first:last], repeat, repeats)
        at = last
    yield from _copied(segments[at:], None, repeats)


def _copied(
    segments: Sequence[_Segment], repeat: Repeat | None, repeats: Repeats
) -> Iterator[_Segment]:
    numbers = [last_copies(repeats)] if repeat is None else copies(repeats, repeat)
    for number in numbers:
        yield from (segment.numbered(number) for segment in segments)


def _blocks(segments: Iterable[_Segment]) -> list[str]:
    """Blocks for runs of layers whose lines are alike; other lines as they are."""
    every = list(segments)
    result: list[str] = []
    index = 0
    while index < len(every):
        layer, first = every[index].layer, every[index].lines
        if layer is None:
            result += first
            index += 1
            continue
        last, carried, body = _run(every, index)
        span = f"{layer}..{every[last].layer}" if last > index else str(layer)
        binding = " ".join(f"[{name} = {start}]" for name, start in carried.items())
        result += [f"layers {span} {binding}".rstrip() + " {", *_indented(body), "}"]
        index = last + 1
    return result


def _run(segments: Sequence[_Segment], start: int) -> tuple[int, dict[str, str], list[str]]:
    """The last segment of the run that begins at `start`, what it carries, and its body."""
    first = segments[start].lines
    last, carried, body = start, dict[str, str](), first
    if _follows(segments, start + 1):
        second = segments[start + 1].lines
        entered = _carried(first, second)
        if entered is not None:
            last, carried, body = start + 1, entered, second
            while _follows(segments, last + 1) and segments[last + 1].lines == body:
                last += 1
    return last, carried, body


def _follows(segments: Sequence[_Segment], index: int) -> bool:
    """Whether there is such a segment, of the layer right after the segment before it."""
    if index == len(segments):
        return False
    layer, before = segments[index].layer, segments[index - 1].layer
    return layer is not None and before is not None and layer == before + 1


def _carried(first: list[str], second: list[str]) -> dict[str, str] | None:
    """What the first layer reads where the others read the layer before; None if not alike."""
    if len(first) != len(second):
        return None
    found: dict[str, str] = {}
    for a, b in zip(first, second, strict=True):
        left, right = ([t.rstrip(":") for t in _TOKEN.findall(line)] for line in (a, b))
        if len(left) != len(right):
            return None
        for x, y in zip(left, right, strict=True):
            if y.startswith("<.") and found.setdefault(y, x) != x:
                return None
            if not y.startswith("<.") and x != y:
                return None
    return {name: start for name, start in found.items() if name != start}
