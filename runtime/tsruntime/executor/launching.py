"""Binding calls of frozen cubins and packs: what a graph records, and what runs by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from tskernels.cubin import Cubin
from tskernels.device import CudaDevice, CudaKernel
from tskernels.launch import Address
from tskernels.packs.library import PackLibrary, Place
from tsruntime.artifact.launches import Call, DeviceCode, PackCall
from tsruntime.artifact.schema import InputStorage, Op, Plan, Program
from tsruntime.executor.bind import VIEW_PIN, Communicators, bind_kernel
from tsruntime.executor.inputs import InputBuffers

Kernels: TypeAlias = tuple[Callable[[], None], ...]
"""Kernels without arguments, in order."""

Operands: TypeAlias = Mapping[str, Sequence[Tensor | None]]
"""What a call's addresses count: its inputs and outputs."""

_NO_AREAS: Final[Mapping[str, Tensor]] = {}


class Binder:
    """Makes kernels of calls on one rank's device and stream.

    The areas that launches use are zeros at the start. PackMisfit where a pack lacks a function.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        communicators: Communicators,
        code: DeviceCode,
        stream: torch.cuda.Stream,
    ) -> None:
        self._plan, self._rank, self._communicators = plan, rank, communicators
        self._launches = code.launches
        sizes = {
            "scratch": code.launches.scratch_bytes,
            "counters": code.launches.counter_bytes,
            "step": code.launches.step_bytes,
        }
        self._areas = {
            name: torch.zeros(size, dtype=torch.uint8, device=stream.device)
            for name, size in sizes.items()
        }
        torch.cuda.synchronize(stream.device)
        self.device = CudaDevice(stream)
        self._kernels: Sequence[CudaKernel] = [
            self.device.load(Cubin(data, file.symbol, file.shared_bytes, file.num_warps))
            for file, data in zip(code.launches.cubins, code.cubins, strict=True)
        ]
        self._packs = [
            PackLibrary(file.name, data)
            for file, data in zip(code.launches.packs, code.packs, strict=True)
        ]
        self._place = Place(stream.device_index, stream.cuda_stream)

    def program(self, program: Program, values: Mapping[str, Tensor], fed: Operands) -> Kernels:
        """The kernels of `program`, one an op, views left out, after the one that feeds it."""
        calls = self._launches.programs[program.name]
        found = list(self.call(calls.feed, fed))
        for op, call in zip(program.ops, calls.ops, strict=True):
            if call is not None:
                found.append(_in_order(self.call(call, _operands(op, values))))
            elif op.pin != VIEW_PIN:
                plan = self._plan
                found.append(bind_kernel(op, values, plan.mesh, self._rank, self._communicators))
        return tuple(found)

    def preparation(self, program: Program, inputs: InputBuffers, host: Tensor) -> Kernels:
        """What runs on the host before each step of `program`, once its `inputs` are written.

        `inputs` and `host`, as large as the step areas, are pinned, and that step's own.
        """
        named = {
            value.name: inputs.tensor(value.storage.input, program)
            for value in program.values
            if isinstance(value.storage, InputStorage)
        }
        found: dict[int, Kernels] = {}
        calls = self._launches.programs[program.name].ops
        for op, number in zip(program.ops, calls, strict=True):
            if number is not None and number not in found:
                operands = {"input": [named.get(name or "") for name in op.inputs]}
                found[number] = self._prepared(number, operands, host)
        return tuple(kernel for kernels in found.values() for kernel in kernels)

    def _prepared(self, number: int, operands: Operands, host: Tensor) -> Kernels:
        steps = self._launches.calls[number].prepare
        return tuple(self._of_pack(step, operands, {"host": host}) for step in steps)

    def call(self, number: int, operands: Operands) -> Kernels:
        """The launches of call `number` of the plan's."""
        call: Call = self._launches.calls[number]
        launches = tuple(
            self._kernels[launch.cubin].bind(
                launch.grid,
                [self._pointer(address, operands) for address in launch.addresses],
                early=launch.early,
                maps=[
                    self.device.tensor_map(_operand(m.address, operands), m.box, m.columns)
                    for m in launch.maps
                ],
            )
            for launch in call.launches
        )
        return launches + tuple(self._of_pack(each, operands, _NO_AREAS) for each in call.from_pack)

    def _of_pack(
        self, call: PackCall, operands: Operands, beside: Mapping[str, Tensor]
    ) -> Callable[[], None]:
        pointers = [self._pointer(address, operands, beside) for address in call.addresses]
        library = self._packs[call.pack]
        return library.bind(call.function, pointers, call.integers, call.reals, self._place)

    def _pointer(
        self, address: Address, operands: Operands, beside: Mapping[str, Tensor] = _NO_AREAS
    ) -> int:
        areas = {**self._areas, **beside}
        if address.space in areas:
            return areas[address.space].data_ptr() + address.index
        return _operand(address, operands).data_ptr()


def _operand(address: Address, operands: Operands) -> Tensor:
    tensor = operands[address.space][address.index]
    if tensor is None:
        raise TypeError(f"{address.space} {address.index} is missing")
    return tensor


def _in_order(kernels: Kernels) -> Callable[[], None]:
    if len(kernels) == 1:
        return kernels[0]

    def run() -> None:
        for kernel in kernels:
            kernel()

    return run


def _operands(op: Op, values: Mapping[str, Tensor]) -> Operands:
    return {
        "input": [None if name is None else values[name] for name in op.inputs],
        "output": [values[name] for name in op.outputs],
    }
