"""Launches: what a CUDA solution asks of the device, as data that an artifact can hold.

A solution plans its launches at build from the types and layouts of one call. All numbers become
constants of the compiled kernels; what is left at run time are addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Final, Literal, TypeAlias

from tskernels.schema import AttributeValue, DType, TensorType

ALIGNED = 16
"""Bytes: the widest access of a thread, and the alignment that compiled kernels may rely on."""

DEPENDENT_LAUNCH: Final = frozenset({"sm_90", "sm_100", "sm_103", "sm_120"})
"""Architectures whose kernels may begin before the ones that they depend on have ended."""

Constant: TypeAlias = bool | int | float | str
"""A constant of a compiled kernel."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input or output of a call: its type, strides in elements, and where it may start.

    `alignment` in bytes divides its address.
    """

    type: TensorType
    strides: tuple[int, ...]
    alignment: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dims."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def contiguous(self) -> bool:
        """Whether its numbers lie one after another without gaps."""
        sizes = accumulate(reversed(self.shape), mul, initial=1)
        steps = zip(reversed(self.strides), reversed(self.shape), sizes, strict=False)
        return all(stride == step or size == 1 for stride, size, step in steps)


@dataclass(frozen=True, slots=True)
class CallLayout:
    """One call as it is known at build: operands in the schema's order, None where one is absent.

    Inputs have their last dim contiguous; `arch` is as `sm_90`.
    """

    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    attributes: Mapping[str, AttributeValue]
    arch: str

    def input(self, position: int) -> Operand:
        """The input at `position`, which must be there."""
        operand = self.inputs[position]
        if operand is None:
            raise TypeError(f"input {position} is missing")
        return operand

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

    def flag(self, name: str) -> bool:
        """The attribute `name`, which the schema types as bool."""
        value = self.attributes[name]
        assert isinstance(value, bool)
        return value


@dataclass(frozen=True, slots=True)
class Address:
    """What a pointer parameter of a launch points to.

    `index` counts inputs or outputs; in areas it is an offset in bytes. `scratch` holds anything
    between launches; `counters` are int32 zeros that every launch leaves zero. `step` is the call's
    own: what its `prepare` wrote for this step, zeros before any. There, `host` is as much pinned
    memory, and an input is its copy on the host.
    """

    space: Literal["input", "output", "scratch", "counters", "step", "host"]
    index: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer parameter of a kernel: its element type, and whether it is `ALIGNED`."""

    dtype: DType
    aligned: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A Triton function with everything static about it, in the order of its parameters.

    `module` and `name` say where it is defined. Pointers come first, then `constants`. Where it
    `rounds_products`, none is added up unrounded, so that the bits are those of two operations.
    """

    module: str
    name: str
    pointers: tuple[Pointer, ...]
    constants: tuple[tuple[str, Constant], ...]
    num_warps: int = 4
    num_stages: int = 3
    rounds_products: bool = False


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A CUDA C++ function: `name` in a source file of this package, `constants` as macros.

    Its parameters are a launch's maps, then its pointers. `shared_bytes` are of dynamic shared
    memory.
    """

    source: str
    name: str
    constants: tuple[tuple[str, int | float], ...]
    num_warps: int
    shared_bytes: int


Compiled: TypeAlias = Function | CudaFunction
"""A function that is compiled at build."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What the tensor copy engine is told of a matrix: where it is, and what it copies at once.

    A box has rows and columns; its lines are of 128 bytes, whose parts of 16 bytes are exchanged by
    the line's number. The matrix's sizes and strides are the operand's, of whose dims all but the
    last count rows; or its rows have so many `columns`, one after another without gaps.
    """

    address: Address
    box: tuple[int, int]
    columns: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the function, its grid of blocks, what each pointer points to, and its maps."""

    function: Compiled
    grid: tuple[int, int, int]
    addresses: tuple[Address, ...]
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True, slots=True)
class PackLaunch:
    """A call of a function of a kernel pack, which launches what it likes on the stream."""

    pack: str
    function: str
    addresses: tuple[Address, ...]
    integers: tuple[int, ...]
    reals: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What runs one call, in order, and the sizes in bytes of the areas that it uses.

    After `launches` come those `from_pack`. Both can be recorded in a graph. `prepare` cannot: it
    runs on the host before every step, from inputs alone, and fills the call's `step` area.
    """

    launches: tuple[Launch, ...]
    scratch_bytes: int = 0
    counter_bytes: int = 0
    from_pack: tuple[PackLaunch, ...] = ()
    prepare: tuple[PackLaunch, ...] = ()
    step_bytes: int = 0


LaunchPlanner: TypeAlias = Callable[[CallLayout], LaunchPlan]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer of a launch that is being planned, with where it points."""

    pointer: Pointer
    address: Address


@dataclass(frozen=True, slots=True)
class LaunchBuilder:
    """Plans launches of functions of one module for one call; as `Function`, `rounds_products`."""

    module: str
    call: CallLayout
    rounds_products: bool = False

    def inputs(self, *positions: int) -> tuple[Parameter, ...]:
        """Parameters for the inputs at `positions`; an absent one repeats input 0, unread."""
        return tuple(self._operand("input", p, self.call.inputs[p]) for p in positions)

    def outputs(self, *positions: int) -> tuple[Parameter, ...]:
        """Parameters for the outputs at `positions`."""
        return tuple(self._operand("output", p, self.call.outputs[p]) for p in positions)

    def _operand(
        self, space: Literal["input", "output"], index: int, operand: Operand | None
    ) -> Parameter:
        if operand is None:
            return self._operand(space, 0, self.call.input(0))
        aligned = operand.alignment % ALIGNED == 0
        return Parameter(Pointer(operand.dtype, aligned), Address(space, index))

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        parameters: tuple[Parameter, ...],
        *,
        num_warps: int = 4,
        num_stages: int = 3,
        **constants: Constant,
    ) -> Launch:
        """A launch of function `name` on `grid`, of one to three dims.

        Every function's last constant says whether the device lets it begin `early`.
        """
        x, y, z = (*grid, 1, 1)[:3]
        constants["early"] = self.call.arch in DEPENDENT_LAUNCH
        return Launch(
            Function(
                self.module,
                name,
                tuple(p.pointer for p in parameters),
                tuple(constants.items()),
                num_warps,
                num_stages,
                self.rounds_products,
            ),
            (x, y, z),
            tuple(p.address for p in parameters),
        )


def scratch(dtype: DType, offset: int = 0) -> Parameter:
    """A pointer into the scratch area, `offset` bytes from its start."""
    return Parameter(Pointer(dtype, aligned=True), Address("scratch", offset))


def counters() -> Parameter:
    """A pointer to the zeroed counters."""
    return Parameter(Pointer(DType.INT32, aligned=True), Address("counters", 0))


def next_power_of_two(size: int) -> int:
    """The least power of two that is not below `size`, at least 1."""
    return 1 << max(size - 1, 0).bit_length()
