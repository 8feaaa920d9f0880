"""All ranks of a plan in one process: local ops one by one, collectives where their ranks meet.

Collectives see their kind, the group's order and the ranks' buffers; no placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from tscompile.simulate.errors import SimulationStuck
from tscompile.simulate.weights import Shards
from tskernels.ops import OPS
from tskernels.ops.grouped import grouped
from tskernels.schema import OpKind
from tsruntime.artifact.proof.sources import replica_axes
from tsruntime.artifact.schema import NULL_PAGE, Mesh, Op, Plan
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.bind import Step
from tsruntime.executor.executor import Executor

Observer: TypeAlias = Callable[[int, str, Tensor], None]
"""Called with rank, value name and tensor right after an op has written the value."""

PADDING_TOKEN = -1
"""Id that marks a padding row: its embedding becomes NaN."""


@dataclass(slots=True)
class _Turn:
    """One rank on its way through a program."""

    rank: int
    ops: tuple[Op, ...]
    steps: dict[int, Step]
    values: Mapping[str, Tensor]
    at: int = 0

    @property
    def pending(self) -> Op | None:
        return self.ops[self.at] if self.at < len(self.ops) else None


class _Absent:
    """A communicator that only knows its place: the world itself runs the collectives."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, x: Tensor, reduce: str) -> None:
        """Never called."""
        raise AssertionError("the simulated world runs collectives itself")

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Never called."""
        raise AssertionError("the simulated world runs collectives itself")

    def reduce_scatter(self, out: Tensor, x: Tensor, reduce: str) -> None:
        """Never called."""
        raise AssertionError("the simulated world runs collectives itself")

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        """Never called."""
        raise AssertionError("the simulated world runs collectives itself")


@dataclass
class World:
    """Rank r runs `plans[r]` (float64, reference kernels) with shards of whole `tensors`.

    Caches begin as NaN but for the null page, arenas as NaN before every program.
    """

    plans: Sequence[Plan]
    tensors: Mapping[str, Tensor]
    executors: list[Executor] = field(init=False)

    def __post_init__(self) -> None:
        self.executors = [self._executor(rank, plan) for rank, plan in enumerate(self.plans)]

    @property
    def mesh(self) -> Mesh:
        """The mesh, which is every rank's."""
        return self.plans[0].mesh

    def replica(self, rank: int) -> int:
        """The attention replica that `rank` belongs to."""
        return self.mesh.coordinate(rank, replica_axes(self.mesh))

    def prepare(self, batches: Sequence[ForwardBatch]) -> None:
        """Give each replica its own batch; all name the same program."""
        for rank, executor in enumerate(self.executors):
            batch = batches[self.replica(rank)]
            executor.prepare(batch)
            executor.arena.fill_(0xFF)
            ids = self._input(rank, batch.program, "token_ids")
            ids[batch.num_tokens :] = PADDING_TOKEN

    def run(self, program: int, observe: Observer | None = None) -> list[Tensor]:
        """Run a prepared program; each rank's logits. Raises SimulationStuck."""
        turns = [self._turn(rank, program) for rank in range(len(self.executors))]
        moving = True
        while moving:
            moving = False
            for turn in turns:
                while self._local_step(turn, observe) or self._meet(turns, turn, observe):
                    moving = True
        waiting = [turn for turn in turns if turn.pending is not None]
        if waiting:
            raise _stuck(waiting[0], "waits for ranks that never come")
        return [executor.output(program) for executor in self.executors]

    def _executor(self, rank: int, plan: Plan) -> Executor:
        def communicator(axes: tuple[str, ...]) -> _Absent:
            members = plan.mesh.members(rank, axes)
            return _Absent(members.index(rank), len(members))

        executor = Executor(plan, rank, Shards(plan, self.tensors, rank), communicator)
        for cache in plan.kv_cache.groups:
            pool = executor.pools.group(cache.name)
            pool.fill_(torch.nan)
            pool[:, NULL_PAGE].zero_()
        return executor

    def _input(self, rank: int, program: int, name: str) -> Tensor:
        return self.executors[rank].values(program)[name]

    def _turn(self, rank: int, program: int) -> _Turn:
        ops = self.plans[rank].programs[program].ops
        steps = self.executors[rank].steps(program)
        running = [i for i, op in enumerate(ops) if OPS[op.op].schema.kind is not OpKind.VIEW]
        bound = dict(zip(running, steps, strict=True))
        return _Turn(rank, ops, bound, self.executors[rank].values(program))

    def _local_step(self, turn: _Turn, observe: Observer | None) -> bool:
        op = turn.pending
        if op is None or OPS[op.op].schema.kind is OpKind.COLLECTIVE:
            return False
        if turn.at in turn.steps:
            turn.steps[turn.at].run()
        if op.op == "embedding" and op.inputs[0] is not None:
            ids = turn.values[op.inputs[0]]
            turn.values[op.outputs[0]][ids == PADDING_TOKEN] = torch.nan
        _written(turn, observe)
        return True

    def _meet(self, turns: Sequence[_Turn], turn: _Turn, observe: Observer | None) -> bool:
        """Run the collective that `turn` stands at if its whole group stands at it."""
        op = turn.pending
        if op is None or OPS[op.op].schema.kind is not OpKind.COLLECTIVE:
            return False
        axes = op.attributes["axes"]
        members = [turns[r] for r in self.mesh.members(turn.rank, axis_names(op))]
        calls = [member.pending for member in members]
        if any(call is None or call.attributes.get("axes") != axes for call in calls):
            return False
        if any(call is None or _signature(call) != _signature(op) for call in calls):
            raise _stuck(turn, "meets ranks that call another collective")
        _exchange(op, members)
        for member in members:
            _written(member, observe)
        return True


def _exchange(op: Op, members: Sequence[_Turn]) -> None:
    """Compute all results from all buffers, then write them."""
    sources = [
        [None if name is None else member.values[name] for name in _call(member).inputs]
        for member in members
    ]
    kinds = {tuple(x if x is None else (x.shape, x.dtype) for x in brought) for brought in sources}
    if len(kinds) > 1:
        raise _stuck(members[0], "meets ranks that bring tensors of other shapes")
    for member, results in zip(members, grouped(op.op, sources, op.attributes), strict=True):
        for name, result in zip(_call(member).outputs, results, strict=True):
            member.values[name].copy_(result)


def _call(turn: _Turn) -> Op:
    assert turn.pending is not None
    return turn.pending


def _written(turn: _Turn, observe: Observer | None) -> None:
    if observe is not None:
        for name in _call(turn).outputs:
            observe(turn.rank, name, turn.values[name])
    turn.at += 1


def axis_names(op: Op) -> tuple[str, ...]:
    """The axes that a collective joins, innermost first."""
    axes = op.attributes["axes"]
    return tuple(str(axis) for axis in axes) if isinstance(axes, tuple) else ()


def _signature(op: Op) -> object:
    return op.op, tuple(sorted(op.attributes.items()))


def _stuck(turn: _Turn, what: str) -> SimulationStuck:
    op = _call(turn)
    return SimulationStuck(
        f"rank {turn.rank} {what}: op {turn.at}, {op.op} over {op.attributes.get('axes')}",
        remedy="this is a defect of the compiler or of an edited plan; report it",
        where=op.module,
    )
