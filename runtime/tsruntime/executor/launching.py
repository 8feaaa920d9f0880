"""Binding calls of frozen cubins: what a graph records, and what is launched by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from tskernels.cubin import Cubin
from tskernels.device import CudaDevice, CudaKernel
from tskernels.launch import Address
from tsruntime.artifact.launches import Call, Launches
from tsruntime.artifact.schema import Op, Plan, Program
from tsruntime.executor.bind import VIEW_PIN, Communicators, bind_kernel

Kernels: TypeAlias = tuple[Callable[[], None], ...]
"""Kernels without arguments, in order."""

Operands: TypeAlias = Mapping[str, Sequence[Tensor | None]]
"""What a call's addresses count: its inputs and outputs."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The launches of a plan, and the code of its cubins in their order."""

    launches: Launches
    cubins: tuple[bytes, ...]


class Binder:
    """Makes kernels of calls on one rank's device and stream.

    The areas that launches share are zeros at the start.
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

    def program(self, program: Program, values: Mapping[str, Tensor], fed: Operands) -> Kernels:
        """The kernels of `program`, views left out, after the one that feeds it."""
        calls = self._launches.programs[program.name]
        found = list(self.call(calls.feed, fed))
        for op, call in zip(program.ops, calls.ops, strict=True):
            if call is not None:
                found += self.call(call, _operands(op, values))
            elif op.pin != VIEW_PIN:
                plan = self._plan
                found.append(bind_kernel(op, values, plan.mesh, self._rank, self._communicators))
        return tuple(found)

    def call(self, number: int, operands: Operands) -> Kernels:
        """The launches of call `number` of the plan's."""
        call: Call = self._launches.calls[number]
        return tuple(
            self._kernels[launch.cubin].bind(
                launch.grid,
                [self._pointer(address, operands) for address in launch.addresses],
                early=launch.early,
            )
            for launch in call.launches
        )

    def _pointer(self, address: Address, operands: Operands) -> int:
        if address.space in self._areas:
            return self._areas[address.space].data_ptr() + address.index
        tensor = operands[address.space][address.index]
        if tensor is None:
            raise TypeError(f"{address.space} {address.index} is missing")
        return tensor.data_ptr()


def _operands(op: Op, values: Mapping[str, Tensor]) -> Operands:
    return {
        "input": [None if name is None else values[name] for name in op.inputs],
        "output": [values[name] for name in op.outputs],
    }
