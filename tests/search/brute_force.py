"""An enumeration of all runs of a small program, written apart from the search.

Its own strategies, fusions, reshards (Dijkstra, one step at a time) and cost arithmetic, from the
numbers of a `Machine`. It drops no state: it only remembers what it has enumerated before. A
placement is a tuple of "R", "P", "0", "1", … (the dim that is cut), one for each axis.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tscompile.ir.placement import Partial, Placements, Shard
from tscompile.search.layout import View
from tscompile.search.program import Operation, Program

Place = tuple[str, ...]
Cost = tuple[int, int, int]
Live = tuple[tuple[str, frozenset[Place]], ...]

NOTHING: Cost = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of `node` ranks. Times in picoseconds, rates in 10^6 bytes or operations a second."""

    node: int
    latency: tuple[int, int]
    hop: tuple[int, int]
    rate: tuple[int, int]
    memory: int
    flops: int
    launch: int


def plus(*costs: Cost) -> Cost:
    """Sums."""
    return (sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs))


def minus(one: Cost, other: Cost) -> Cost:
    """The difference."""
    return (one[0] - other[0], one[1] - other[1], one[2] - other[2])


def place_of(placements: Placements) -> Place:
    """In this module's letters."""
    return tuple(
        str(p.dim) if isinstance(p, Shard) else "P" if isinstance(p, Partial) else "R"
        for p in placements
    )


_LINEAR = {"R": [("R", "R"), ("P", "P"), ("0", "0")], "0": [("R", "1")], "1": [("1", "P")]}
_TABLE = {"R": [((), "R"), ((), "0")], "0": [((), "P")], "1": [((), "1")]}
_EXPERTS = {"R": ["RR", "00"], "0": ["RP", "00x"]}


class BruteForce:
    """All runs of `program` on `machine`, fused or not."""

    def __init__(self, program: Program, machine: Machine, *, fuse: bool) -> None:
        self.program, self.machine, self.fuse = program, machine, fuse
        self.axes = [axis.name for axis in program.axes]
        self.ranks = {axis.name: axis.size for axis in program.axes}
        self._memo: dict[tuple[int, Live], Cost] = {}
        self._distances: dict[tuple[View, Place], dict[Place, Cost]] = {}
        self._runs: dict[int, list[_Way]] = {}

    @cached_property
    def best(self) -> Cost:
        """The cheapest run's picoseconds, launches and bytes."""
        given = {n: frozenset([place_of(p)]) for n, p in self.program.given.items()}
        return self._from(0, self._kept(0, given))

    # Sizes.

    def _cut(self, place: Place, dim: int | None = None) -> int:
        return math.prod(
            self.ranks[a]
            for a, p in zip(self.axes, place, strict=True)
            if p not in "RP" and (dim is None or p == str(dim))
        )

    def _tile(self, view: View, place: Place) -> int:
        return math.prod(view.shape) * view.itemsize // self._cut(place)

    def _extent(self, view: View, place: Place, dim: int) -> int:
        return view.shape[dim] // self._cut(place, dim)

    # Prices.

    def _kernel(self, moved: int, flops: int = 0) -> Cost:
        m = self.machine
        return (max(moved * 10**6 // m.memory, flops * 10**6 // m.flops) + m.launch, 1, 0)

    def _wire(self, kind: str, names: list[str], held: int) -> Cost:
        """One collective without its launch; ranks are listed to see which share a node."""
        m, group = self.machine, [0]
        stride = 1
        for axis in self.axes:
            if axis in names:
                group = [r + i * stride for i in range(self.ranks[axis]) for r in group]
            stride *= self.ranks[axis]
        n, near = len(group), sum(r < m.node for r in group)
        nodes = n // near
        legs = 2 if kind == "AR" else 1
        wire = held * (n - 1) if kind == "AG" else legs * held * (n - 1) // n
        shares = [
            (near > 1, held * (near - 1) // n if kind == "A2A" else wire, m.rate[0]),
            (
                nodes > 1,
                *(
                    (held * (n - near) // n, m.rate[1])
                    if kind == "A2A"
                    else (wire, m.rate[1] * near)
                ),
            ),
        ]
        time = max((size * 10**6 // rate for used, size, rate in shares if used), default=0)
        hops = math.ceil(math.log2(near)) * m.hop[0] + math.ceil(math.log2(nodes)) * m.hop[1]
        split = (m.latency[nodes > 1] + legs * hops + time, 0, wire)
        if kind == "AR" and nodes == 1:
            return min(split, self._direct(n, held))
        return split

    def _direct(self, n: int, held: int) -> Cost:
        m, wire = self.machine, held * (n - 1)
        return (m.latency[0] + m.hop[0] + wire * 10**6 // m.rate[0], 0, wire)

    def _one_shot(self, names: list[str], held: int) -> Cost | None:
        last = max(self.axes.index(n) for n in names)
        span = math.prod(self.ranks[a] for a in self.axes[: last + 1])
        if span > self.machine.node:
            return None
        return self._direct(math.prod(self.ranks[n] for n in names), held)

    # Reshards.

    def _neighbours(self, view: View, place: Place) -> Iterator[tuple[Place, Cost]]:
        for count in range(1, len(self.axes) + 1):
            for chosen in itertools.combinations(range(len(self.axes)), count):
                old = {place[i] for i in chosen}
                if len(old) != 1:
                    continue
                names = [self.axes[i] for i in chosen]
                dims = [str(d) for d, digits in enumerate(view.digits) if set(names) <= set(digits)]
                for new in ("R", "P", *dims):
                    source = next(iter(old))
                    if new != source:
                        target = tuple(new if i in chosen else p for i, p in enumerate(place))
                        price = self._step(view, place, target, names, source, new)
                        if price is not None:
                            yield target, price

    def _step(
        self, view: View, place: Place, target: Place, names: list[str], old: str, new: str
    ) -> Cost | None:
        before, behind = self._tile(view, place), self._tile(view, target)
        extra: list[Cost] = []
        for letter, at, size in ((new, place, before), (old, target, behind)):
            if letter not in "RP":
                dim = int(letter)
                digits = [a for a in reversed(view.digits[dim]) if at[self.axes.index(a)] != letter]
                if sorted(digits, key=lambda a: a not in names) != digits:
                    extra.append(self._kernel(2 * size))
                leading = math.prod(self._extent(view, at, d) for d in range(dim))
                if leading > 1 and old != "R":
                    extra.append(self._kernel(2 * size))
        launch = (self.machine.launch, 1, 0)
        match old, new:
            case "R", _:
                return plus(self._kernel(2 * behind), *extra)
            case "P", "R":
                return plus(self._wire("AR", names, before), launch)
            case "P", _:
                return plus(self._wire("RS", names, before), launch, *extra)
            case _, "R":
                return plus(self._wire("AG", names, before), launch, *extra)
            case _, "P":
                return None
            case _:
                return plus(self._wire("A2A", names, before), launch, *extra)

    def distances(self, view: View, source: Place) -> dict[Place, Cost]:
        """Cheapest ways from one placement to all others."""
        key = (view, source)
        if key not in self._distances:
            found: dict[Place, Cost] = {}
            queue: list[tuple[Cost, Place]] = [(NOTHING, source)]
            while queue:
                cost, place = heapq.heappop(queue)
                if place in found:
                    continue
                found[place] = cost
                for target, step in self._neighbours(view, place):
                    if target not in found:
                        heapq.heappush(queue, (plus(cost, step), target))
            self._distances[key] = found
        return self._distances[key]

    def _away(self, view: View, held: frozenset[Place], place: Place) -> Cost:
        return min(self.distances(view, h)[place] for h in held)

    def _acquired(
        self, view: View, held: frozenset[Place], place: Place, later: int
    ) -> Iterator[tuple[frozenset[Place], Cost]]:
        """Ways to have `place` too: straight, or by others that are kept for later uses.

        Keeping one is idle where it can be had later for no more.
        """
        straight = self._away(view, held, place)
        yield held | {place}, straight
        if not later or place in held:
            return
        for via in self.distances(view, next(iter(held))):
            if via in held or via == place:
                continue
            there = self._away(view, held, via)
            cost = plus(there, self.distances(view, via)[place])
            if cost >= plus(straight, min(there, self.distances(view, place)[via])):
                continue
            yield held | {place, via}, cost
            if later > 1:
                for kept, more in self._acquired(view, held | {via}, place, later - 1):
                    yield kept, plus(there, more)

    # Runs.

    def _from(self, position: int, live: Live) -> Cost:
        if position == len(self.program.operations):
            return NOTHING
        key = (position, live)
        if key not in self._memo:
            best: Cost | None = None
            for way in self._ways(position):
                for after, cost in self._taken(position, dict(live), way):
                    total = plus(cost, self._from(position + way.span, after))
                    best = total if best is None else min(best, total)
            assert best is not None, self.program.operations[position]
            self._memo[key] = best
        return self._memo[key]

    def _taken(
        self, position: int, held: dict[str, frozenset[Place]], way: _Way
    ) -> Iterator[tuple[Live, Cost]]:
        end = position + way.span
        choices: list[list[tuple[str, frozenset[Place], Cost]]] = []
        for name, place in way.needs.items():
            later = len([r for r in self._readers[name] if r >= end])
            view = self.program.values[name]
            choices.append(
                [(name, k, c) for k, c in self._acquired(view, held[name], place, later)]
            )
        made = {name: frozenset([place]) for name, place in way.makes.items()}
        for joint in itertools.product(*choices):
            now = {**held, **{name: kept for name, kept, _ in joint}, **made}
            yield self._kept(end, now), plus(way.cost, *(cost for _, _, cost in joint))

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        return self.program.readers()

    def _kept(self, position: int, held: dict[str, frozenset[Place]]) -> Live:
        return tuple(
            (name, places)
            for name, places in sorted(held.items())
            if any(r >= position for r in self._readers[name])
        )

    # Strategies.

    def _ways(self, position: int) -> list[_Way]:
        if position not in self._runs:
            found = [w for w, _ in self._single(position)]
            if self.fuse:
                found += self._chained(position) + list(self._reduced(position))
            self._runs[position] = found
        return self._runs[position]

    def _allowed(self, name: str, place: Place) -> bool:
        digits = self.program.values[name].digits
        return all(
            letter in "RP" or (int(letter) < len(digits) and axis in digits[int(letter)])
            for axis, letter in zip(self.axes, place, strict=True)
        )

    def _single(self, position: int) -> Iterator[tuple[_Way, tuple[int, int, Cost, bool]]]:
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
            yield _Way(1, needs, makes, cost), (moved, flops, extra, launches)

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

    # Fusions.

    def _chained(self, position: int) -> list[_Way]:
        """add + norm; linears of one input; two linears and what multiplies their outputs."""
        found: list[_Way] = []
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

    def _together(self, position: int, count: int) -> Iterator[_Way]:
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
            yield _Way(count, needs, {n: at[n] for n in made if n not in dead}, cost)

    def _reduced(self, position: int) -> Iterator[_Way]:
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

    def _reduction(
        self, first: Operation, norm: Operation, due: str, letters: tuple[str, ...], how: str
    ) -> _Way | None:
        view = self.program.values[first.outputs[0]]
        y, x, total, normed = (tuple(word[k] for word in letters) for k in range(4))
        if not all(self._allowed(first.outputs[0], place) for place in (y, x, total, normed)):
            return None
        names = [a for a, p in zip(self.axes, y, strict=True) if p == "P"]
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
        moved = sum(self._tile(view, p) for p in (y, total, normed))
        moved += sum(self._tile(view, x) for _ in residual)
        needs = {due: y, **dict.fromkeys(residual, x)}
        makes = {first.outputs[0]: total, norm.outputs[0]: normed}
        return _Way(2, needs, makes, plus(wire, self._kernel(moved)))


@dataclass(frozen=True, slots=True)
class _Way:
    """`span` ops at once: what they need, what they make, and their cost."""

    span: int
    needs: dict[str, Place]
    makes: dict[str, Place]
    cost: Cost
