"""The options of all kernels that take the same values to the same values, as one list.

An option is left out where another is better whatever state it starts in: what reshards from the
placements that it reads, and to those that it gives, cost with the other is less than what it costs
more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tscompile.search.graph import Indices, Prices, Times
from tscompile.search.holdings import Stock
from tscompile.search.strategies import Batch


@dataclass(frozen=True, eq=False, slots=True)
class Ways:
    """Options, a column each, that take `span` operations from `inputs` to `outputs`.

    `requires` and `gives` are placement numbers; outputs that nobody reads are left out. `instead`
    [option, other] is in how many picoseconds a state that took the one
    gives what the other gives. `batch` and
    `column` tell where an option comes from.
    """

    span: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    requires: Indices
    gives: Indices
    prices: Prices
    instead: Times
    batch: Indices
    column: Indices

    def __len__(self) -> int:
        return len(self.prices)


@dataclass(frozen=True, eq=False, slots=True)
class _Columns:
    """Options with rows by the value's number."""

    requires: Mapping[int, Indices]
    gives: Mapping[int, Indices]
    prices: Prices
    batch: Indices
    column: Indices

    def only(self, kept: Indices) -> _Columns:
        """Some of them."""
        return _Columns(
            {value: row[kept] for value, row in self.requires.items()},
            {value: row[kept] for value, row in self.gives.items()},
            self.prices[kept],
            self.batch[kept],
            self.column[kept],
        )


def ways_of(
    stage: Sequence[tuple[Batch, tuple[int, ...], tuple[int, ...], Prices]],
    stocks: Sequence[Stock],
    live: Sequence[Sequence[int]],
    last: Sequence[Mapping[int, Indices]],
) -> tuple[Ways, ...]:
    """The ways of a stage: its batches with inputs, outputs and prices; those alike together.

    `live` and `last` are the segment's from the stage's position on.
    """
    alike: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[_Columns]] = {}
    for number, (batch, inputs, outputs, prices) in enumerate(stage):
        requires = dict(zip(inputs, batch.requires, strict=True))
        gives = {
            value: row
            for value, row in zip(outputs, batch.gives, strict=True)
            if value in live[batch.span]
        }
        columns = _Columns(
            requires, gives, prices, np.full(len(batch), number), np.arange(len(batch))
        )
        key = (batch.span, tuple(sorted(requires)), tuple(sorted(gives)))
        alike.setdefault(key, []).append(_undominated(columns, stocks, {})[0])
    return tuple(
        _joined(span, columns, stocks, last[span]) for (span, _, _), columns in alike.items()
    )


def _joined(
    span: int, parts: Sequence[_Columns], stocks: Sequence[Stock], last: Mapping[int, Indices]
) -> Ways:
    """The options of all parts, in their order, without those that another's make needless."""
    first = parts[0]
    together = _Columns(
        {
            value: np.concatenate([part.requires[value] for part in parts])
            for value in first.requires
        },
        {value: np.concatenate([part.gives[value] for part in parts]) for value in first.gives},
        np.concatenate([part.prices for part in parts]),
        np.concatenate([part.batch for part in parts]),
        np.concatenate([part.column for part in parts]),
    )
    columns, instead = _undominated(together, stocks, last)
    return Ways(
        span,
        tuple(columns.requires),
        tuple(columns.gives),
        np.array([*columns.requires.values()], np.int64).reshape(-1, len(columns.prices)),
        np.array([*columns.gives.values()], np.int64).reshape(-1, len(columns.prices)),
        columns.prices,
        instead,
        columns.batch,
        columns.column,
    )


def _undominated(
    columns: _Columns, stocks: Sequence[Stock], last: Mapping[int, Indices]
) -> tuple[_Columns, Times]:
    """The options that no other makes needless, and how long one takes to give what another gives.

    `last` is known of outputs that are read once more.
    """
    count = len(columns.prices)
    instead: Times = np.zeros((count, count))
    for value, row in columns.gives.items():
        instead += stocks[value].replacing_times(row, last.get(value))
    total = instead + columns.prices.real[:, None]
    for value, row in columns.requires.items():
        total += stocks[value].reshards.pairs(row, row).real.T
    kept = np.flatnonzero(~(total < columns.prices.real).any(axis=0))
    if len(kept) == count:
        return columns, instead
    return columns.only(kept), instead[np.ix_(kept, kept)]
