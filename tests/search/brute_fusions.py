"""Fused strategies: chains of ops, and reductions in the kernel of a norm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from search.brute_prices import NOTHING, Cost, Place, plus
from search.brute_strategies import Strategies, Way

from tscompile.search.layout import View
from tscompile.search.program import Operation


class Fusions(Strategies):
    """Several ops at once."""

    def _chained(self, position: int) -> list[Way]:
        """add + norm; linears of one input; two linears and what multiplies their outputs."""
        found: list[Way] = []
        ops = self.program.operations[position:]
        kinds = [op.kind for op in ops[:3]]
        if kinds[:2] == ["add", "rms_norm"] and ops[1].inputs == ops[0].outputs:
            found += self._together(position, 2)
        if kinds[:2] == ["linear", "linear"] and ops[0].inputs == ops[1].inputs:
            found += self._together(position, 2)
            if kinds == ["linear"] * 3 and ops[2].inputs == ops[0].inputs:
                found += self._together(position, 3)
            if kinds[2:] == ["silu_mul"] and set(ops[2].inputs) == {
                *ops[0].outputs,
                *ops[1].outputs,
            }:
                found += self._together(position, 3)
        return found

    def _together(self, position: int, count: int) -> Iterator[Way]:
        """One launch; what is shared is read once, what nobody else reads is never written."""
        end = position + count
        for joint in itertools.product(*(list(self._single(position + i)) for i in range(count))):
            at: dict[str, Place] = {}
            agreed = all(
                at.setdefault(name, place) == place
                for way, _ in joint
                for name, place in (*way.needs.items(), *way.makes.items())
            )
            if not agreed:
                continue
            made = [n for way, _ in joint for n in way.makes]
            dead = [n for n in made if not any(r >= end for r in self._readers[n])]
            reads = [n for way, _ in joint for n in way.needs]
            moved = sum(effort[0] for _, effort in joint)
            for name in set(reads):
                again = reads.count(name) - (name not in made)
                moved -= again * self._tile(self.program.values[name], at[name])
            moved -= sum(self._tile(self.program.values[n], at[n]) for n in dead)
            flops = sum(effort[1] for _, effort in joint)
            cost = plus(self._kernel(moved, flops), *(effort[2] for _, effort in joint))
            needs = {n: at[n] for n in dict.fromkeys(reads) if n not in made}
            yield Way(count, needs, {n: at[n] for n in made if n not in dead}, cost)

    def _reduced(self, position: int) -> Iterator[Way]:
        """A sum that is due, taken within the kernel of the residual's addition and the norm."""
        pair = self.program.operations[position : position + 2]
        if len(pair) < 2 or pair[0].kind not in ("add", "identity"):
            return
        first, norm = pair
        if norm.kind != "rms_norm" or norm.inputs != first.outputs:
            return
        for due in first.inputs:
            for letters in itertools.product(
                ("RRRR", "0000", "PRRR", "P000", "P00R", "P0RR"), repeat=len(self.axes)
            ):
                ways = {word for word in letters if word[0] == "P"}
                if len(ways) == 1:
                    way = self._reduction(first, norm, due, letters, ways.pop())
                    if way is not None:
                        yield way

    def _blocks(self, view: View, y: Place, names: list[str]) -> bool:
        """Whether the rows that each rank keeps lie together: what scatters is outermost."""
        free = [a for a in reversed(view.digits[0]) if y[self.axes.index(a)] != "0"]
        return set(free[: len(names)]) == set(names)

    def _reduction(
        self, first: Operation, norm: Operation, due: str, letters: tuple[str, ...], how: str
    ) -> Way | None:
        view = self.program.values[first.outputs[0]]
        y, x, total, normed = (tuple(word[k] for word in letters) for k in range(4))
        if not all(self._allowed(first.outputs[0], place) for place in (y, x, total, normed)):
            return None
        names = [a for a, p in zip(self.axes, y, strict=True) if p == "P"]
        if how != "PRRR" and not self._blocks(view, y, names):
            return None
        held, ranks = self._tile(view, y), math.prod(self.ranks[n] for n in names)
        wire: Cost | None = self._wire("RS", names, held)
        if how == "PRRR":
            wire = self._one_shot(names, held)
        if how in ("P00R", "P0RR"):
            parts = 1 if how == "P00R" else 2
            wire = plus(wire or NOTHING, self._wire("AG", names, parts * held // ranks))
        if wire is None:
            return None
        residual = [n for n in first.inputs if n != due]
        moved = (3 + len(residual)) * self._tile(view, x)
        needs = {due: y, **dict.fromkeys(residual, x)}
        makes = {first.outputs[0]: total, norm.outputs[0]: normed}
        return Way(2, needs, makes, plus(wire, self._kernel(moved)))
