"""The checker: derives each rank's tile of every value of a plan, and trusts no label in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tskernels.schema import TensorType
from tsruntime.artifact.check import check_plan
from tsruntime.artifact.proof.certificate import Certificate, TracedCache, rows_of
from tsruntime.artifact.proof.column import Bodies
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.proof.held import EVERYTHING, described
from tsruntime.artifact.proof.play import Player, Team, mistyped
from tsruntime.artifact.proof.runs import shown, whole
from tsruntime.artifact.proof.sources import Sources, replica_axes
from tsruntime.artifact.proof.storage import check_storage
from tsruntime.artifact.proof.tile import Local
from tsruntime.artifact.proof.traced import Traced
from tsruntime.artifact.schema import CacheGroup, Mesh, Plan, RankIndex, part_axes


def check_proof(plan: Plan, certificate: Certificate) -> None:
    """Raise PlanInvalid or PlanUnproven unless every program computes its traced graph.

    The smallest programs are played first, so that what is refused is the smallest example.
    """
    check_ranks([plan] * plan.mesh.world, certificate)


def check_ranks(plans: Sequence[Plan], certificate: Certificate) -> None:
    """As `check_proof`, where rank r runs `plans[r]`: plans that differ are played together."""
    first = plans[0]
    for plan in _distinct(plans):
        check_plan(plan)
        _check_axes(plan)
        _check_caches(plan, certificate)
        if plan.mesh != first.mesh or len(plan.programs) != len(first.programs):
            raise PlanUnproven(plan.name, "the ranks' plans have other meshes or programs")
        for program in plan.programs:
            check_storage(program)
    stage = _Stage(plans, certificate)
    sizes = [(p.tokens, p.sequences, i) for i, p in enumerate(first.programs)]
    for _, _, index in sorted(sizes):
        stage.play(index)


def derive(
    plan: Plan, certificate: Certificate, index: int
) -> tuple[Traced, list[dict[str, Local]]]:
    """The traced values of program `index`, and what each of its values is on each rank."""
    world = plan.mesh.world
    traced, (team,) = _Stage([plan] * world, certificate).run(index)
    return traced, [
        {name: column.at(rank) for name, column in team.values.items()} for rank in range(world)
    ]


class _Stage:
    """The ranks of a deployment and what they hold, on which its programs are played."""

    def __init__(self, plans: Sequence[Plan], certificate: Certificate) -> None:
        self._plans, self._certificate = plans, certificate
        self._bodies = Bodies()
        self._sources = {
            id(plan): Sources(plan, certificate, self._bodies) for plan in _distinct(plans)
        }
        everyone = tuple(range(len(plans)))
        together = len(self._sources) == 1
        self._crews = (everyone,) if together else tuple((rank,) for rank in everyone)

    def play(self, index: int) -> None:
        """Play program `index` and check what the ranks end with."""
        traced, teams = self.run(index)
        for team in teams:
            _check_output(self._plans[0].mesh, traced, team)
            writes = team.last_writes
            for cache in self._certificate.caches:
                self._check_written(traced, team, cache, writes.get((cache.group, cache.layer)))

    def run(self, index: int) -> tuple[Traced, list[Team]]:
        """Play program `index` to its end."""
        first = self._plans[0]
        program = first.programs[index]
        graph = self._certificate.graphs.get(rows_of(program))
        if graph is None:
            raise PlanUnproven(program.name, "the certificate has no graph for it")
        pages = first.limits.max_pages
        traced = Traced(self._certificate, graph, program, first.kv_cache, pages)
        teams = [self._team(index, ranks, traced) for ranks in self._crews]
        Player(first.mesh, traced, self._bodies, teams).run()
        return traced, teams

    def _team(self, index: int, ranks: tuple[int, ...], traced: Traced) -> Team:
        plan, first = self._plans[ranks[0]], self._plans[0]
        program = plan.programs[index]
        ours, theirs = (
            (p.kv_cache.pages, q.phase, q.tokens, q.sequences, q.logits)
            for p, q in ((plan, program), (first, first.programs[index]))
        )
        if ours != theirs:
            raise PlanUnproven(program.name, f"rank {ranks[0]} runs {ours}, rank 0 {theirs}")
        types = {value.name: TensorType(value.dtype, value.shape) for value in program.values}
        values = self._sources[id(plan)].values(traced, program, ranks)
        team = Team(ranks, program, types, values)
        for name, value in values.items():
            if (wrong := mistyped(traced, types[name], value)) is not None:
                raise PlanUnproven(team.place(), f"{name} {wrong}")
        return team

    def _check_written(
        self, traced: Traced, team: Team, cache: TracedCache, written: str | None
    ) -> None:
        """The layer's pool ends with every row's keys and values."""
        wanted = traced.last_cache[cache.name]
        column = None if written is None else team.values[written]
        numbers = (traced.number(cache.name),) if column is None else column.numbers
        if numbers != (wanted,):
            names = ", ".join(traced[number].name for number in numbers)
            raise PlanUnproven(
                team.place(),
                f"the cache of layer {cache.layer} ends as {names}, not {traced[wanted].name}",
            )
        sources = self._sources[id(self._plans[team.ranks[0]])]
        pool = sources.cache(traced, cache.group, wanted, team.ranks)
        if column is not None and column.body is not pool.body:
            raise PlanUnproven(team.place(), f"the cache of layer {cache.layer} is another tile")


def _distinct(plans: Iterable[Plan]) -> list[Plan]:
    return list({id(plan): plan for plan in plans}.values())


def _check_axes(plan: Plan) -> None:
    """The mesh is sound, and everything that names axes names its axes, each once."""
    names = {axis.name for axis in plan.mesh.axes}
    if len(names) != len(plan.mesh.axes) or any(axis.size < 1 for axis in plan.mesh.axes):
        raise PlanUnproven("mesh", f"{plan.mesh.axes} are not distinct axes of at least 1 rank")
    for where, axes in _named_axes(plan):
        if len(set(axes)) != len(axes) or not set(axes) <= names:
            raise PlanUnproven(where, f"it names the axes {axes}, the mesh has {sorted(names)}")


def _named_axes(plan: Plan) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from plan.mesh.groups.items()
    for group in plan.kv_cache.groups:
        yield group.name, group.axes
    for weight in plan.weights:
        yield weight.name, weight.axes
        for part in weight.parts:
            yield weight.name, part_axes(part)
    for program in plan.programs:
        for op in program.ops:
            for value in op.attributes.values():
                if isinstance(value, RankIndex):
                    yield f"program {program.name}, {op.op} in {op.module}", value.axes


def _check_caches(plan: Plan, certificate: Certificate) -> None:
    """The pools are those of the traced caches: layers, planes, all heads, width, window."""
    groups = {group.name: group for group in plan.kv_cache.groups}
    for cache in certificate.caches:
        group = groups.get(cache.group)
        if group is None or cache.layer not in group.layers:
            raise PlanUnproven(cache.name, f"no cache group {cache.group} holds its layer")
        found = _pool(plan.mesh, group)
        wanted = (cache.planes, cache.kv_heads, cache.head_dim, cache.window)
        if found != wanted:
            raise PlanUnproven(
                cache.name,
                f"its pool has (planes, heads, width, window) {found}, the model {wanted}",
            )


def _pool(mesh: Mesh, group: CacheGroup) -> tuple[int, int, int, int | None]:
    return group.planes, group.kv_heads * mesh.size(group.axes), group.head_dim, group.window


def _check_output(mesh: Mesh, traced: Traced, team: Team) -> None:
    """The logits: of the whole vocabulary, of all rows or of all of the rank's own replica."""
    output, known = team.values[team.program.output], traced[traced.output.number]
    if output.numbers != (traced.output.number,):
        names = ", ".join(traced[number].name for number in output.numbers)
        raise PlanUnproven(team.place(), f"the output holds {names}, not {known.name}")
    rows, vocabulary = known.type.shape
    axes = replica_axes(mesh)
    for position, rank in enumerate(team.ranks):
        pieces = output.at(position).pieces
        place, piece = team.place(rank), pieces[0]
        start = rows * mesh.coordinate(rank, axes)
        if len(pieces) > 1 or piece.held is not EVERYTHING:
            held = " and ".join(described(piece.held) for piece in pieces)
            raise PlanUnproven(place, f"the logits are an unfinished sum: it holds {held}")
        if piece.tile[0] not in (((start, start + rows),), whole(rows * mesh.size(axes))):
            raise PlanUnproven(place, f"the logits are of the rows {shown(piece.tile[0])}")
        if piece.tile[1] != whole(vocabulary):
            raise PlanUnproven(place, f"the logits are of the ids {shown(piece.tile[1])}")
