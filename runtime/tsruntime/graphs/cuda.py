"""A recorded program on a GPU: a CUDA graph of its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class CudaGraph:
    """The launches of `kernels` on `stream`, recorded once.

    They run once before that, so that what is loaded or reserved at a first run is there.
    """

    def __init__(self, kernels: Sequence[Callable[[], None]], stream: torch.cuda.Stream) -> None:
        self.kernels = tuple(kernels)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for kernel in kernels:
                kernel()
        stream.synchronize()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            for kernel in kernels:
                kernel()

    def run_eagerly(self) -> None:
        """Launch every kernel by itself, on the stream that it was bound to."""
        for kernel in self.kernels:
            kernel()

    def replay(self) -> None:
        """Launch everything, on torch's current stream."""
        self._graph.replay()  # pyright: ignore[reportUnknownMemberType]
