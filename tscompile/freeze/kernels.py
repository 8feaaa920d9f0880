"""Freezing the kernels of a plan for a GPU: every launch as data, functions as cubins or packs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tscompile.ir.typing import for_one_rank
from tscompile.packs import GivenPack
from tskernels.compilers import compile_function
from tskernels.launch import (
    ALIGNED,
    DEPENDENT_LAUNCH,
    CallLayout,
    Compiled,
    LaunchPlan,
    Operand,
    PackLaunch,
)
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.ops.sampling.cuda import plan_feed, plan_greedy
from tskernels.ops.sampling.cuda_full import plan_draw, plan_past
from tskernels.ops.sampling.words import DrawKind
from tskernels.packs.errors import PackMisfit
from tskernels.packs.manifest import Signature
from tskernels.registry import REGISTRY, Registry
from tskernels.schema import TensorType
from tsruntime.artifact.digest import sha256_bytes
from tsruntime.artifact.launches import (
    Call,
    CubinFile,
    KernelLaunch,
    Launches,
    PackCall,
    PackFile,
    ProgramCalls,
)
from tsruntime.artifact.schema import (
    ArenaStorage,
    CacheGroup,
    CacheStorage,
    InputStorage,
    Op,
    Plan,
    Program,
    Value,
)

_AREA = 256
"""Bytes that the sizes of the shared areas are multiples of."""


@dataclass(frozen=True, slots=True)
class FrozenKernels:
    """The launches of a plan, and the code of every cubin and pack by its file's name."""

    launches: Launches
    code: Mapping[str, bytes]


@dataclass(slots=True)
class _Freezer:
    """What has been frozen so far; equal calls and functions are frozen once."""

    plan: Plan
    given: Mapping[str, GivenPack]
    registry: Registry = REGISTRY
    packs: dict[str, PackFile] = field(default_factory=dict[str, PackFile])
    cubins: dict[Compiled, int] = field(default_factory=dict[Compiled, int])
    entries: list[CubinFile] = field(default_factory=list[CubinFile])
    code: dict[str, bytes] = field(default_factory=dict[str, bytes])
    calls: dict[LaunchPlan, int] = field(default_factory=dict[LaunchPlan, int])

    def program(self, program: Program) -> ProgramCalls:
        values = {value.name: value for value in program.values}
        ops = tuple(self._op(program, op, values) for op in program.ops)
        logits, arch = self._operand(program, values[program.output]), self.plan.target.arch
        feed = plan_feed(min(program.tokens, program.sequences), arch)
        if program.logits == "last":
            slots = self.plan.limits.max_batch
            draws = {kind: plan_draw(logits, slots, arch, kind) for kind in DrawKind}
        else:
            draws = {DrawKind.GREEDY: plan_greedy(logits, arch, kept=False)}
        calls = {kind: self._call(plan) for kind, plan in draws.items()}
        return ProgramCalls(ops, self._call(feed), calls)

    def past(self) -> int:
        """The call that rebuilds what the device knows of a slot."""
        limits, arch = self.plan.limits, self.plan.target.arch
        return self._call(plan_past(self.plan.vocab_size, limits.max_batch, arch))

    def _op(self, program: Program, op: Op, values: Mapping[str, Value]) -> int | None:
        spec = None if op.pin == "view" else self.registry.resolve(op.pin)
        if spec is None or spec.launches is None:
            return None
        plan = spec.launches(self._layout(program, op, values))
        for prepared in plan.prepare:
            _check_inputs(prepared, op, values)
        return self._call(plan)

    def _layout(self, program: Program, op: Op, values: Mapping[str, Value]) -> CallLayout:
        return CallLayout(
            tuple(None if n is None else self._operand(program, values[n]) for n in op.inputs),
            tuple(self._operand(program, values[n]) for n in op.outputs),
            resolve_attributes(OPS[op.op].schema, for_one_rank(op.attributes)),
            self.plan.target.arch,
        )

    def _operand(self, program: Program, value: Value) -> Operand:
        type_ = TensorType(value.dtype, value.shape)
        return Operand(type_, _strides(value), self._alignment(value))

    def _alignment(self, value: Value) -> int:
        """Bytes that divide the value's address, as far as kernels care."""
        match value.storage:
            case ArenaStorage(offset_bytes=offset):
                return math.gcd(offset, ALIGNED)
            case CacheStorage(group=name, layer=layer):
                groups = {group.name: group for group in self.plan.kv_cache.groups}
                return math.gcd(_layer_offset(groups[name], layer, value), ALIGNED)
            case _:
                return ALIGNED  # the runtime gives weights and inputs places of their own

    def _call(self, plan: LaunchPlan) -> int:
        if plan not in self.calls:
            for launch in plan.launches:
                self._function(launch.function)
            for launch in (*plan.from_pack, *plan.prepare):
                self._pack(launch)
            self.calls[plan] = len(self.calls)
        return self.calls[plan]

    def _pack(self, launch: PackLaunch) -> None:
        pack = self.given[launch.pack].pack
        taken = Signature(len(launch.addresses), len(launch.integers), len(launch.reals))
        if (offered := pack.functions.get(launch.function)) != taken:
            what = "lacks" if offered is None else f"declares {offered} of"
            raise PackMisfit(
                f"kernel pack {pack.name} {pack.version} {what} {launch.function}, which is"
                f" called with {taken}",
                remedy="build the pack again with this version",
                where=str(self.given[launch.pack].folder),
            )
        if pack.name not in self.packs:
            file = f"kernels/{pack.name}-{pack.digest[:16]}.so"
            self.packs[pack.name] = PackFile(file, pack.name, pack.version, pack.arch, pack.digest)
            self.code[file] = self.given[launch.pack].library

    def _function(self, function: Compiled) -> None:
        if function in self.cubins:
            return
        cubin = compile_function(function, self.plan.target.arch)
        file = f"kernels/{function.name}-{sha256_bytes(cubin.data)[:16]}.cubin"
        self.cubins[function] = len(self.entries)
        self.entries.append(CubinFile(file, cubin.symbol, cubin.shared_bytes, cubin.num_warps))
        self.code[file] = cubin.data


def freeze_kernels(plan: Plan, packs: Sequence[GivenPack] = ()) -> FrozenKernels | None:
    """Compile the kernels of `plan`; None for a CPU, whose kernels are the runtime's own.

    Those of a pack come from `packs`: PackMisfit where one does not hold what is asked of it.
    CompilerMissing and CubinError as `compile_function`.
    """
    if plan.target.device != "cuda":
        return None
    freezer = _Freezer(plan, {given.pack.name: given for given in packs})
    programs = {program.name: freezer.program(program) for program in plan.programs}
    past = freezer.past()
    areas = accumulate((_rounded(call.step_bytes) for call in freezer.calls), initial=0)
    calls = tuple(
        _frozen(call, freezer, start) for call, start in zip(freezer.calls, areas, strict=False)
    )
    launches = Launches(
        arch=plan.target.arch,
        cubins=tuple(freezer.entries),
        calls=calls,
        programs=programs,
        past=past,
        scratch_bytes=_rounded(max(call.scratch_bytes for call in freezer.calls)),
        counter_bytes=_rounded(max(call.counter_bytes for call in freezer.calls)),
        packs=tuple(freezer.packs.values()),
        step_bytes=sum(_rounded(call.step_bytes) for call in freezer.calls),
    )
    return FrozenKernels(launches, freezer.code)


def _frozen(plan: LaunchPlan, freezer: _Freezer, start: int) -> Call:
    """A call whose step area begins at byte `start`."""
    early, names = freezer.plan.target.arch in DEPENDENT_LAUNCH, list(freezer.packs)

    def of_pack(launch: PackLaunch) -> PackCall:
        addresses = tuple(
            replace(x, index=x.index + start) if x.space in ("step", "host") else x
            for x in launch.addresses
        )
        pack = names.index(launch.pack)
        return PackCall(pack, launch.function, addresses, launch.integers, launch.reals)

    return Call(
        tuple(
            KernelLaunch(freezer.cubins[x.function], x.grid, x.addresses, early, x.maps)
            for x in plan.launches
        ),
        tuple(map(of_pack, plan.from_pack)),
        tuple(map(of_pack, plan.prepare)),
    )


def _check_inputs(prepared: PackLaunch, op: Op, values: Mapping[str, Value]) -> None:
    """What runs on the host before a step reads inputs of the program alone, by their names.

    All calls that are alike are prepared once, so that they must read the same ones.
    """
    for address in prepared.addresses:
        if address.space == "input":
            name = op.inputs[address.index]
            assert name is not None, f"{op.module}: {prepared.function} reads what is absent"
            storage = values[name].storage
            assert isinstance(storage, InputStorage), f"{op.module}: {name} is no input"
            assert storage.input == OPS[op.op].schema.inputs[address.index].name, storage


def _strides(value: Value) -> tuple[int, ...]:
    if isinstance(value.storage, ArenaStorage):
        return value.storage.strides
    inner = [math.prod(value.shape[i + 1 :]) for i in range(len(value.shape))]
    return tuple(inner)


def _layer_offset(group: CacheGroup, layer: int, value: Value) -> int:
    return group.layers.index(layer) * math.prod(value.shape) * value.dtype.itemsize


def _rounded(size: int) -> int:
    return -(-size // _AREA) * _AREA
