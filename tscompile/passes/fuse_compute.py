"""Write the fused strategies of one rank alone that the search chose as single ops."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft
from tscompile.passes.fusing import fused
from tscompile.rewrites.table import COMPUTE


def fuse_compute(draft: Draft) -> Draft:
    """Add and norm, gated activation, rotation and cache write. Raises FusionError."""
    programs = tuple(fused(program, COMPUTE) for program in draft.programs)
    return replace(draft, programs=programs)
