"""A shared expert beside routed ones: its replicated part is masked, or it counts many times."""

from __future__ import annotations

import numpy as np
from search.buffers import holds, lay_out, run

from tscompile.cost.model import CostModel
from tscompile.cost.topology import find_topology
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import PARTIAL, REPLICATE
from tscompile.search.layout import make_view, token_axes
from tscompile.search.reshard import Reshards
from tscompile.search.steps import StepKind, actions


def test_the_mask_is_there_and_without_it_the_sum_is_wrong() -> None:
    """attn 4, dense 2, ep 8: the routed sum is due over all axes, the shared one over {a}."""
    mesh = build_mesh(ParallelSizes(8, 4, 2, moe_ep=8))
    costs = CostModel(find_topology("h200-nvlink-8"), mesh.axes)
    view = make_view(mesh.axes, (16, 8), (token_axes(mesh, 8), ()), 8)
    reshards = Reshards(costs, view)
    shared_sum, routed_sum = (PARTIAL, REPLICATE, REPLICATE), (PARTIAL,) * 3
    (mask,) = reshards.path(reshards.index(shared_sum), reshards.index(routed_sum))
    assert (mask.step.kind, mask.step.axes) == (StepKind.MASK, ("b", "c"))
    noise = np.random.default_rng(0)
    routed, shared = (noise.integers(-9, 9, view.shape).astype(np.float64) for _ in range(2))
    parts = lay_out(mesh.axes, view, routed_sum, routed, noise)
    tiles = lay_out(mesh.axes, view, shared_sum, shared, noise)
    (action,) = actions(mesh.axes, view, shared_sum, mask.step)
    masked = run(mesh.axes, action, tiles)
    right = [a + b for a, b in zip(parts, masked, strict=True)]
    wrong = [a + b for a, b in zip(parts, tiles, strict=True)]
    assert holds(mesh.axes, view, routed_sum, routed + shared, right)
    assert not holds(mesh.axes, view, routed_sum, routed + shared, wrong)
