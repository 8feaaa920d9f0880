"""From a module to a graph: the only package that sees torch.fx."""

from __future__ import annotations

from tscompile.trace.fold import fold
from tscompile.trace.selection import without_selection
from tscompile.trace.tracer import trace

__all__ = ["fold", "trace", "without_selection"]
