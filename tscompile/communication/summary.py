"""`tscompile plan`: a communication plan with predicted times, short enough for one screen.

Collectives and fusions by program, layers and module; like buckets as a range, layers that do the
same once. With `kernels` every kernel is listed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tscompile.communication.blocks import Block, Fusion, blocks, fusions
from tscompile.communication.groups import Column, program_names, ranges
from tscompile.communication.numbers import Bucket, shape_text
from tscompile.communication.plan import CommunicationPlan, Entry, ProgramPlan, Section
from tscompile.communication.prices import Load, Prices
from tscompile.communication.units import bytes_text, span, time_text
from tskernels.schema import DType

SHORT_TYPES: Mapping[DType, str] = {
    DType.FLOAT64: "f64",
    DType.FLOAT32: "f32",
    DType.BFLOAT16: "bf16",
    DType.FLOAT16: "f16",
    DType.FLOAT8_E4M3: "f8",
    DType.INT64: "i64",
    DType.INT32: "i32",
    DType.BOOL: "bool",
}


def summary(plan: CommunicationPlan, *, kernels: bool = False) -> str:
    """The text that `tscompile plan` prints."""
    prices = Prices(plan)
    found = blocks(plan.programs, fold=False) if kernels else blocks(map(_talking, plan.programs))
    rows = [[_row(plan, prices, block, column) for column in block.columns] for block in found]
    lines = [*heading(plan), *_programs(plan, prices)]
    widths = _widths([row for block_rows in rows for row in block_rows])
    for block, block_rows in zip(found, rows, strict=True):
        lines += [_title(plan, block), *(_cells(row, widths) for row in block_rows)]
    alone = [] if kernels else [_fusion(plan, prices, fused) for fused in fusions(plan.programs)]
    if alone:
        lines += ["fused on a rank alone", *(_cells(row, _widths(alone)) for row in alone)]
    return "\n".join(lines) + "\n"


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*rows, strict=True)]


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True) if width)
    return f"  {'  '.join(cells)}".rstrip()


def heading(plan: CommunicationPlan) -> Iterator[str]:
    """What is deployed, how ranks are grouped, and what one of them holds."""
    target, mesh = plan.target, plan.mesh
    axes = " ".join(f"{axis.name}={axis.size}" for axis in mesh.axes)
    yield (
        f"{plan.name}: {plan.architecture} {plan.dtype} on {target.device} {target.arch}, "
        f"{mesh.world} ranks of {target.topology}"
    )
    groups = ", ".join(f"{n} {group_text(plan, a)}" for n, a in mesh.groups.items() if a)
    if groups:
        yield f"mesh {axes}, innermost first: {groups}"
    memory = plan.memory
    parts = ", ".join(f"{name} {bytes_text(size)}" for name, size in memory.items() if size)
    yield f"a rank holds {bytes_text(sum(memory.values()))}: {parts}"
    if plan.unpinned:
        yield f"no kernels are pinned: {plan.unpinned}"


def group_text(plan: CommunicationPlan, axes: Sequence[str]) -> str:
    """`a+b(16)`: axes and how many ranks they span."""
    return f"{'+'.join(axes)}({plan.mesh.size(tuple(axes))})"


def load_text(prices: Prices, load: Load) -> str:
    """Collectives and bytes on the wire of one rank; by level of links, where there are several."""
    links = zip(load.levels, prices.topology.links, strict=True)
    within = [f"{bytes_text(sent)} among {link.ranks}" for sent, link in links]
    by_link = f" ({', '.join(within)})" if len(within) > 1 else ""
    return f"{load.collectives} collectives, {bytes_text(load.wire)} sent{by_link}"


def _programs(plan: CommunicationPlan, prices: Prices) -> Iterator[str]:
    width = max((len(program.name) for program in plan.programs), default=0)
    for program in plan.programs:
        load = prices.program(program)
        time = time_text(load.picoseconds)
        yield f"  {program.name:{width}}  {time:>14}  {load_text(prices, load)}"


def _talking(program: ProgramPlan) -> ProgramPlan:
    """The program's collectives alone, layers that then do the same together."""
    head, *kinds, tail = program.sections
    merged: dict[tuple[Entry, ...], list[int]] = {}
    for kind in kinds:
        merged.setdefault(_kept(kind), []).extend(kind.layers)
    bodies = [Section(tuple(sorted(layers)), body) for body, layers in merged.items()]
    sections = (Section((), _kept(head)), *bodies, Section((), _kept(tail)))
    return replace(program, sections=sections)


def _kept(section: Section) -> tuple[Entry, ...]:
    """Collectives in order, without kernels' names."""
    return tuple(replace(entry, pin="") for entry in section.entries if entry.communicates)


def _title(plan: CommunicationPlan, block: Block) -> str:
    where = _where(plan, block.layers, block.programs)
    if not block.less:
        return where
    missing = ", ".join(f"{module or '(layer)'} {op}" for module, op in block.less)
    return f"{where}: as layers {ranges(block.like)}, without {missing}"


def _where(plan: CommunicationPlan, layers: Sequence[int], programs: Sequence[ProgramPlan]) -> str:
    where = f"layers {ranges(layers)}" if layers else "outside layers"
    names = [program.name for program in programs]
    return f"{where}, {program_names(names, [p.name for p in plan.programs])}"


def _fusion(plan: CommunicationPlan, prices: Prices, fused: Fusion) -> list[str]:
    """Its tile, where each program has but one."""
    times = sorted(prices.entry(e).picoseconds for entries in fused.entries for e in entries)
    first, shape = fused.entries[0][0], ""
    if all(len(entries) == 1 for entries in fused.entries):
        buckets = [Bucket(p.tokens, p.sequences) for p in fused.programs]
        shape = SHORT_TYPES[first.dtype] + shape_text([e.shape for (e,) in fused.entries], buckets)
    return [
        fused.module or "(layer)",
        fused.op,
        shape,
        span([time_text(time) for time in times]),
        _where(plan, fused.layers, fused.programs),
    ]


def _row(plan: CommunicationPlan, prices: Prices, block: Block, column: Column) -> list[str]:
    entry = column.first
    shape = shape_text([e.shape for e in column.entries], block.buckets)
    times = sorted(prices.entry(e).picoseconds for e in column.entries)
    sent = sorted(e.wire for e in column.entries)
    return [
        entry.module or "(layer)",
        f"{entry.op} {entry.note}".rstrip(),
        group_text(plan, entry.axes) if entry.communicates else "",
        SHORT_TYPES[entry.dtype] + shape,
        span([bytes_text(wire) for wire in sent]) if entry.communicates else "",
        span([time_text(time) for time in times]),
        entry.pin,
    ]
