"""Loading cubins and launching them, through cuda.core, on one stream of one GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from tskernels.cubin import Cubin
from tskernels.errors import TsError

_WARP = 32
_STATIC_LIMIT: Final = 48 * 1024
"""Bytes of dynamic shared memory above which a kernel must be told that it may have them."""


class CudaCoreMissing(TsError):
    """The package that launches kernels is not installed."""

    code = "TS0408"
    summary = "A plan for a GPU is run where cuda-core is not installed."


class CudaDevice:
    """The GPU that is torch's current one, and the stream that all kernels of a rank run on."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._core, self._driver = _module("cuda.core"), _module("cuda.bindings.driver")
        self._core.Device(stream.device_index).set_current()
        self._stream = self._core.Stream.from_handle(stream.cuda_stream)
        self._index = stream.device_index

    def load(self, cubin: Cubin) -> CudaKernel:
        """The kernel of a cubin, which must be for this GPU's architecture."""
        code = self._core.ObjectCode.from_cubin(cubin.data)
        kernel = code.get_kernel(cubin.symbol)
        if cubin.shared_bytes > _STATIC_LIMIT:
            attribute = self._driver.CUfunction_attribute
            (result,) = self._driver.cuKernelSetAttribute(
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                cubin.shared_bytes,
                kernel.handle,
                self._index,
            )
            if result != self._driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"{cubin.symbol} may not have {cubin.shared_bytes}: {result}")
        return CudaKernel(self._core, self._stream, kernel, cubin)

    def tensor_map(self, matrix: Tensor, box: tuple[int, int], columns: int | None = None) -> Any:  # noqa: ANN401
        """What a kernel is told of a matrix to copy boxes of it (see `TensorMap`)."""
        views, options = _module("cuda.core.utils"), _module("cuda.core._tensor_map")
        kinds = options.TensorMapDataType
        rows = matrix.flatten(0, -2) if columns is None else matrix.view(-1, columns)
        return views.StridedMemoryView.from_any_interface(rows, stream_ptr=-1).as_tensor_map(
            box_dim=box,
            data_type=kinds.BFLOAT16 if matrix.dtype is torch.bfloat16 else kinds.FLOAT16,
            swizzle=options.TensorMapSwizzle.SWIZZLE_128B,
            l2_promotion=options.TensorMapL2Promotion.NONE,
        )

    def copy(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        """A function that copies all bytes between two contiguous tensors, pinned or on the GPU.

        It is recorded in a graph as any launch.
        """
        size = source.numel() * source.element_size()
        call = self._driver.cuMemcpyAsync
        words = (target.data_ptr(), source.data_ptr(), size, self._stream.handle)
        expected = self._driver.CUresult.CUDA_SUCCESS

        def run() -> None:
            (result,) = call(*words)
            if result != expected:
                raise RuntimeError(f"a copy of {size} bytes failed: {result}")

        return run


class CudaKernel:
    """A loaded kernel."""

    def __init__(self, core: Any, stream: Any, kernel: Any, cubin: Cubin) -> None:  # noqa: ANN401
        self._core, self._stream, self._kernel, self._cubin = core, stream, kernel, cubin

    def bind(
        self,
        grid: tuple[int, int, int],
        pointers: Sequence[int],
        *,
        early: bool,
        maps: Sequence[object] = (),
    ) -> Callable[[], None]:
        """A function that launches it on `grid` with `maps` and `pointers`.

        Where `early`, it may begin while the launch before it still runs.
        """
        config = self._core.LaunchConfig(
            grid=grid,
            block=self._cubin.num_warps * _WARP,
            shmem_size=self._cubin.shared_bytes,
            programmatic_stream_serialization=early,
        )
        launch, stream, kernel = self._core.launch, self._stream, self._kernel
        unused = (0, 0)  # Triton's own areas
        arguments = (*maps, *pointers, *unused)

        def run() -> None:
            launch(stream, config, kernel, *arguments)

        return run


def cuda_arch(index: int) -> str:
    """Architecture of GPU number `index` as capabilities name it: `sm_90`."""
    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}"


def _module(name: str) -> Any:  # noqa: ANN401 (optional, and untyped)
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CudaCoreMissing(
            f"kernels are launched through {name}, which is not installed",
            remedy="pip install 'tscompile[cuda]'",
        ) from None
