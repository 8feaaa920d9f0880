"""Sizes and times as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(count: float) -> str:
    """`742 KB`, `1.24 GB` (powers of 1000)."""
    size = abs(count)
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{_short(count / scale)} {unit}"
    return f"{count:.0f} B"


def time_text(picoseconds: float) -> str:
    """`12.3 us`."""
    return f"{picoseconds / 1e6:,.1f} us"


def span(texts: Sequence[str]) -> str:
    """`8.19..524 KB` of the least and the most, or the one text where they agree."""
    least, most = texts[0], texts[-1]
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    return f"{number if most.endswith(f' {unit}') else least}..{most}"


def percent(before: float, after: float) -> str:
    """`+11.4%`; `new` from nothing."""
    if before == 0:
        return "new" if after else "+0%"
    change = 100 * (after - before) / before
    return f"{change:+.1f}%" if abs(change) < 1000 else f"{change:+,.0f}%"


def _short(value: float) -> str:
    """Three digits."""
    size = abs(value)
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"
