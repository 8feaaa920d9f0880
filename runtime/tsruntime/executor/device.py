"""One rank's executor on a GPU: everything in device memory, a graph for each program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tskernels.device import CudaDevice
from tskernels.ops.sampling.words import DrawKind
from tsruntime.artifact.budget import budget
from tsruntime.artifact.launches import DeviceCode, Launches
from tsruntime.artifact.schema import Plan, Program
from tsruntime.executor.batch import NO_PROGRAM, ForwardBatch
from tsruntime.executor.bind import Communicators, Memory, TensorStore, bind_values
from tsruntime.executor.drawing import DrawStage, draw_memory
from tsruntime.executor.errors import DeviceTooSmall
from tsruntime.executor.inputs import SLOTS, InputBuffers, ProgramInputs, program_inputs
from tsruntime.executor.launching import Binder, Kernels
from tsruntime.executor.output import StepOutput, Wait
from tsruntime.graphs.cuda import CudaGraph
from tsruntime.kv_cache.pool import KvPools
from tsruntime.kv_cache.table import PageTable

_IN_FLIGHT = 2
"""Steps that may be launched before the first of them has ended."""


@dataclass(frozen=True, slots=True)
class _BoundProgram:
    """A program on this rank's device: the graph to its logits, and those that draw from them."""

    graph: CudaGraph
    draws: Mapping[DrawKind, CudaGraph]
    output: Tensor


@dataclass(frozen=True, slots=True)
class _Stage:
    """Pinned host memory of one step in flight: inputs to `send`, and all about its draws.

    `inputs` are each program's views of it, and `prepare` what its kernels ask of the host then,
    which writes `lists` (and knows its address alone).
    `drawn` has come to pass when the last step has that used it, and `ended` when its tokens are
    here.
    """

    inputs: tuple[ProgramInputs, ...]
    prepare: tuple[Kernels, ...]
    lists: Tensor
    send: Callable[[], None]
    draws: DrawStage
    drawn: torch.cuda.Event
    ended: torch.cuda.Event


class DeviceExecutor:
    """Runs the programs of `plan` as rank `rank` on GPU number `index`.

    The arena, the weights, the pages and the areas that kernels share are there from the start;
    after that nothing is allocated for a step but what moving pages takes.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        weights: TensorStore,
        communicators: Communicators,
        code: DeviceCode,
        index: int = 0,
    ) -> None:
        check_memory(plan, code.launches, index)
        self.plan = plan
        device = f"cuda:{index}"
        torch.cuda.set_device(index)
        self._stream = torch.cuda.Stream(index)
        self._fetches = torch.cuda.Stream(index)  # so that the next step does not wait for a copy
        self.pools = KvPools(plan.kv_cache, device)
        self.tables = tuple(
            PageTable(plan.limits.max_batch, plan.limits.max_pages) for _ in plan.kv_cache.groups
        )
        arena = torch.empty(
            max(p.arena_bytes for p in plan.programs), dtype=torch.uint8, device=device
        )
        self._inputs = InputBuffers(plan, device, beside=(SLOTS,))
        tensors = {weight.name: weights.tensor(weight.name) for weight in plan.weights}
        memory = Memory(arena, tensors, self._inputs, self.pools)
        self._memory = memory  # graphs hold addresses alone
        self._draws = draw_memory(plan, self._stream.device)
        self._binder = Binder(plan, rank, communicators, code, self._stream)
        self._past, self._step_bytes = code.launches.past, code.launches.step_bytes
        self._stages = [self._stage() for _ in range(_IN_FLIGHT)]
        self._turn = 0
        self._programs = tuple(
            self._bind(code.launches.programs[program.name].draws, program, memory)
            for program in plan.programs
        )

    draws_tokens = True

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step and wait for it; the logits stay on the device.

        Row i belongs to sequence i (`logits` "last") or to token i ("all"); rows beyond the batch
        are padding and may hold anything. A batch without a program only moves pages.
        """
        return self.launch(batch)()

    def launch(self, batch: ForwardBatch) -> Wait:
        """Have the step run after those launched before, of which one may still run.

        A row whose token id is below 0 takes the token that its slot's last step drew.
        """
        return self._launch(batch, CudaGraph.replay)

    def eagerly(self, batch: ForwardBatch) -> StepOutput:
        """As `run`, launch by launch in place of the graph: the same bits, for whoever doubts."""
        return self._launch(batch, CudaGraph.run_eagerly)()

    def forward(self, batch: ForwardBatch) -> Tensor:
        """The logits of `run`."""
        return self.run(batch).logits

    @property
    def stream(self) -> torch.cuda.Stream:
        """What everything runs on but the copies of what was drawn."""
        return self._stream

    def kernels(self, program: int) -> Kernels:
        """A program's kernels to its logits in order, views left out, after the feeding one."""
        return self._programs[program].graph.kernels

    def draw_kernels(self, program: int, kind: DrawKind) -> Kernels:
        """The kernels that draw from the program's logits."""
        return self._programs[program].draws[kind].kernels

    def replay(self, program: int, times: int, kind: DrawKind = DrawKind.GREEDY) -> float:
        """Milliseconds of one of `times` steps' graphs in a row, on the inputs of the last step."""
        bound = self._programs[program]
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            begin.record()
            for _ in range(times):
                bound.graph.replay()
                bound.draws[kind].replay()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) / times

    def _launch(self, batch: ForwardBatch, replay: Callable[[CudaGraph], None]) -> Wait:
        """From here on this thread's work goes to the executor's stream."""
        stage, before = self._stages[self._turn], self._stages[self._turn - 1]
        self._turn = (self._turn + 1) % len(self._stages)
        stage.ended.synchronize()
        torch.cuda.set_stream(self._stream)
        self._move_pages(batch)
        stage.draws.rebuild(batch.draws.pasts, self._rebuild, self._stream)
        output, draws = torch.empty(0, self.plan.vocab_size), batch.draws
        if batch.program != NO_PROGRAM:
            bound = self._programs[batch.program]
            stage.inputs[batch.program].write(batch, self.tables)
            stage.send()
            for prepare in stage.prepare[batch.program]:
                prepare()
            stage.draws.send(draws)
            replay(bound.graph)
            self._stream.wait_event(before.ended)  # its tokens have left where these come to
            replay(bound.draws[draws.kind])
            output = bound.output
        stage.drawn.record(self._stream)
        self._fetches.wait_event(stage.drawn)
        if batch.program != NO_PROGRAM:
            stage.draws.fetch(draws)
        stage.ended.record(self._fetches)

        def wait() -> StepOutput:
            stage.ended.synchronize()
            rows = len(output)
            logprobs = stage.draws.logprobs(rows) if draws.kind.logprobs else None
            return StepOutput(output, stage.draws.tokens(rows), logprobs)

        return wait

    def _rebuild(self, past: Tensor) -> None:
        """Have a slot's counts and biases be what its request's `past` says."""
        known = (self._draws.counts, self._draws.biases)
        for kernel in self._binder.call(self._past, {"input": (past,), "output": known}):
            kernel()

    def _move_pages(self, batch: ForwardBatch) -> None:
        for group, part, table in zip(
            self.plan.kv_cache.groups, batch.groups, self.tables, strict=True
        ):
            self.pools.store_pages(group.name, part.stores)
            self.pools.load_pages(group.name, part.loads)
            table.apply(part.table_deltas)
            self.pools.copy_pages(group.name, part.copies)
            self.pools.zero_pages(group.name, part.zero_pages)

    def _stage(self) -> _Stage:
        device = self._binder.device
        buffers = InputBuffers(self.plan, pinned=True, beside=(SLOTS,))
        inputs = tuple(program_inputs(self.plan, p, buffers) for p in self.plan.programs)
        lists = torch.zeros(self._step_bytes, dtype=torch.uint8, pin_memory=True)
        prepare = tuple(self._binder.preparation(p, buffers, lists) for p in self.plan.programs)
        send = device.copy(self._inputs.flat, buffers.flat)
        draws = DrawStage(device, CudaDevice(self._fetches), self._draws)
        drawn, ended = torch.cuda.Event(), torch.cuda.Event()
        return _Stage(inputs, prepare, lists, send, draws, drawn, ended)

    def _bind(
        self, draws: Mapping[DrawKind, int], program: Program, memory: Memory
    ) -> _BoundProgram:
        values = bind_values(program, memory)
        output, slots = values[program.output], self._inputs.tensor(SLOTS, program)
        ids = self._inputs.tensor("token_ids", program)
        fed = {"input": (slots, self._draws.sampled), "output": (ids,)}
        kernels = self._binder.program(program, values, fed)
        drawn = self._draws.operands(output, slots)
        return _BoundProgram(
            CudaGraph(kernels, self._stream),
            {
                kind: CudaGraph(self._binder.call(number, drawn), self._stream)
                for kind, number in draws.items()
            },
            output,
        )


def check_memory(plan: Plan, launches: Launches, index: int) -> None:
    """`DeviceTooSmall` unless what was budgeted for a rank is free on the GPU."""
    free, _ = torch.cuda.mem_get_info(index)
    needed = budget(plan, launches)
    if needed.total > free:
        raise DeviceTooSmall(
            f"the plan takes {needed.sums()}, but GPU {index} has {free / 1e9:.2f} free",
            remedy="give kv_cache less memory in the recipe, or end what else runs on the GPU",
        )
