"""The strategies of single ops along each axis, and their effort."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from search.brute_prices import NOTHING, Cost, Place, place_of, plus
from search.brute_reshards import Reshards

from tscompile.search.program import Operation

_LINEAR = {"R": [("R", "R"), ("P", "P"), ("0", "0")], "0": [("R", "1")], "1": [("1", "P")]}
_TABLE = {"R": [((), "R"), ((), "0")], "0": [((), "P")], "1": [((), "1")]}
_EXPERTS = {"R": ["RR", "00"], "0": ["RP", "00x"]}


@dataclass(frozen=True, slots=True)
class Way:
    """`span` ops at once: what they need, what they make, and their cost."""

    span: int
    needs: dict[str, Place]
    makes: dict[str, Place]
    cost: Cost


class Strategies(Reshards):
    """One op at a time."""

    def _allowed(self, name: str, place: Place) -> bool:
        digits = self.program.values[name].digits
        return all(
            letter in "RP" or (int(letter) < len(digits) and axis in digits[int(letter)])
            for axis, letter in zip(self.axes, place, strict=True)
        )

    def _single(self, position: int) -> Iterator[tuple[Way, tuple[int, int, Cost, bool]]]:
        """One op's strategies; with each what it moves, its flops, extras, and if it launches."""
        op = self.program.operations[position]
        for joint in itertools.product(*(self._along(op, i) for i in range(len(self.axes)))):
            needs = {n: tuple(j[0][k] for j in joint) for k, n in enumerate(op.inputs)}
            makes = {n: tuple(j[1] for j in joint) for n in op.outputs}
            places = needs | makes
            if not all(self._allowed(n, p) for n, p in places.items()):
                continue
            tags = [a for a, j in zip(self.axes, joint, strict=True) if j[2]]
            moved, flops, extra = self._effort(op, places, tags)
            launches = op.kind not in ("identity", "output")
            cost = plus(self._kernel(moved, flops), extra) if launches else extra
            yield Way(1, needs, makes, cost), (moved, flops, extra, launches)

    def _along(self, op: Operation, i: int) -> list[tuple[tuple[str, ...], str, str]]:
        """Along axis i: letters of the inputs, of the output, and a tag."""
        axis = self.axes[i]
        bound = [place_of(b.placements)[i] for b in op.bound]
        match op.kind:
            case "linear":
                return [((x,), y, "") for x, y in _LINEAR[bound[0]]]
            case "embedding":
                return [(x, y, "") for x, y in _TABLE[bound[0]]]
            case "add":
                return [((p, p), p, "late" if p == "P" else "") for p in "RP01"]
            case "identity":
                return [((p,), p, "") for p in "RP01"]
            case "rms_norm":
                return [((p,), p, "") for p in "R01"]
            case "silu_mul":
                return [((p,) * len(op.inputs), p, "") for p in "R01"]
            case "attention":
                letter = {"2": "1", "0": "0", "R": "R"}[bound[0]]
                return [((letter,) * len(op.inputs), letter, "")]
            case "select_rows":
                inside = [((p,), p, "") for p in "RP1"]
                return inside + ([(("0",), "0", "")] if op.attribute(f"replicas.{axis}") else [])
            case "sample":
                return [(("R",), "R", ""), (("0",), "0", ""), (("1",), "R", "best")]
            case "output":
                return [(("R",), "R", "")]
            case "experts":
                if bound[0] == "1":
                    return [(("R",), "P", "")]
                return [((w[0],), w[1], w[2:]) for w in _EXPERTS[bound[0]]]
            case _:
                raise AssertionError(op.kind)

    def _effort(
        self, op: Operation, at: dict[str, Place], tags: list[str]
    ) -> tuple[int, int, Cost]:
        views = self.program.values
        tiles = {n: self._tile(views[n], p) for n, p in at.items()}
        weights = sum(self._tile(b.view, place_of(b.placements)) for b in op.bound)
        moved, flops, extra = sum(tiles.values()) + weights, 0, NOTHING
        x = op.inputs[0] if op.inputs else ""
        y = op.outputs[0] if op.outputs else ""
        match op.kind:
            case "add":
                extra = (self.machine.launch + 1, 0, 0) if tags else NOTHING
            case "linear":
                rows = self._extent(views[x], at[x], 0)
                inner = self._extent(views[x], at[x], 1)
                flops = 2 * rows * inner * self._extent(views[y], at[y], 1)
            case "embedding" | "select_rows":
                moved = 2 * tiles[y]
            case "rms_norm":
                cut = [a for a, p in zip(self.axes, at[x], strict=True) if p == "1"]
                if cut:
                    sums = 4 * self._extent(views[x], at[x], 0)
                    reduce = plus(self._wire("AR", cut, sums), (self.machine.launch, 1, 0))
                    extra = plus(self._kernel(tiles[x]), reduce)
            case "attention":
                elements = tiles[x] // views[x].itemsize
                flops = 4 * elements * op.attribute("context")
            case "sample":
                moved = tiles[x]
                if tags:
                    held = 8 * op.attribute("candidates") * self._extent(views[x], at[x], 0)
                    gather = plus(self._wire("AG", tags, held), (self.machine.launch, 1, 0))
                    extra = plus(gather, self._kernel(held))
            case "experts":
                return self._experts(op, at, tags)
            case _:
                pass
        return moved, flops, extra

    def _experts(
        self, op: Operation, at: dict[str, Place], tags: list[str]
    ) -> tuple[int, int, Cost]:
        x, view = at[op.inputs[0]], self.program.values[op.inputs[0]]
        up, down = op.bound
        held = self._tile(view, x)
        peers = math.prod(self.ranks[a] for a in tags)
        mine = self._extent(up.view, place_of(up.placements), 0)
        wide = self._extent(up.view, place_of(up.placements), 1)
        tokens = self._extent(view, x, 0) * peers
        rows = math.ceil(tokens * op.attribute("top_k") * mine / op.attribute("experts"))
        weights = sum(self._tile(b.view, place_of(b.placements)) for b in (up, down))
        moved = 2 * held + weights * min(mine, rows) // mine
        flops = 2 * rows * self._extent(view, x, 1) * (wide + wide // 2)
        if not tags:
            return moved, flops, NOTHING
        copies = min(peers, op.attribute("top_k")) if op.attribute("valid_rows_only") else peers
        leg = plus(
            self._wire("A2A", tags, copies * held),
            (self.machine.launch, 1, 0),
            self._kernel(2 * copies * held),
        )
        return moved, flops, plus(leg, leg)
