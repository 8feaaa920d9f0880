"""What a plan gives when its ranks really run it: the judge of mutants."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from tscompile.simulate.session import Session
from tscompile.simulate.weights import random_weights
from tscompile.simulate.world import World
from tskernels.errors import TsError
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.sources import replica_axes
from tsruntime.artifact.schema import NULL_PAGE, Plan
from tsruntime.executor.batch import ForwardBatch

TOLERANCE = 1e-9


class Outcome(Enum):
    """What became of a mutant's logits and caches."""

    SAME = "same"
    CHANGED = "changed"
    FAILED = "stuck or crashed"


class Trial:
    """Two steps of uneven work through a plan's first program, on every replica."""

    def __init__(self, plan: Plan, certificate: Certificate) -> None:
        self.tensors = random_weights(certificate, seed=1)
        replicas = plan.mesh.size(replica_axes(plan.mesh))
        random = np.random.default_rng(2)
        sessions = [Session(plan, random) for _ in range(replicas)]
        self.steps = [
            [s.batch(0, step, _work(plan, step, r)) for r, s in enumerate(sessions)]
            for step in (1, 2)
        ]
        self.logits, self.caches = self._run([plan] * plan.mesh.world)

    def outcome(self, plans: Sequence[Plan]) -> Outcome:
        """Run mutated plans, one a rank, on the same work."""
        try:
            logits, caches = self._run(plans)
        except (TsError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AssertionError):
            return Outcome.FAILED
        pairs = [*zip(self.logits, logits, strict=True), *zip(self.caches, caches, strict=True)]
        return Outcome.SAME if all(_close(a, b) for a, b in pairs) else Outcome.CHANGED

    def _run(self, plans: Sequence[Plan]) -> tuple[list[Tensor], list[Tensor]]:
        with torch.no_grad():
            world = World(plans, self.tensors)
            logits = [row for batches in self.steps for row in _step(world, batches)]
        pools = [e.pools.group(g.name) for e in world.executors for g in e.plan.kv_cache.groups]
        return logits, [pool[:, NULL_PAGE + 1 :] for pool in pools]


def _work(plan: Plan, step: int, replica: int) -> list[tuple[int, int]]:
    """(sequence, tokens): two prompts of unequal length, then one goes on; a replica may idle."""
    tokens = plan.programs[0].tokens
    if step == 1:
        return [(replica % 2, tokens - 5), (2, 3)] if replica % 2 == 0 else [(1, tokens)]
    return [(2, 1), (0, 2)] if replica == 0 else []


def _step(world: World, batches: Sequence[ForwardBatch]) -> list[Tensor]:
    world.prepare(batches)
    logits = world.run(0)
    return [
        rows[: batches[world.replica(rank)].num_sequences].clone()
        for rank, rows in enumerate(logits)
    ]


def _close(wanted: Tensor, found: Tensor) -> bool:
    """Equal where the unmutated plan has numbers."""
    if wanted.shape != found.shape:
        return False
    known = ~wanted.isnan()
    a, b = wanted[known], found[known].to(wanted.dtype)
    if not len(a):
        return True
    return bool((a - b).abs().max() <= TOLERANCE * a.abs().max())
