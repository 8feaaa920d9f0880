"""Rules of `--fail-on`: their grammar, and when they fire.

    METRIC > [+] NUMBER [UNIT]        or        kernel-change

`bytes` (sent by a rank in a step), `time` (predicted, of a step), `collectives` (added in a step,
or with %, of how many there are), `memory` (of a rank): by how much it grows, in any program that
both sides have. Units: %; B KB MB GB TB (powers of 1000), KiB MiB GiB TiB; us ms s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tscompile.communication.units import bytes_text, percent, time_text
from tscompile.diff.changes import Diff, Kind


class Metric(StrEnum):
    """What a rule looks at."""

    BYTES = "bytes"
    TIME = "time"
    COLLECTIVES = "collectives"
    MEMORY = "memory"
    KERNEL_CHANGE = "kernel-change"


_SIZES: Mapping[str, int] = {
    "B": 1,
    **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)},
    **{f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)},
}
_TIMES: Mapping[str, int] = {"us": 10**6, "ms": 10**9, "s": 10**12}

UNITS: Mapping[Metric, Mapping[str, int]] = {
    Metric.BYTES: _SIZES,
    Metric.MEMORY: _SIZES,
    Metric.TIME: _TIMES,
    Metric.COLLECTIVES: {"": 1},
}
"""Absolute units of each metric, in bytes, picoseconds or collectives."""

_RULE = re.compile(r"\s*([a-z-]+)\s*(?:>\s*\+?\s*(\d+(?:\.\d+)?)\s*([A-Za-z%]*))?\s*")


class RuleSyntaxError(ValueError):
    """A rule that is not understood; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires where a metric grows by more than `limit`: per cent, or absolute."""

    text: str
    metric: Metric
    limit: float = 0.0
    relative: bool = False

    def exceeded(self, before: float, after: float) -> bool:
        """Whether going from one to the other is more than allowed."""
        if not self.relative:
            return after - before > self.limit
        if before == 0:
            return after > 0
        return 100 * (after - before) / before > self.limit


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule that fired, and by what."""

    rule: str
    reason: str


def parse_rule(text: str) -> Rule:
    """The rule that `text` states. Raises RuleSyntaxError."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise RuleSyntaxError(
            f"{text!r} is no rule: write for example bytes>+5%, time>+100us, collectives>0, "
            "memory>+1GiB or kernel-change"
        )
    word, number, unit = match.groups()
    if word not in list(Metric):
        known = ", ".join(metric.value for metric in Metric)
        raise RuleSyntaxError(f"{word!r} in {text!r} is no metric: use one of {known}")
    metric = Metric(word)
    if metric is Metric.KERNEL_CHANGE:
        if number is not None:
            raise RuleSyntaxError(f"kernel-change takes no limit: {text!r}")
        return Rule(text, metric)
    if number is None:
        raise RuleSyntaxError(f"{text!r} has no limit: write for example {metric.value}>+5%")
    if unit == "%":
        return Rule(text, metric, float(number), relative=True)
    units = UNITS[metric]
    if unit not in units:
        wanted = ", ".join(["%", *(name for name in units if name)])
        found = repr(unit) if unit else "no unit"
        raise RuleSyntaxError(f"{text!r} has {found}; {metric.value} is counted in {wanted}")
    return Rule(text, metric, float(number) * units[unit])


def fired(rules: tuple[Rule, ...], diff: Diff) -> tuple[Fired, ...]:
    """The rules that fire, each with the worst of what made it."""
    found: list[Fired] = []
    for rule in rules:
        reasons = sorted(_reasons(rule, diff), key=lambda reason: -reason[0])
        if reasons:
            found.append(Fired(rule.text, reasons[0][1]))
    return tuple(found)


def _reasons(rule: Rule, diff: Diff) -> Iterator[tuple[float, str]]:
    """What makes a rule fire, with how bad it is."""
    match rule.metric:
        case Metric.KERNEL_CHANGE:
            yield from _kernels(diff)
        case Metric.MEMORY:
            before, after = diff.held
            if rule.exceeded(before, after):
                shown = f"{bytes_text(before)} -> {bytes_text(after)}"
                yield 0.0, f"a rank holds {shown} ({percent(before, after)})"
        case Metric.COLLECTIVES:
            yield from _collectives(rule, diff)
        case _:
            yield from _loads(rule, diff)


def _kernels(diff: Diff) -> Iterator[tuple[float, str]]:
    for change in diff.kernels:
        old, new = (" + ".join(side) or "nothing" for side in (change.before, change.after))
        yield 0.0, f"{change.module or 'a layer'} runs {new} instead of {old}"


def _loads(rule: Rule, diff: Diff) -> Iterator[tuple[float, str]]:
    for load in diff.loads:
        if load.before is None or load.after is None:
            continue
        if rule.metric is Metric.TIME:
            before, after = load.before.picoseconds, load.after.picoseconds
            shown = f"takes {time_text(before)} -> {time_text(after)}"
        else:
            before, after = load.before.wire, load.after.wire
            shown = f"sends {bytes_text(before)} -> {bytes_text(after)}"
        if rule.exceeded(before, after):
            worst = (after - before) / before if before else math.inf
            yield worst, f"{load.program} {shown} ({percent(before, after)})"


def _collectives(rule: Rule, diff: Diff) -> Iterator[tuple[float, str]]:
    """A collective that changed or moved was there before."""
    counts = {load.program: load.before for load in diff.loads}
    for program in diff.programs:
        added = [c for c in diff.collectives if c.kind is Kind.ADDED and program in c.programs]
        count = sum(change.times for change in added)
        load = counts.get(program)
        there = load.collectives if load is not None else 0
        if count and rule.exceeded(there, there + count):
            first = added[0]
            assert first.after is not None
            where = f"such as {first.after.op} of {first.to or 'a layer'}"
            yield float(count), f"{program} has {count} more ({where})"
