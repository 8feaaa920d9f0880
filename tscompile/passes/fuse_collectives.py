"""Write the fused strategies with communication that the search chose as single ops."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft
from tscompile.passes.fusing import fused
from tscompile.rewrites.table import COLLECTIVES


def fuse_collectives(draft: Draft) -> Draft:
    """Reductions with the residual's addition, the norm and gathers. Raises FusionError."""
    programs = tuple(fused(program, COLLECTIVES) for program in draft.programs)
    return replace(draft, programs=programs)
