"""The exact search over a draft: every program placed, programs that are alike sharing work."""

from __future__ import annotations

from dataclasses import replace

from tscompile.cost.model import CostModel
from tscompile.cost.topology import Topology
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.search.offers import Offers
from tscompile.search.policies import PolicyName, policy_of
from tscompile.search.program import Program
from tscompile.search.reading import Reading
from tscompile.search.segment import Compiler
from tscompile.search.solution import Solution, solve
from tscompile.search.streams import with_identities
from tscompile.search.writing import Writing


def place(draft: Draft, topology: Topology, policy: PolicyName = PolicyName.OURS) -> Draft:
    """Give every value its placements by the exact search, with a `reshard` node for every step.

    Raises NoStrategyError where an op fits neither its weights nor the annotations around it.
    """
    compiler = Compiler(CostModel(topology, draft.mesh.axes))
    return replace(
        draft,
        programs=tuple(_placed(draft, program, compiler, policy) for program in draft.programs),
    )


def _placed(
    draft: Draft, program: DraftProgram, compiler: Compiler, policy: PolicyName
) -> DraftProgram:
    reading, abstract, solution = solved(draft, program, compiler, policy)
    return Writing(reading, abstract, solution, compiler.costs).run()


def solved(
    draft: Draft, program: DraftProgram, compiler: Compiler, policy: PolicyName
) -> tuple[Reading, Program, Solution]:
    """One program as the search sees it, and its cheapest run under a policy."""
    constants = {weight.name for weight in draft.weights.values() if weight.constant is not None}
    reading = Reading(draft.mesh, with_identities(program), constants)
    abstract = reading.program()
    limits = policy_of(policy, draft.mesh, abstract)
    sharing = compiler.sharing(limits, reading.rule, Offers(reading, draft.target))
    return reading, abstract, solve(sharing.compile_(abstract))
