"""The numeric core of the search, an extension, as Python sees it.

Placements are numbered within a view, holdings within a stock, values within a segment. Prices are
complex numbers as `tscompile.search.graph` has them. It keeps no state but its objects'.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Trees:
    """The cheapest reshards between the placements of one view.

    `sources`, `targets` and `prices` [steps] are those of its single steps.
    """

    def __init__(
        self,
        placements: int,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        prices: NDArray[np.complex128],
    ) -> None: ...
    def price(self, source: int, target: int) -> complex:
        """The cheapest path."""

    def span(self, root: int, used: Sequence[int]) -> complex:
        """The cheapest tree from `root` to all of `used`."""

    def steps(self, root: int, used: Sequence[int]) -> list[int]:
        """The steps of that tree, each starting where one before it (or `root`) ended."""

class Stock:
    """What values of one view are held as, by number.

    A holding is the placement that a value was produced in, and those it was used in since.
    """

    def __init__(self, trees: Trees) -> None: ...
    def start(self, placement: int) -> int:
        """The holding of one that was just produced so."""

class Options:
    """Ways to take `span` operations, a column each: placements of a row's value, and prices."""

    def __init__(
        self,
        span: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        requires: NDArray[np.int64],
        gives: NDArray[np.int64],
        prices: NDArray[np.complex128],
    ) -> None: ...

class States:
    """What the live values may be held as, in order of the values' numbers, the cheapest first.

    A new one has one state.
    """

    def __init__(self, held: Sequence[int]) -> None: ...
    def __len__(self) -> int: ...
    def held(self, row: int) -> tuple[int, ...]:
        """One state's holdings."""

class Explored:
    """What a segment makes of the states before it."""

    @property
    def exit(self) -> States:
        """The undominated states behind it."""

    @property
    def least(self) -> complex:
        """What the first of these costs beyond the first of those before."""

    def passage(self, exit: Sequence[int]) -> tuple[int, list[tuple[int, int, int]]]:  # noqa: A002
        """How a state behind it was reached most cheaply.

        Gives the row of the state before it, and in order the operations before which options were
        taken, the number of what was taken in the stage, and its column.
        """

class Segment:
    """Operations between two cuts.

    `stocks` has a stock for each value, those live at entry first, then outputs. `live[p]` are the
    values needed at or after operation p, in order of their numbers, the last entry being what
    leaves the segment; `once[p]` are those of them with a single use left. `stages[p]` is what can
    be taken before operation p.
    """

    def __init__(
        self,
        stocks: Sequence[Stock],
        live: Sequence[Sequence[int]],
        once: Sequence[Sequence[int]],
        stages: Sequence[Sequence[Options]],
    ) -> None: ...
    def explore(self, entry: States) -> Explored:
        """Dynamic programming through it; what it makes of equal states is worked out once."""
