"""The kernel packs that this package has sources for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tskernels.packs.manifest import Signature

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class PackSource:
    """How a pack is made: one source file, compiled for one architecture.

    `package` is the distribution whose headers it includes, found at `headers` below the folder of
    its import package `module`; its version is the pack's.
    """

    name: str
    source: Path
    functions: Mapping[str, Signature]
    package: str
    module: str
    headers: tuple[str, ...]
    code: Mapping[str, str]
    """The compiler's name of the code of each architecture that it can be built for."""
    flags: tuple[str, ...] = ()


FLASHINFER_FA3: Final = PackSource(
    name="flashinfer_fa3",
    source=_HERE / "flashinfer" / "fa3.cu",
    functions={
        "flashinfer_fa3_list": Signature(addresses=4, integers=5, reals=0),
        "flashinfer_fa3_run": Signature(addresses=5, integers=10, reals=1),
    },
    package="flashinfer-python",
    module="flashinfer",
    headers=(
        "data/cccl/cub",
        "data/cccl/libcudacxx/include",
        "data/cccl/thrust",
        "data/include",
        "data/cutlass/include",
    ),
    code={"sm_90": "90a"},
    flags=("-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED",),
)

SOURCES: Final[Mapping[str, PackSource]] = {FLASHINFER_FA3.name: FLASHINFER_FA3}
"""All of them by name."""
