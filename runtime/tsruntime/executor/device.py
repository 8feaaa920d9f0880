"""One rank's executor on a GPU: everything in device memory, a graph for each program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tskernels.cubin import Cubin
from tskernels.device import CudaDevice, CudaKernel
from tskernels.launch import Address
from tsruntime.artifact.launches import Call, Launches
from tsruntime.artifact.schema import Op, Plan, Program
from tsruntime.artifact.weights import weight_bytes
from tsruntime.executor.batch import NO_PROGRAM, ForwardBatch, Ints
from tsruntime.executor.bind import (
    VIEW_PIN,
    Communicators,
    Memory,
    TensorStore,
    bind_kernel,
    bind_values,
)
from tsruntime.executor.errors import DeviceTooSmall
from tsruntime.executor.inputs import SLOTS, InputBuffers, ProgramInputs, program_inputs
from tsruntime.executor.output import StepOutput, Wait
from tsruntime.graphs.cuda import CudaGraph
from tsruntime.kv_cache.pool import KvPools, pool_bytes
from tsruntime.kv_cache.table import PageTable

_IN_FLIGHT = 2
"""Steps that may be launched before the first of them has ended."""

SPARE_BYTES = 1 << 30
"""What the driver, the graphs and the libraries take beside what the plan counts."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The launches of a plan, and the code of its cubins in their order."""

    launches: Launches
    cubins: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _BoundProgram:
    """A program on this rank's device, its values, and the graph of its kernels."""

    program: Program
    values: Mapping[str, Tensor]
    graph: CudaGraph
    output: Tensor


@dataclass(frozen=True, slots=True)
class _Stage:
    """Pinned host memory of one step in flight: inputs to `send`, and the tokens to `fetch`.

    `inputs` are each program's views of it. `ended` has come to pass when the last step has that
    used it.
    """

    inputs: tuple[ProgramInputs, ...]
    tokens: Tensor
    send: Callable[[], None]
    fetch: Callable[[], None]
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
        rows = max(max(p.tokens, p.sequences) for p in plan.programs)
        self._tokens = torch.zeros(rows, dtype=torch.int32, device=device)
        self._sampled = torch.zeros(plan.limits.max_batch, dtype=torch.int32, device=device)
        self._areas = {
            "scratch": _area(code.launches.scratch_bytes, device),
            "counters": _area(code.launches.counter_bytes, device),
        }
        torch.cuda.synchronize(index)
        binder = _Binder(plan, rank, communicators, code, self._stream, self._areas)
        self._stages = [self._stage(binder.device) for _ in range(_IN_FLIGHT)]
        self._turn = 0
        self._programs = tuple(self._bind(binder, program, memory) for program in plan.programs)

    keeps_tokens = True

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step and wait for it; the logits stay on the device.

        Row i belongs to sequence i (`logits` "last") or to token i ("all"); rows beyond the batch
        are padding and may hold anything. A batch without a program only moves pages.
        """
        return self.launch(batch)()

    def launch(self, batch: ForwardBatch) -> Wait:
        """Have the step run after those launched before, of which one may still run.

        A row whose token id is below 0 takes the token that its slot's last step found.
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
        """What everything runs on."""
        return self._stream

    def kernels(self, program: int) -> tuple[Callable[[], None], ...]:
        """The kernels of a program in order, views left out, between those that feed and sample."""
        return self._programs[program].graph.kernels

    def replay(self, program: int, times: int) -> float:
        """Milliseconds of one of `times` replays in a row, on the inputs of the last step."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            begin.record()
            for _ in range(times):
                self._programs[program].graph.replay()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) / times

    def _launch(self, batch: ForwardBatch, replay: Callable[[CudaGraph], None]) -> Wait:
        """From here on this thread's work goes to the executor's stream."""
        stage = self._stages[self._turn]
        self._turn = (self._turn + 1) % len(self._stages)
        stage.ended.synchronize()
        torch.cuda.set_stream(self._stream)
        self._move_pages(batch)
        output, rows = torch.empty(0, self.plan.vocab_size), 0
        if batch.program != NO_PROGRAM:
            bound = self._programs[batch.program]
            stage.inputs[batch.program].write(batch, self.tables)
            stage.send()
            replay(bound.graph)
            stage.fetch()
            output, rows = bound.output, len(bound.output)
        stage.ended.record(self._stream)

        def wait() -> StepOutput:
            stage.ended.synchronize()
            greedy: Ints = stage.tokens[:rows].numpy()
            return StepOutput(output, greedy)

        return wait

    def _move_pages(self, batch: ForwardBatch) -> None:
        for group, part, table in zip(
            self.plan.kv_cache.groups, batch.groups, self.tables, strict=True
        ):
            self.pools.store_pages(group.name, part.stores)
            self.pools.load_pages(group.name, part.loads)
            table.apply(part.table_deltas)
            self.pools.copy_pages(group.name, part.copies)
            self.pools.zero_pages(group.name, part.zero_pages)

    def _stage(self, device: CudaDevice) -> _Stage:
        buffers = InputBuffers(self.plan, pinned=True, beside=(SLOTS,))
        inputs = tuple(program_inputs(self.plan, p, buffers) for p in self.plan.programs)
        tokens = torch.zeros(len(self._tokens), dtype=torch.int32, pin_memory=True)
        send = device.copy(self._inputs.flat, buffers.flat)
        return _Stage(inputs, tokens, send, device.copy(tokens, self._tokens), torch.cuda.Event())

    def _bind(self, binder: _Binder, program: Program, memory: Memory) -> _BoundProgram:
        values = bind_values(program, memory)
        output = values[program.output]
        ends = _Ends(
            self._inputs.tensor("token_ids", program),
            self._inputs.tensor(SLOTS, program),
            output,
            self._tokens,
            self._sampled,
        )
        kernels = binder.kernels(program, values, ends)
        return _BoundProgram(program, values, CudaGraph(kernels, self._stream), output)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What the calls around a program's own read and write; see `ProgramCalls`."""

    token_ids: Tensor
    slots: Tensor
    logits: Tensor
    tokens: Tensor
    sampled: Tensor


class _Binder:
    """Makes kernels of the ops of programs: launches of cubins, or what the registry binds."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        communicators: Communicators,
        code: DeviceCode,
        stream: torch.cuda.Stream,
        areas: Mapping[str, Tensor],
    ) -> None:
        self._plan, self._rank, self._communicators = plan, rank, communicators
        self._launches, self._areas = code.launches, areas
        self.device = CudaDevice(stream)
        self._kernels: Sequence[CudaKernel] = [
            self.device.load(Cubin(data, file.symbol, file.shared_bytes, file.num_warps))
            for file, data in zip(code.launches.cubins, code.cubins, strict=True)
        ]

    def kernels(
        self, program: Program, values: Mapping[str, Tensor], ends: _Ends
    ) -> tuple[Callable[[], None], ...]:
        """The kernels of `program`, the one that feeds it before and the one that samples after."""
        calls = self._launches.programs[program.name]
        fed = {"input": [ends.slots, ends.sampled], "output": [ends.token_ids]}
        found = self._launched(self._launches.calls[calls.feed], fed)
        for op, call in zip(program.ops, calls.ops, strict=True):
            if call is not None:
                found += self._launched(self._launches.calls[call], _operands(op, values))
            elif op.pin != VIEW_PIN:
                plan = self._plan
                found.append(bind_kernel(op, values, plan.mesh, self._rank, self._communicators))
        greedy = self._launches.calls[calls.greedy]
        taken = {"input": [ends.logits, ends.slots], "output": [ends.tokens, ends.sampled]}
        found += self._launched(greedy, taken)
        return tuple(found)

    def _launched(
        self, call: Call, operands: Mapping[str, Sequence[Tensor | None]]
    ) -> list[Callable[[], None]]:
        return [
            self._kernels[launch.cubin].bind(
                launch.grid,
                [self._pointer(address, operands) for address in launch.addresses],
                early=launch.early,
            )
            for launch in call.launches
        ]

    def _pointer(self, address: Address, operands: Mapping[str, Sequence[Tensor | None]]) -> int:
        if address.space in self._areas:
            return self._areas[address.space].data_ptr() + address.index
        tensor = operands[address.space][address.index]
        if tensor is None:
            raise TypeError(f"{address.space} {address.index} is missing")
        return tensor.data_ptr()


def check_memory(plan: Plan, launches: Launches, index: int) -> None:
    """`DeviceTooSmall` unless the GPU has room for the plan's weights, pages and areas."""
    free, _ = torch.cuda.mem_get_info(index)
    parts = {
        "weights": weight_bytes(plan),
        "KV cache": pool_bytes(plan.kv_cache),
        "arena": max(p.arena_bytes for p in plan.programs),
        "shared areas": launches.scratch_bytes + launches.counter_bytes,
        "driver and libraries": SPARE_BYTES,
    }
    if sum(parts.values()) > free:
        sums = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items())
        raise DeviceTooSmall(
            f"the plan takes {sum(parts.values()) / 1e9:.2f} GB ({sums}), but GPU {index} has"
            f" {free / 1e9:.2f} free",
            remedy="give kv_cache less memory in the recipe, or end what else runs on the GPU",
        )


def _operands(op: Op, values: Mapping[str, Tensor]) -> Mapping[str, Sequence[Tensor | None]]:
    return {
        "input": [None if name is None else values[name] for name in op.inputs],
        "output": [values[name] for name in op.outputs],
    }


def _area(size: int, device: str) -> Tensor:
    return torch.zeros(size, dtype=torch.uint8, device=device)
