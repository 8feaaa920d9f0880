"""Loading the library of a kernel pack, and binding calls of its functions.

All of them have the one C signature of kernel_pack.h, so that what a call passes is data.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tskernels.packs.errors import PackCallFailed, PackDamaged, PackMisfit
from tskernels.packs.manifest import ABI

_ERROR_BYTES: Final = 512
_ABI_FUNCTION: Final = "ts_pack_abi"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the work of calls goes: a GPU's number, and the handle of one of its streams."""

    device: int
    stream: int


class PackLibrary:
    """A loaded library, which stays loaded as long as its process runs.

    It is loaded from the very bytes that were verified, never from a file that may change.
    """

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._library = _loaded(name, data)
        if _ABI_FUNCTION not in self:
            raise self._lacks(_ABI_FUNCTION)
        if (found := self._library[_ABI_FUNCTION]()) != ABI:
            raise PackMisfit(
                f"kernel pack {name} has binary interface {found}, this runtime calls {ABI}",
                remedy="build the pack and the artifact again with this version",
            )

    def __contains__(self, function: str) -> bool:
        return hasattr(self._library, function)

    def bind(
        self,
        function: str,
        addresses: Sequence[int],
        integers: Sequence[int],
        reals: Sequence[float],
        place: Place,
    ) -> Callable[[], None]:
        """A function that calls `function` with these arguments.

        PackMisfit where the library has no such function; PackCallFailed when a call fails.
        """
        if function not in self:
            raise self._lacks(function)
        native: Any = self._library[function]
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        arguments = (
            (ctypes.c_uint64 * len(addresses))(*addresses),
            (ctypes.c_int64 * len(integers))(*integers),
            (ctypes.c_double * len(reals))(*reals),
            ctypes.c_int32(place.device),
            ctypes.c_void_p(place.stream),
            error,
            ctypes.c_int64(_ERROR_BYTES),
        )
        name = self._name

        def run() -> None:
            if native(*arguments) != 0:
                raise PackCallFailed(
                    f"{function} of kernel pack {name}: {error.value.decode(errors='replace')}",
                    remedy="build the artifact without this pack, and report what it said",
                )

        return run

    def _lacks(self, function: str) -> PackMisfit:
        return PackMisfit(
            f"kernel pack {self._name} has no function {function}",
            remedy="build the artifact with the pack that it was planned for",
        )


def _loaded(name: str, data: bytes) -> ctypes.CDLL:
    file = os.memfd_create(name)
    with os.fdopen(file, "wb", closefd=False) as copy:
        copy.write(data)
    try:
        # The file stays open: of equal paths the loader takes the second for the first.
        return ctypes.CDLL(f"/proc/self/fd/{file}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        os.close(file)
        raise PackDamaged(
            f"the library of kernel pack {name} cannot be loaded: {error}",
            remedy="build the pack on a system like this one",
        ) from None
