"""The exact search over a draft: every program placed, programs that are alike sharing work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tscompile.cost.model import CostModel
from tscompile.cost.topology import Topology
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.errors import DeviceMemoryError
from tscompile.search.layouts import layouts, weighed, weight_bytes
from tscompile.search.offers import Offers
from tscompile.search.policies import Limits, PolicyName, check_expressible, policy_of
from tscompile.search.program import Program
from tscompile.search.reading import Reading
from tscompile.search.segment import Compiler
from tscompile.search.solution import Solution, solve
from tscompile.search.streams import with_identities
from tscompile.search.writing import Writing


@dataclass(frozen=True, slots=True)
class Solved:
    """One program as the search sees it, and its cheapest run."""

    reading: Reading
    program: Program
    solution: Solution


def place(
    draft: Draft,
    topology: Topology,
    policy: PolicyName = PolicyName.OURS,
    cache_bytes: int = 0,
) -> Draft:
    """Give every value its placements by the exact search, with a `reshard` node for every step.

    Of the layouts of weights that fit beside `cache_bytes` of KV cache on a rank, the one is taken
    that is fastest over all programs. Raises NoStrategyError where an op fits neither its weights
    nor the annotations around it, DeviceMemoryError where no layout fits.
    """
    compiler = Compiler(CostModel(topology, draft.mesh.axes))
    best: tuple[int, Draft, list[Solved]] | None = None
    for laid_out in _fitting(draft, topology, cache_bytes):
        runs = [solved(laid_out, program, compiler, policy) for program in laid_out.programs]
        time = weighed(laid_out, [run.solution.price for run in runs])
        if best is None or time < best[0]:
            best = time, laid_out, runs
    assert best is not None
    _, chosen, runs = best
    placed = (Writing(r.reading, r.program, r.solution, compiler.costs).run() for r in runs)
    return replace(chosen, programs=tuple(placed))


def _fitting(draft: Draft, topology: Topology, cache_bytes: int) -> list[Draft]:
    every = list(layouts(draft))
    if topology.capacity is None:
        return every
    fitting = [d for d in every if weight_bytes(d) + cache_bytes <= topology.capacity]
    if not fitting:
        least = min(map(weight_bytes, every))
        raise DeviceMemoryError(
            f"a rank holds {least / 1e9:.2f} GB of weights and {cache_bytes / 1e9:.2f} GB of KV "
            f"cache, but a device of {topology.name} has {topology.capacity / 1e9:.0f} GB",
            remedy="cut the weights over more ranks, or give the KV cache less",
            where="parallel",
        )
    return fitting


def solved(
    draft: Draft,
    program: DraftProgram,
    compiler: Compiler,
    policy: PolicyName,
    narrowed: Callable[[Limits | None], Limits | None] = lambda limits: limits,
) -> Solved:
    """One program of a draft, run most cheaply under a policy, `narrowed` further."""
    constants = {weight.name for weight in draft.weights.values() if weight.constant is not None}
    reading = Reading(draft.mesh, with_identities(program), constants)
    abstract = reading.program()
    check_expressible(policy, draft.mesh, abstract)
    limits = narrowed(policy_of(policy, draft.mesh, abstract))
    sharing = compiler.sharing(limits, reading.rule, Offers(reading, draft.target))
    return Solved(reading, abstract, solve(sharing.compile_(abstract)))
