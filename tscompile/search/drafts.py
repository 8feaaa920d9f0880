"""The exact search as a pass over drafts: `place` stands for the forward choice."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft, DraftProgram
from tscompile.search.costs import CostModel
from tscompile.search.reading import Reading
from tscompile.search.segment import Compiler
from tscompile.search.solution import solve
from tscompile.search.topology import find_topology
from tscompile.search.writing import Writing


def place(draft: Draft) -> Draft:
    """Give every value its placements by the exact search, with a `reshard` node for every step.

    Raises NoStrategyError where an op fits neither its weights nor the annotations around it.
    """
    costs = CostModel(find_topology(draft.target.topology), draft.mesh.axes)
    placed: list[DraftProgram] = []
    for program in draft.programs:
        reading = Reading(draft.mesh, program)
        compiler = Compiler(costs, fuse=False, rules=reading.rule)
        solution = solve(compiler.compile_(reading.program()))
        placed.append(Writing(reading, solution).run())
    return replace(draft, programs=tuple(placed))
