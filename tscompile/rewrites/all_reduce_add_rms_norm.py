"""all_reduce_add_rms_norm: an all-reduce, the residual's addition if there is one, and the norm."""

from __future__ import annotations

from functools import partial

from tscompile.rewrites.reduction import reduction
from tscompile.rewrites.rewrite import Rewrite

OP = "all_reduce_add_rms_norm"

ALL_REDUCE_ADD_RMS_NORM = Rewrite(OP, partial(reduction, OP, "all_reduce"))
