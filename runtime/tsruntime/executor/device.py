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
from tsruntime.executor.inputs import InputBuffers, ProgramInputs, program_inputs
from tsruntime.executor.output import StepOutput
from tsruntime.graphs.cuda import CudaGraph
from tsruntime.kv_cache.pool import KvPools, pool_bytes
from tsruntime.kv_cache.table import PageTable

_SPARE_BYTES = 1 << 30
"""What the driver, the graphs and the libraries take beside what the plan counts."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The launches of a plan, and the code of its cubins in their order."""

    launches: Launches
    cubins: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _BoundProgram:
    """A program on this rank's device: `kernels` in order, and the graph that records them.

    Before them the graph copies the inputs from the host, after them the tokens to `read` there.
    """

    program: Program
    inputs: ProgramInputs
    values: Mapping[str, Tensor]
    kernels: tuple[Callable[[], None], ...]
    recorded: tuple[Callable[[], None], ...]
    graph: CudaGraph
    output: Tensor
    read: Tensor


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
        self._staged, self._inputs = InputBuffers(plan, pinned=True), InputBuffers(plan, device)
        tensors = {weight.name: weights.tensor(weight.name) for weight in plan.weights}
        memory = Memory(arena, tensors, self._inputs, self.pools)
        rows = max(max(p.tokens, p.sequences) for p in plan.programs)
        self._tokens = torch.zeros(rows, dtype=torch.int32, device=device)
        self._read = torch.zeros(rows, dtype=torch.int32, pin_memory=True)
        self._areas = {
            "scratch": _area(code.launches.scratch_bytes, device),
            "counters": _area(code.launches.counter_bytes, device),
        }
        torch.cuda.synchronize(index)
        binder = _Binder(plan, rank, communicators, code, self._stream, self._areas)
        self._programs = tuple(self._bind(binder, program, memory) for program in plan.programs)

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step and wait for it; the logits stay on the device.

        Row i belongs to sequence i (`logits` "last") or to token i ("all"); rows beyond the batch
        are padding and may hold anything. A batch without a program only moves pages.
        """
        bound = self._stage(batch)
        if bound is None:
            self._stream.synchronize()
            return StepOutput(torch.empty(0, self.plan.vocab_size))
        bound.graph.replay()
        return self._finish(bound)

    def forward(self, batch: ForwardBatch) -> Tensor:
        """The logits of `run`."""
        return self.run(batch).logits

    def eagerly(self, batch: ForwardBatch) -> StepOutput:
        """As `run`, launch by launch in place of the graph: the same bits, for whoever doubts."""
        bound = self._stage(batch)
        assert bound is not None, "a batch without a program"
        for kernel in bound.recorded:
            kernel()
        return self._finish(bound)

    @property
    def stream(self) -> torch.cuda.Stream:
        """What everything runs on."""
        return self._stream

    def kernels(self, program: int) -> tuple[Callable[[], None], ...]:
        """The kernels of a program in order, views left out, and the one that samples."""
        return self._programs[program].kernels

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

    def _stage(self, batch: ForwardBatch) -> _BoundProgram | None:
        """Move the batch's pages and write the inputs of its program, which is returned.

        From here on this thread's work goes to the executor's stream.
        """
        torch.cuda.set_stream(self._stream)
        self._move_pages(batch)
        if batch.program == NO_PROGRAM:
            return None
        bound = self._programs[batch.program]
        bound.inputs.write(batch, self.tables)
        return bound

    def _finish(self, bound: _BoundProgram) -> StepOutput:
        self._stream.synchronize()
        greedy: Ints = bound.read.numpy()
        return StepOutput(bound.output, greedy)

    def _move_pages(self, batch: ForwardBatch) -> None:
        for group, part, table in zip(
            self.plan.kv_cache.groups, batch.groups, self.tables, strict=True
        ):
            self.pools.store_pages(group.name, part.stores)
            self.pools.load_pages(group.name, part.loads)
            table.apply(part.table_deltas)
            self.pools.copy_pages(group.name, part.copies)
            self.pools.zero_pages(group.name, part.zero_pages)

    def _bind(self, binder: _Binder, program: Program, memory: Memory) -> _BoundProgram:
        values = bind_values(program, memory)
        output = values[program.output]
        tokens = self._tokens[: len(output)]
        read = self._read[: len(output)]
        kernels = binder.kernels(program, values, tokens)
        copy = binder.device.copy
        into, back = copy(self._inputs.flat, self._staged.flat), copy(read, tokens)
        recorded = (into, *kernels, back)
        return _BoundProgram(
            program,
            program_inputs(self.plan, program, self._staged),
            values,
            kernels,
            recorded,
            CudaGraph(recorded, self._stream),
            output,
            read,
        )


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
        self, program: Program, values: Mapping[str, Tensor], tokens: Tensor
    ) -> tuple[Callable[[], None], ...]:
        """The kernels of `program`, and the one that takes its logits to `tokens`."""
        calls = self._launches.programs[program.name]
        found: list[Callable[[], None]] = []
        for op, call in zip(program.ops, calls.ops, strict=True):
            if call is not None:
                found += self._launched(self._launches.calls[call], _operands(op, values))
            elif op.pin != VIEW_PIN:
                plan = self._plan
                found.append(bind_kernel(op, values, plan.mesh, self._rank, self._communicators))
        greedy = self._launches.calls[calls.greedy]
        found += self._launched(greedy, {"input": [values[program.output]], "output": [tokens]})
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
        "driver and libraries": _SPARE_BYTES,
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
