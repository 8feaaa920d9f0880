"""Timing compiled launches on the GPU: replays of a graph that reads other memory each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from tskernels.cubin import Cubin
from tskernels.device import CudaDevice
from tskernels.launch import DEPENDENT_LAUNCH, LaunchPlan

_REPLAYS = 5
_SCRATCH = 256 << 20


class Stopwatch:
    """Times launch plans on torch's current GPU; scratch area and counters are its own."""

    def __init__(self, arch: str) -> None:
        self._stream = torch.cuda.Stream()
        self._device = CudaDevice(self._stream)
        self._early = arch in DEPENDENT_LAUNCH
        self._scratch = torch.empty(_SCRATCH, dtype=torch.uint8, device="cuda")
        self._counters = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

    def microseconds(
        self,
        plan: LaunchPlan,
        cubins: Sequence[Cubin],
        calls: Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]],
    ) -> float:
        """Median time of one call, over replays of a graph of `calls`, each (inputs, outputs)."""
        if plan.scratch_bytes > _SCRATCH or plan.counter_bytes > len(self._counters):
            return float("inf")
        kernels = [self._device.load(cubin) for cubin in cubins]

        def enqueue() -> None:
            for inputs, outputs in calls:
                for kernel, launch in zip(kernels, plan.launches, strict=True):
                    places = {
                        "input": inputs,
                        "output": outputs,
                    }
                    pointers = [
                        self._scratch.data_ptr() + a.index
                        if a.space == "scratch"
                        else self._counters.data_ptr() + a.index
                        if a.space == "counters"
                        else places[a.space][a.index].data_ptr()
                        for a in launch.addresses
                    ]
                    maps = [
                        self._device.tensor_map(
                            places[m.address.space][m.address.index], m.box, m.columns
                        )
                        for m in launch.maps
                    ]
                    kernel.bind(launch.grid, pointers, early=self._early, maps=maps)()

        return self.graph_milliseconds(enqueue) * 1e3 / len(calls)

    def graph_milliseconds(self, enqueue: Callable[[], None]) -> float:
        """Median time of a replay of the graph of what the function `enqueue` launches."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            enqueue()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self._stream):
            enqueue()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPLAYS + 1)]
        with torch.cuda.stream(self._stream):
            graph.replay()  # pyright: ignore[reportUnknownMemberType]
            for event in events[:-1]:
                event.record()
                graph.replay()  # pyright: ignore[reportUnknownMemberType]
            events[-1].record()
        torch.cuda.synchronize()
        times = sorted(a.elapsed_time(b) for a, b in pairwise(events))
        return times[len(times) // 2]
