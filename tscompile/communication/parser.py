"""Reads the text of a communication plan back: `printer` prints what this gives as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tscompile.communication.errors import PlanFileError
from tscompile.communication.groups import numbers_of
from tscompile.communication.numbers import Bucket, evaluate
from tscompile.communication.plan import (
    CacheLayout,
    CommunicationPlan,
    Entry,
    Pool,
    ProgramPlan,
    Section,
    WeightLayout,
)
from tscompile.communication.printer import END
from tskernels.schema import DType
from tsruntime.artifact.schema import Axis, Limits, Mesh, Phase, Target

FIRST_WORD = "plan "
"""How every such file begins."""

_CACHE = re.compile(
    r"cache (\S+) (\w+) heads (\d+)x(\d+) planes (\d+) over \[(\S*)\] layers (\S+(?: step \d+)?)"
    r"(?: window (\d+))?"
)
_WEIGHT = re.compile(
    r"(\w+) (\S+): (\w+)\[([\d,]*)\](?: cut (.*?))?(?: layers (\S+(?: step \d+)?))?"
)
_BUCKETS = re.compile(r"(\w+) T (\S+) S (\S+) logits (\w+) arena (\S+)")
_LIMITS = re.compile(
    r"limits max_model_len (\d+) max_batch (\d+) token_budget (\d+) max_pages (\d+) steps (\d+)"
)
_ENTRY = re.compile(
    r"(\S+): (\w+)(?: over (\S+))?(?: \((\S+)\))? (\w+)\[([^\]]*)\](?: sends (\S+))?"
    r"(?: moves (\S+))?(?: flops (\S+))?(?: launches (\d+))?(?: !(\S+))?"
)


def parse_golden(text: str, where: str) -> CommunicationPlan:
    """The plan that `golden_text` gives `text` for. Raises PlanFileError with the line."""
    lines = _Lines(where, text.splitlines())
    try:
        return _plan(lines)
    except (ValueError, KeyError, IndexError) as error:
        reason = "it ends too soon" if isinstance(error, IndexError) else str(error)
        raise PlanFileError(
            f"not a communication plan: {reason}",
            remedy="give a file that `make golden` wrote, or write it again with this version",
            where=f"{where}:{lines.at}",
        ) from None


@dataclass(slots=True)
class _Lines:
    """The lines of a file, taken one by one; `at` is the number of the last one taken."""

    where: str
    lines: Sequence[str]
    at: int = 0

    def next(self) -> str:
        """The next line that is not empty, without indentation."""
        while not self.lines[self.at]:
            self.at += 1
        self.at += 1
        return self.lines[self.at - 1].strip()

    def peek(self) -> str:
        at = self.at
        line = self.next()
        self.at = at
        return line

    def block(self) -> Iterator[str]:
        """The lines up to the brace that closes the block."""
        while (line := self.next()) != "}":
            yield line


def _match(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    found = pattern.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is not understood")
    return tuple(group or "" for group in found.groups())


def _words(line: str, first: str, count: int) -> list[str]:
    words = line.split(" ")
    if words[0] != first or len(words) != count + 1:
        raise ValueError(f"{line!r} where `{first}` and {count} words were expected")
    return words[1:]


def _plan(lines: _Lines) -> CommunicationPlan:
    name, architecture, dtype = _words(lines.next(), "plan", 3)
    device, arch, topology = _words(lines.next(), "target", 3)
    if device not in ("cpu", "cuda"):
        raise ValueError(f"{device!r} is not a device")
    mesh = _mesh(lines.next())
    limits = Limits(*map(int, _match(_LIMITS, lines.next())))
    pool = _pool(lines)
    unpinned = ""
    if lines.peek().startswith("unpinned "):
        unpinned = lines.next().removeprefix("unpinned ")
    _words(lines.next(), "weights", 1)
    weights = tuple(_weight(line) for line in lines.block())
    programs: list[ProgramPlan] = []
    while lines.peek() != END:
        programs += _group(lines)
    return CommunicationPlan(
        name=name,
        architecture=architecture,
        dtype=DType(dtype),
        target=Target(device, arch, topology),
        mesh=mesh,
        limits=limits,
        pool=pool,
        weights=weights,
        programs=tuple(sorted(programs, key=_order)),
        unpinned=unpinned,
    )


def _order(program: ProgramPlan) -> tuple[int, bool, int, int]:
    """Programs print in groups, but stand as `plan_buckets` makes them."""
    phase = list(Phase).index(program.phase)
    return (phase, program.logits == "all", program.tokens, program.sequences)


def _mesh(line: str) -> Mesh:
    (inside, rest) = _match(re.compile(r"mesh \[([^\]]*)\](?: (.*))?"), line)
    pairs = [word.split("=") for word in inside.split()]
    axes = tuple(Axis(name, int(size)) for name, size in pairs)
    groups = {name: _axes(cut) for name, cut in (word.split("=") for word in rest.split())}
    return Mesh(axes, groups)


def _axes(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")) if text else ()


def _pool(lines: _Lines) -> Pool:
    words = _words(lines.next(), "kv", 6)
    caches: list[CacheLayout] = []
    while lines.peek().startswith("cache "):
        name, dtype, heads, width, planes, axes, layers, window = _match(_CACHE, lines.next())
        caches.append(
            CacheLayout(
                name,
                numbers_of(layers),
                DType(dtype),
                int(heads),
                int(width),
                int(planes),
                int(window) if window else None,
                _axes(axes),
            )
        )
    return Pool(int(words[1]), int(words[3]), int(words[5]), tuple(caches))


def _weight(line: str) -> WeightLayout:
    kind, name, dtype, shape, cut, layers = _match(_WEIGHT, line)
    extents = tuple(int(extent) for extent in shape.split(",") if extent)
    numbers = numbers_of(layers) if layers else ()
    return WeightLayout(name, numbers, kind, DType(dtype), extents, cut)


def _group(lines: _Lines) -> list[ProgramPlan]:
    first, *names, brace = lines.next().split(" ")
    if (first, brace) != ("programs", "{"):
        raise ValueError("`programs NAMES {` was expected")
    phase, tokens, sequences, logits, arena = _match(_BUCKETS, lines.next())
    pairs = zip(tokens.split("|"), sequences.split("|"), strict=True)
    buckets = [Bucket(int(t), int(s)) for t, s in pairs]
    if len(buckets) != len(names):
        raise ValueError(f"{len(names)} programs have {len(buckets)} buckets")
    if logits not in ("last", "all"):
        raise ValueError(f"{logits!r} is not a choice of logits")
    sections: list[list[Section]] = [[] for _ in names]
    for head in lines.block():
        layers = numbers_of(head[7:-2]) if head.startswith("layers ") else ()
        columns = [_entries(line, buckets) for line in lines.block()]
        for i, found in enumerate(sections):
            found.append(Section(layers, tuple(column[i] for column in columns)))
    arenas = evaluate(arena, buckets)
    return [
        ProgramPlan(
            name,
            Phase(phase),
            bucket.tokens,
            bucket.sequences,
            logits,
            arenas[i],
            tuple(sections[i]),
        )
        for i, (name, bucket) in enumerate(zip(names, buckets, strict=True))
    ]


def _entries(line: str, buckets: Sequence[Bucket]) -> list[Entry]:
    """The entry of each program that a line stands for."""
    module, op, axes, note, dtype, shape, sends, moves, flops, launches, pin = _match(_ENTRY, line)
    extents = [evaluate(text, buckets) for text in shape.split(",") if text]
    wire, moved, done = (evaluate(text or "0", buckets) for text in (sends, moves, flops))
    return [
        Entry(
            module="" if module == "." else module,
            op=op,
            dtype=DType(dtype),
            shape=tuple(extent[i] for extent in extents),
            moved=moved[i],
            flops=done[i],
            axes=_axes(axes),
            note=note,
            wire=wire[i],
            launches=int(launches or 1),
            pin=pin,
        )
        for i in range(len(buckets))
    ]
