"""reduce_scatter_add_rms_norm: rows are reduced and scattered, added to the residual's, normed."""

from __future__ import annotations

from functools import partial

from tscompile.rewrites.reduction import reduction
from tscompile.rewrites.rewrite import Rewrite

OP = "reduce_scatter_add_rms_norm"

REDUCE_SCATTER_ADD_RMS_NORM = Rewrite(OP, partial(reduction, OP, "reduce_scatter"))
