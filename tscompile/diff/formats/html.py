"""A comparison as one self-contained page: tables, timelines and the links' load as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from tscompile.communication.plan import ProgramPlan
from tscompile.communication.prices import Load, Prices
from tscompile.communication.units import bytes_text, percent, time_text
from tscompile.diff.formats.lines import TOPICS, summary
from tscompile.diff.formats.timeline import Timeline, layer_time, step_time, timeline
from tscompile.diff.report import Report


@dataclass(frozen=True, slots=True)
class LinkBar:
    """What one rank sends over one level of links, in per cent of the most that is shown."""

    label: str
    text: str
    length: float


@dataclass(frozen=True, slots=True)
class ProgramView:
    """One program of both sides; `changed` says whether its load differs."""

    name: str
    changed: bool
    time: str
    sent: str
    timelines: tuple[Timeline, ...]
    links: tuple[LinkBar, ...]


def as_html(report: Report) -> str:
    """The page. It needs no network and no script."""
    environment = Environment(
        loader=PackageLoader("tscompile.diff", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    topics = {word: list(lines(report.diff)) for word, lines in TOPICS.items()}
    page = environment.get_template("page.html.jinja")
    return page.render(
        report=report,
        summary=summary(report.diff),
        topics={word: lines for word, lines in topics.items() if lines},
        programs=list(_programs(report)),
    )


def _programs(report: Report) -> Iterator[ProgramView]:
    before, after = Prices(report.before), Prices(report.after)
    old = {program.name: program for program in report.before.programs}
    new = {program.name: program for program in report.after.programs}
    for name in dict.fromkeys((*old, *new)):
        sides = [
            (side, prices, programs[name])
            for side, prices, programs in (("before", before, old), ("after", after, new))
            if name in programs
        ]
        yield _program(name, sides)


def _program(name: str, sides: list[tuple[str, Prices, ProgramPlan]]) -> ProgramView:
    step = max(step_time(prices, program) for _, prices, program in sides)
    layer = max(layer_time(prices, program) for _, prices, program in sides)
    loads = [(side, prices, prices.program(program)) for side, prices, program in sides]
    first, last = loads[0][2], loads[-1][2]
    return ProgramView(
        name,
        len(loads) == 1 or first != last,
        _change(
            first.picoseconds,
            last.picoseconds,
            time_text(first.picoseconds),
            time_text(last.picoseconds),
        ),
        _change(first.wire, last.wire, bytes_text(first.wire), bytes_text(last.wire)),
        tuple(timeline(side, prices, program, step, layer) for side, prices, program in sides),
        tuple(_links(loads)),
    )


def _change(before: int, after: int, left: str, right: str) -> str:
    return left if before == after else f"{left} → {right} ({percent(before, after)})"


def _links(loads: list[tuple[str, Prices, Load]]) -> Iterator[LinkBar]:
    most = max((sent for _, _, load in loads for sent in load.levels), default=0)
    for side, prices, load in loads:
        for link, sent in zip(prices.topology.links, load.levels, strict=True):
            busy = sent * 1e6 / link.bandwidth / max(load.picoseconds, 1)
            text = f"{bytes_text(sent)}, {100 * busy:.1f}% of the step at full speed"
            length = 100 * sent / most if most else 0.0
            yield LinkBar(f"{side}, among {link.ranks} ranks", text, length)
