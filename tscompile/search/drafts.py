"""The exact search over a draft: every program placed, programs that are alike sharing work."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tscompile.cost.model import CostModel, Price
from tscompile.cost.topology import Topology
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.errors import DeviceMemoryError
from tscompile.ir.placement import Placements
from tscompile.search.layouts import laid_out, layouts, weighed, weight_bytes
from tscompile.search.offers import Offers
from tscompile.search.policies import Limits, PolicyName, check_expressible, policy_of
from tscompile.search.program import Program
from tscompile.search.reading import Reading
from tscompile.search.segment import Compiled, Compiler, Tables
from tscompile.search.solution import Solution, laid_in_order, solve
from tscompile.search.stack import Best, best_run
from tscompile.search.streams import with_identities
from tscompile.search.workers import side_by_side
from tscompile.search.writing import Writing


@dataclass(frozen=True, slots=True)
class Seen:
    """One program of a draft as the search sees it."""

    reading: Reading
    program: Program


@dataclass(frozen=True, slots=True)
class Solved:
    """One program as the search sees it, and its cheapest run."""

    reading: Reading
    program: Program
    solution: Solution


Under: TypeAlias = tuple[Seen, Compiled, Best]
"""One program under one layout of the weights, and its cheapest run there."""


@dataclass(frozen=True, slots=True)
class Laid:
    """All programs run most cheaply where the free weights lie as `placed`.

    `time` is that of all programs, each as often as its phase is assumed to run, in picoseconds.
    """

    placed: Mapping[str, Placements]
    time: int
    runs: tuple[Under, ...]


def place(
    draft: Draft,
    topology: Topology,
    policy: PolicyName = PolicyName.OURS,
    cache_bytes: int = 0,
    workers: int = 1,
) -> Draft:
    """Give every value its placements by the exact search, with a `reshard` node for every step.

    Of the layouts of weights that fit beside `cache_bytes` of KV cache and state on a rank, the one
    is taken that is fastest over all programs, which `workers` processes search side by side.
    Raises NoStrategyError where an op fits neither its weights nor the annotations around it,
    DeviceMemoryError where no layout fits, and UnlikeLayersError where layers that stand for
    several are not best done alike.
    """
    tables = Tables(CostModel(topology, draft.mesh.axes))
    every = fitting_layouts(draft, topology, cache_bytes)

    def fastest(prices: Sequence[Sequence[Price]]) -> int:
        times = [weighed(draft, of_one) for of_one in zip(*prices, strict=True)]
        return times.index(min(times))

    jobs = [partial(_placing, draft, program, tables, policy, every) for program in draft.programs]
    best, programs = side_by_side(jobs, fastest, workers)
    return replace(laid_out(draft, every[best]), programs=tuple(programs))


def _placing(
    draft: Draft,
    program: DraftProgram,
    tables: Tables,
    policy: PolicyName,
    every: Sequence[Mapping[str, Placements]],
) -> Generator[list[Price], int, DraftProgram]:
    """One program: yields its prices under every layout, is sent the number of one, and placed."""
    seen = read(draft, program)
    runs = [_under(draft, seen, tables, policy, placed) for placed in every]
    moved, compiled, run = runs[(yield [run.price for _, _, run in runs])]
    laid = laid_in_order(compiled, run)
    return Writing(moved.reading, moved.program, laid, tables.costs).run()


def under(
    draft: Draft,
    seen: Sequence[Seen],
    tables: Tables,
    policy: PolicyName,
    placed: Mapping[str, Placements],
) -> Laid:
    """The draft's programs, `seen`, under one layout of its weights."""
    runs = tuple(_under(draft, one, tables, policy, placed) for one in seen)
    return Laid(placed, weighed(draft, [run.price for _, _, run in runs]), runs)


def _under(
    draft: Draft,
    seen: Seen,
    tables: Tables,
    policy: PolicyName,
    placed: Mapping[str, Placements],
) -> Under:
    moved = Seen(*seen.reading.laid_out(seen.program, placed))
    compiled = _compiled(draft, moved, tables, policy)
    return moved, compiled, best_run(compiled)


def fitting_layouts(
    draft: Draft, topology: Topology, cache_bytes: int
) -> list[Mapping[str, Placements]]:
    """The layouts of the weights that fit the device beside `cache_bytes`.

    DeviceMemoryError where none does.
    """
    every = list(layouts(draft))
    if topology.capacity is None:
        return every
    bytes_ = [weight_bytes(draft, placed) for placed in every]
    if min(bytes_) + cache_bytes > topology.capacity:
        raise DeviceMemoryError(
            f"a rank holds {min(bytes_) / 1e9:.2f} GB of weights and {cache_bytes / 1e9:.2f} GB of "
            f"KV cache and state, but a device of {topology.name} has "
            f"{topology.capacity / 1e9:.0f} GB",
            remedy="cut the weights over more ranks, or give the KV cache less",
            where="parallel",
        )
    pairs = zip(every, bytes_, strict=True)
    return [placed for placed, size in pairs if size + cache_bytes <= topology.capacity]


def read(draft: Draft, program: DraftProgram) -> Seen:
    """A program of the draft as the search sees it."""
    constants = {weight.name for weight in draft.weights.values() if weight.constant is not None}
    reading = Reading(draft.mesh, with_identities(program), constants, draft.repeats)
    return Seen(reading, reading.program())


def solved(
    draft: Draft,
    seen: Seen,
    tables: Tables,
    policy: PolicyName,
    narrowed: Callable[[Limits | None], Limits | None] = lambda limits: limits,
) -> Solved:
    """A program, run most cheaply under a policy, `narrowed` further."""
    compiled = _compiled(draft, seen, tables, policy, narrowed)
    return Solved(seen.reading, seen.program, solve(compiled))


def _compiled(
    draft: Draft,
    seen: Seen,
    tables: Tables,
    policy: PolicyName,
    narrowed: Callable[[Limits | None], Limits | None] = lambda limits: limits,
) -> Compiled:
    reading, program = seen.reading, seen.program
    check_expressible(policy, draft.mesh, program)
    limits = narrowed(policy_of(policy, draft.mesh, program))
    offers, mode = Offers(reading, draft.target), reading.draft.phase.value
    compiler = Compiler(tables, reading.rule, limits, offers=offers, mode=mode)
    return compiler.compile_(program)
