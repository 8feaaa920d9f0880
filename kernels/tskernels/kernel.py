"""What a kernel is: a specification that the compiler selects and the runtime binds once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor

from tskernels.communicator import Communicator
from tskernels.launch import LaunchPlanner
from tskernels.schema import AttributeValue, DType

Mode: TypeAlias = Literal["any", "decode", "extend"]
Device: TypeAlias = Literal["cpu", "cuda"]
Kernel: TypeAlias = Callable[[], None]
"""One bound call, run once a step: reads and writes the tensors that it was bound to."""

REFERENCE = 0
PORTABLE = 4
PERFORMANT = 8
SPECIALIZED = 12
PLUGIN = 16
HIGHEST = 19
BANDS: Mapping[str, range] = {
    "REFERENCE": range(REFERENCE, PORTABLE),
    "PORTABLE": range(PORTABLE, PERFORMANT),
    "PERFORMANT": range(PERFORMANT, SPECIALIZED),
    "SPECIALIZED": range(SPECIALIZED, PLUGIN),
    "PLUGIN": range(PLUGIN, HIGHEST + 1),
}


@dataclass(frozen=True, slots=True)
class BoundCall:
    """Everything static that a kernel needs, known when the artifact is loaded.

    `inputs` stand in the schema's order, None where an optional one is absent; they may be strided
    views whose last dim is contiguous. `outputs` are preallocated, and for an output that mutates
    an input it is that input. `communicator` is set for collectives, and None otherwise.
    """

    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, AttributeValue]
    communicator: Communicator | None = None

    def tensor(self, position: int) -> Tensor:
        """The input at `position`, which must be there."""
        value = self.inputs[position]
        if value is None:
            raise TypeError(f"input {position} is missing")
        return value

    def integer(self, name: str) -> int:
        """The attribute `name`, which the schema types as int."""
        value = self.attributes[name]
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> float:
        """The attribute `name`, which the schema types as float."""
        value = self.attributes[name]
        assert isinstance(value, float)
        return value


@dataclass(frozen=True, slots=True)
class KernelQuery:
    """One op of a plan as the compiler asks for it; dtypes and shapes are the inputs', local."""

    op: str
    mode: Mode
    dtypes: tuple[DType | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    device: Device
    arch: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    packs: tuple[str, ...] = ()
    """Names of the kernel packs that the build was given."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Where a kernel runs: a device and its architectures, all of them where none is listed."""

    device: Device
    archs: tuple[str, ...] = ()

    def covers(self, device: Device, arch: str) -> bool:
        """Whether it runs on an architecture of a device."""
        return self.device == device and (not self.archs or arch in self.archs)


@dataclass(frozen=True, slots=True)
class Trait:
    """A condition on the shapes or attributes, and how to say it: `takes at most 32 rows`."""

    text: str
    holds: Callable[[KernelQuery], bool]


def compiled(call: BoundCall) -> Kernel:
    """The `bind` of solutions with `launches`: the executor runs those, so nobody calls this."""
    raise TypeError(f"{len(call.inputs)} inputs were bound to a solution that an artifact holds")


Signature: TypeAlias = Mapping[str, tuple[DType, ...]]
"""The dtypes that a kernel takes for each named input; an input not named takes any."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One implementation of an op. `name` is `<op>.<solution>`, what a plan calls its pin.

    Of the kernels that fit, the highest band of `priority` wins (see `BANDS` and `selection`).
    `bind` is called once per op of each program, at load. A solution whose code the artifact holds
    has `launches` instead, asked at build which compiled functions run a call, and `compiled`;
    where that is code of a kernel pack, `pack` names it.
    """

    op: str
    solution: str
    bind: Callable[[BoundCall], Kernel]
    priority: int
    signature: Signature = field(default_factory=dict[str, tuple[DType, ...]])
    capability: Capability = Capability("cpu")
    mode: Mode = "any"
    traits: tuple[Trait, ...] = ()
    launches: LaunchPlanner | None = None
    pack: str | None = None

    @property
    def name(self) -> str:
        """The pin: `linear.native`."""
        return f"{self.op}.{self.solution}"

    @property
    def band(self) -> str:
        """Name of the priority's band: `PERFORMANT`."""
        return next(name for name, band in BANDS.items() if self.priority in band)
