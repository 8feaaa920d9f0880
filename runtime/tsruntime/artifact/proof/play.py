"""Playing a program on all ranks: local ops one by one, collectives where their ranks meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, TensorType
from tsruntime.artifact.proof.column import Bodies, Column
from tsruntime.artifact.proof.errors import PlanUnproven, Refusal
from tsruntime.artifact.proof.exchanges import EXCHANGES
from tsruntime.artifact.proof.lookup import Lookup, Recipe
from tsruntime.artifact.proof.semantics.table import SEMANTICS
from tsruntime.artifact.proof.tile import Local
from tsruntime.artifact.proof.traced import Traced
from tsruntime.artifact.schema import CacheStorage, Mesh, Op, Program, RankIndex


@dataclass(slots=True)
class Team:
    """Ranks that run one program in step, on their way through it."""

    ranks: tuple[int, ...]
    program: Program
    types: Mapping[str, TensorType]
    values: dict[str, Column]
    at: int = 0

    @property
    def last_writes(self) -> dict[tuple[str, int], str]:
        """For each cache group and layer that the program writes, the value that it ends as."""
        storages = {value.name: value.storage for value in self.program.values}
        written: dict[tuple[str, int], str] = {}
        for op in self.program.ops:
            for name in op.outputs:
                if isinstance(storage := storages[name], CacheStorage):
                    written[storage.group, storage.layer] = name
        return written

    @property
    def pending(self) -> Op | None:
        """The op that it stands at, or None at the end."""
        return self.program.ops[self.at] if self.at < len(self.program.ops) else None

    def place(self, rank: int | None = None) -> str:
        """Where it stands, for messages."""
        op = self.pending
        here = "its end" if op is None else f"op {self.at} ({op.op} in {op.module})"
        return (
            f"program {self.program.name}, {here}, rank {self.ranks[0] if rank is None else rank}"
        )


class Player:
    """Runs every team until all are through, or refuses with where and why.

    Teams are one of all ranks, or one of each. Ops that look alike, such as those of the same
    layer kind, are thought through once and then only looked up in the traced program.
    """

    def __init__(self, mesh: Mesh, traced: Traced, bodies: Bodies, teams: Sequence[Team]) -> None:
        self._mesh, self._traced, self._bodies, self._teams = mesh, traced, bodies, teams
        self._team = {rank: team for team in teams for rank in team.ranks}
        self._recipes: dict[object, Recipe] = {}
        self._groups: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}

    def run(self) -> None:
        """Play to the end. Raises PlanUnproven."""
        moving = True
        while moving:
            moving = False
            for team in self._teams:
                while self._local_step(team) or self._meet(team):
                    moving = True
        self._nobody_waits()

    def _local_step(self, team: Team) -> bool:
        op = team.pending
        if op is None or op.op in EXCHANGES:
            return False
        inputs = tuple(_input(team, name) for name in op.inputs)
        numbers, key = self._key(op, inputs)
        outputs = self._remembered(key, numbers)
        if outputs is None:
            lookup = Lookup(self._traced, numbers)
            attributes = self._attributes(op, team.ranks)
            results = [
                self._computed(team, op, position, inputs, lookup, attributes[position])
                for position in range(len(team.ranks))
            ]
            outputs = tuple(map(self._bodies.column, zip(*results, strict=True)))
            self._recipes[key] = lookup.recipe(outputs)
        self._store(team, op, outputs)
        return True

    def _computed(
        self,
        team: Team,
        op: Op,
        position: int,
        inputs: Sequence[Column | None],
        lookup: Lookup,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Local, ...]:
        rank = team.ranks[position]
        here = [None if column is None else column.at(position) for column in inputs]
        try:
            if op.op not in SEMANTICS:
                raise Refusal("the checker does not know this op")
            return SEMANTICS[op.op](lookup, here, attributes)
        except Refusal as refusal:
            raise PlanUnproven(team.place(rank), str(refusal)) from None

    def _attributes(self, op: Op, ranks: Sequence[int]) -> Sequence[Mapping[str, AttributeValue]]:
        """Each rank's attributes; one object where they do not depend on the rank."""
        if any(isinstance(value, RankIndex) for value in op.attributes.values()):
            return [resolved(op, self._mesh, rank) for rank in ranks]
        return [resolved(op, self._mesh, ranks[0])] * len(ranks)

    def _key(self, op: Op, inputs: Sequence[Column | None]) -> tuple[list[int], object]:
        """The traced values in the inputs, each once, and all that the outputs depend on."""
        places: dict[int, int] = {}
        shapes: list[object] = []
        for column in inputs:
            if column is None:
                shapes.append(None)
                continue
            pattern = tuple(places.setdefault(n, len(places)) for n in column.numbers)
            shapes.append((column.body, pattern))
        kinds = tuple(self._traced.kinds[n] for n in places)
        attributes = tuple(sorted(op.attributes.items()))
        return list(places), (op.op, attributes, tuple(shapes), kinds)

    def _remembered(self, key: object, numbers: Sequence[int]) -> tuple[Column, ...] | None:
        recipe = self._recipes.get(key)
        return None if recipe is None else recipe.replay(self._traced, numbers)

    def _store(self, team: Team, op: Op, results: Sequence[Column]) -> None:
        for name, result in zip(op.outputs, results, strict=True):
            if (wrong := mistyped(self._traced, team.types[name], result)) is not None:
                raise PlanUnproven(team.place(), f"{name} {wrong}")
            team.values[name] = result
        team.at += 1

    def _meet(self, team: Team) -> bool:
        """Run the collective that `team` stands at if all that it needs stand at it."""
        op = team.pending
        if op is None or op.op not in EXCHANGES:
            return False
        axes = self._axes(team, op)
        needed, teams = self._partition(axes), [team]
        if len(self._teams) > 1:
            needed = tuple(members for members in needed if team.ranks[0] in members)
            teams = [self._team[member] for members in needed for member in members]
        if any(t.pending is None or _axes(t.pending) != axes for t in teams):
            return False
        for other in teams:
            self._same_call(team, op, other)
        numbers, key = self._key(op, [_input(team, name) for name in op.inputs])
        outputs = self._remembered(key, numbers) if len(teams) == 1 else None
        if outputs is not None:
            self._store(team, op, outputs)
        else:
            self._exchange(op, needed, teams, key)
        return True

    def _same_call(self, team: Team, op: Op, other: Team) -> None:
        call = other.pending
        assert call is not None
        if (call.op, dict(call.attributes)) != (op.op, dict(op.attributes)):
            raise PlanUnproven(
                team.place(),
                f"its group meets in different collectives: rank {team.ranks[0]} calls "
                f"{_in_full(op)}, rank {other.ranks[0]} {_in_full(call)}",
            )

    def _exchange(
        self, op: Op, groups: Sequence[tuple[int, ...]], teams: Sequence[Team], key: object
    ) -> None:
        columns = [_input(t, name) for t in teams for name in (t.pending or op).inputs]
        numbers = dict.fromkeys(n for column in columns if column for n in column.numbers)
        lookup = Lookup(self._traced, tuple(numbers))
        results: dict[int, tuple[Local, ...]] = {}
        for members in groups:
            results.update(zip(members, self._exchanged(op, members, lookup), strict=True))
        for team in teams:
            call = team.pending
            assert call is not None
            each = zip(*(results[rank] for rank in team.ranks), strict=True)
            outputs = [self._bodies.column(locals_) for locals_ in each]
            if len(teams) == 1:
                self._recipes[key] = lookup.recipe(outputs)
            self._store(team, call, outputs)

    def _exchanged(
        self, op: Op, members: Sequence[int], lookup: Lookup
    ) -> Sequence[tuple[Local, ...]]:
        team = self._team[members[0]]
        attributes = resolved(op, self._mesh, members[0])
        if attributes["size"] != len(members):
            size = attributes["size"]
            raise PlanUnproven(
                team.place(), f"it says {size} ranks, but its axes have {len(members)}"
            )
        try:
            return EXCHANGES[op.op](lookup, [self._brought(rank) for rank in members], attributes)
        except Refusal as refusal:
            ranks = ", ".join(map(str, members))
            raise PlanUnproven(team.place(members[0]), f"over ranks {ranks} {refusal}") from None

    def _brought(self, rank: int) -> Sequence[Local | None]:
        """What `rank` brings to the collective that it stands at."""
        team = self._team[rank]
        assert team.pending is not None
        position = team.ranks.index(rank)
        columns = [_input(team, name) for name in team.pending.inputs]
        return [None if column is None else column.at(position) for column in columns]

    def _axes(self, team: Team, op: Op) -> tuple[str, ...]:
        axes, names = _axes(op), {axis.name for axis in self._mesh.axes}
        if not axes or len(set(axes)) != len(axes) or not set(axes) <= names:
            raise PlanUnproven(team.place(), f"{axes} are no axes of the mesh")
        return axes

    def _partition(self, axes: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """The groups along `axes`, each in the order of its coordinates."""
        if axes not in self._groups:
            outside = tuple(axis.name for axis in self._mesh.axes if axis.name not in axes)
            found: dict[int, list[int]] = {}
            for rank in range(self._mesh.world):
                found.setdefault(self._mesh.coordinate(rank, outside), []).append(rank)
            self._groups[axes] = tuple(
                tuple(sorted(ranks, key=lambda r: self._mesh.coordinate(r, axes)))
                for ranks in found.values()
            )
        return self._groups[axes]

    def _nobody_waits(self) -> None:
        """Refuse with the shortest chain from a stuck rank to one that it can never meet."""
        stuck = [team for team in self._teams if team.pending is not None]
        if not stuck:
            return
        chain = min((self._chain(team) for team in stuck), key=len)
        text = ", which ".join(map(_waiting, chain, [*chain[1:], None]))
        raise PlanUnproven(chain[0].place(), f"stuck: rank {chain[0].ranks[0]} {text}")

    def _chain(self, team: Team) -> list[Team]:
        chain = [team]
        while (op := chain[-1].pending) is not None:
            axes = _axes(op)
            members = next(m for m in self._partition(axes) if chain[-1].ranks[0] in m)
            others = [self._team[member] for member in members]
            absent = next(t for t in others if t.pending is None or _axes(t.pending) != axes)
            if absent in chain:
                return [*chain, absent]
            chain.append(absent)
        return chain


def _waiting(team: Team, other: Team | None) -> str:
    op = team.pending
    if op is None:
        return "has finished"
    waits = f"waits in {_called(op)} (op {team.at})"
    return waits if other is None else f"{waits} for rank {other.ranks[0]}"


def _input(team: Team, name: str | None) -> Column | None:
    if name is None:
        return None
    if name not in team.values:
        raise PlanUnproven(team.place(), f"it reads {name}, which nothing has written")
    return team.values[name]


def mistyped(traced: Traced, declared: TensorType, value: Column) -> str | None:
    """What is wrong with the type that the plan declares for `value`, or None."""
    if value.body.shape != declared.shape:
        held = "ranks hold different shapes" if value.body.shape is None else "ranks hold"
        return f"is declared {list(declared.shape)}, but {held} {list(value.body.shape or ())}"
    for number in value.numbers:
        known = traced[number]
        if known.type.dtype is not declared.dtype:
            return f"is declared {declared.dtype}, but {known.name} is {known.type.dtype}"
    return None


def resolved(op: Op, mesh: Mesh, rank: int) -> Mapping[str, AttributeValue]:
    """The op's attributes as the executor gives them to `rank`, defaults filled in."""
    given = {
        name: mesh.coordinate(rank, value.axes) * value.stride
        if isinstance(value, RankIndex)
        else value
        for name, value in op.attributes.items()
    }
    return resolve_attributes(OPS[op.op].schema, given)


def _axes(op: Op) -> tuple[str, ...]:
    axes = op.attributes.get("axes")
    return tuple(str(axis) for axis in axes) if isinstance(axes, tuple) else ()


def _called(op: Op) -> str:
    return f"{op.op} over {'+'.join(_axes(op))}"


def _in_full(op: Op) -> str:
    given = ", ".join(f"{name}={value}" for name, value in sorted(op.attributes.items()))
    return f"{op.op}({given})"
