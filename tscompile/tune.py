"""Tuning: the calls of a plan whose block sizes are worth measuring, and the fastest of each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from tskernels.capabilities import HOPPER
from tskernels.compilers import compile_function
from tskernels.cubin import Cubin, CubinError
from tskernels.device import cuda_arch
from tskernels.errors import TsError
from tskernels.launch import CallLayout, Compiled, LaunchPlan, Operand
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.ops.attention.configs import decode_candidates, rows_candidates
from tskernels.ops.attention.cuda import heads_of, plan_shares, plan_tiles
from tskernels.ops.linear.configs import candidates
from tskernels.ops.linear.cuda import plan_product
from tskernels.ops.linear.product import Product
from tskernels.ops.linear.rings import Ring
from tskernels.ops.linear.scaled_configs import scaled_candidates
from tskernels.ops.linear.scaled_cuda import plan_scaled_product, scaled_product
from tskernels.schema import DType, TensorType
from tskernels.tuning.measure import Stopwatch
from tskernels.tuning.table import Entry
from tsruntime.artifact.digest import sha256_bytes
from tsruntime.artifact.schema import Op, Plan, Target, Value

_ROTATION = 8_000_000_000
"""Bytes of weights or keys that are read before the first ones come again, if `_MOST_CALLS` allow:
as a model's layers are, beyond what caches hold and what the GPU remembers of addresses.
"""
_MOST_CALLS = 36

_CONTEXT = 1024
"""Tokens of each sequence that a measured decode attends to."""

Cubins: TypeAlias = tuple[Cubin, ...]
Calls: TypeAlias = Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]]


class NothingToMeasure(TsError):
    """The machine has no GPU of the target's architecture."""

    code = "TS0409"
    summary = "`tscompile tune` needs a GPU of the recipe's architecture."


@dataclass(frozen=True, slots=True)
class Option:
    """One way to launch a call: its block sizes by name, and the launches."""

    config: dict[str, int]
    plan: LaunchPlan


@dataclass(frozen=True, slots=True)
class Problem:
    """A call under its key in tuning tables, the options, and tensors for some calls of it."""

    key: str
    options: tuple[Option, ...]
    calls: Callable[[], Calls]


def measured_on(target: Target) -> str:
    """The GPU's name; NothingToMeasure unless it is of the target's architecture."""
    here = cuda_arch(0) if torch.cuda.is_available() else "no GPU"
    if target.device != "cuda" or here != target.arch:
        raise NothingToMeasure(
            f"the recipe is for {target.device} {target.arch}, this machine has {here}",
            remedy="run it on the GPU that the recipe names",
            where="target.arch",
        )
    return torch.cuda.get_device_name(0)


def problems(plan: Plan) -> dict[str, Problem]:
    """Every call of the plan that is worth measuring, by its key; of several the largest."""
    found: dict[str, Problem] = {}
    for program in plan.programs:
        values = {value.name: value for value in program.values}
        for op in program.ops:
            make = _MAKERS.get(op.pin)
            if make is not None:
                problem = make(op, values, plan.target.arch)
                found[problem.key] = problem
    return {key: problem for key, problem in found.items() if problem.options}


def compile_options(
    wanted: Sequence[Problem], arch: str, cache: Path
) -> Iterator[tuple[Problem, tuple[Cubins, ...]]]:
    """The cubins of each problem's options, from the folder `cache` or compiled on all cores.

    None of an option that takes more than the GPU has. No GPU is needed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        asked = [[pool.submit(_compile, arch, o.plan, cache) for o in p.options] for p in wanted]
        for problem, futures in zip(wanted, asked, strict=True):
            yield problem, tuple(future.result() for future in futures)


def fastest(problem: Problem, cubins: Sequence[Cubins], watch: Stopwatch) -> Entry:
    """The fastest of the problem's options on torch's current GPU."""
    calls = problem.calls()
    times = [
        (watch.microseconds(option.plan, made, calls), i)
        for i, (option, made) in enumerate(zip(problem.options, cubins, strict=True))
        if made
    ]
    microseconds, best = min(times)
    return Entry(problem.options[best].config, microseconds)


def _compile(arch: str, plan: LaunchPlan, cache: Path) -> Cubins:
    try:
        return tuple(_cached(arch, launch.function, cache) for launch in plan.launches)
    except CubinError:
        return ()


def _cached(arch: str, function: Compiled, cache: Path) -> Cubin:
    """A cubin and what its launch needs, kept as one file.

    It is named by what is compiled and not by Triton's version: the folder is filled by the Triton
    that builds artifacts, wherever it is measured.
    """
    name = sha256_bytes(repr((arch, function)).encode())
    path = cache / f"{name[:32]}.cubin"
    if not path.is_file():
        cubin = compile_function(function, arch)
        needs = {f: getattr(cubin, f) for f in ("symbol", "shared_bytes", "num_warps")}
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_bytes(json.dumps(needs).encode() + b"\n" + cubin.data)
        staged.replace(path)
    needs, data = path.read_bytes().split(b"\n", 1)
    return Cubin(data, **json.loads(needs))


def _linear(op: Op, values: dict[str, Value], arch: str) -> Problem:
    x, y = values[op.inputs[0] or ""], values[op.outputs[0]]
    gated = op.op == "linear_silu_mul"
    product = Product(x.shape[0], y.shape[1], x.shape[1], x.dtype, gated)
    weight = product.columns * (2 if gated else 1)
    inputs = (_operand(x), _contiguous(x.dtype, weight, product.depth), None)
    call = CallLayout(inputs, (_operand(y),), {}, arch)
    options = tuple(
        Option(asdict(c), plan_product(call, product, c))
        for c in candidates(product)
        if arch == HOPPER or not isinstance(c, Ring)
    )

    def calls() -> Calls:
        size = weight * product.depth * product.dtype.itemsize
        count = max(2, min(_MOST_CALLS, _ROTATION // size))
        x, y = _random(call.input(0)), _random(call.outputs[0])
        weights = [_random(call.input(1)) for _ in range(count)]
        return [((x, weight), (y,)) for weight in weights]

    return Problem(product.key, options, calls)


def _scaled(op: Op, values: dict[str, Value], arch: str) -> Problem:
    x, y = values[op.inputs[0] or ""], values[op.outputs[0]]
    weight, scale = (_operand(values[name or ""]) for name in op.inputs[1:3])
    attributes = resolve_attributes(OPS[op.op].schema, op.attributes)
    call = CallLayout((_operand(x), weight, scale, None), (_operand(y),), attributes, arch)
    product = scaled_product(call, gated=op.op == "scaled_linear_silu_mul")
    options = tuple(
        Option(asdict(c), plan_scaled_product(call, product, c)) for c in scaled_candidates(product)
    )

    def calls() -> Calls:
        count = max(2, min(_MOST_CALLS, _ROTATION // prod(weight.shape)))
        x, y = _random(call.input(0)), _random(call.outputs[0])
        return [((x, _random(weight), _random(scale)), (y,)) for _ in range(count)]

    return Problem(product.key, options, calls)


def _attention(op: Op, values: dict[str, Value], arch: str) -> Problem:
    """Decode at `_CONTEXT` tokens a sequence; other rows as one sequence's first ones."""
    decodes = op.pin.endswith("decode")
    operands = [None if name is None else _operand(values[name]) for name in op.inputs]
    sequences = operands[3].shape[0] if operands[3] is not None else 0
    attributes = resolve_attributes(OPS[op.op].schema, op.attributes)
    call = CallLayout(tuple(operands), (_operand(values[op.outputs[0]]),), attributes, arch)
    heads = heads_of(call)
    if decodes:
        made = [(asdict(c), plan_shares(call, c)) for c in decode_candidates(heads)]
    else:
        made = [(asdict(c), plan_tiles(call, c)) for c in rows_candidates()]
    length = _CONTEXT if decodes else heads.rows

    def calls() -> Calls:
        size, width = call.input(1).shape[3], call.input(2).shape[1]
        pages = -(-length // size)
        used = sequences if decodes else 1
        shape = (1 + used * pages, *call.input(1).shape[1:])
        count = max(2, min(_MOST_CALLS, _ROTATION // (heads.dtype.itemsize * prod(shape))))
        table = torch.zeros(sequences, width, dtype=torch.int32)
        table[:used, :pages] = 1 + torch.arange(used * pages).view(used, pages)
        lengths = torch.zeros(sequences, dtype=torch.int32)
        lengths[:used] = length
        starts = torch.full((sequences + 1,), heads.rows, dtype=torch.int32)
        starts[: used + 1] = torch.arange(used + 1) * (1 if decodes else heads.rows)
        indices = [x.cuda() for x in (table, lengths, starts)]
        query, y = _random(call.input(0)), _random(call.outputs[0])
        caches = [_random(_contiguous(heads.dtype, *shape)) for _ in range(count)]
        return [((query, cache, *indices, query), (y,)) for cache in caches]

    key = heads.decode_key if decodes else heads.rows_key
    return Problem(key, tuple(Option(*pair) for pair in made), calls)


_MAKERS: dict[str, Callable[[Op, dict[str, Value], str], Problem]] = {
    "linear.triton_rows": _linear,
    "linear_silu_mul.triton_rows": _linear,
    "scaled_linear.triton_rows": _scaled,
    "scaled_linear_silu_mul.triton_rows": _scaled,
    "attention.triton": _attention,
    "attention.triton_extend": _attention,
    "attention.triton_decode": _attention,
}


def _operand(value: Value) -> Operand:
    return _contiguous(value.dtype, *value.shape)


def _contiguous(dtype: DType, *shape: int) -> Operand:
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    return Operand(TensorType(dtype, shape), strides, 256)


def _random(operand: Operand) -> Tensor:
    """Normal numbers; torch draws float8 from wider ones."""
    drawn = torch.bfloat16 if operand.dtype is DType.FLOAT8_E4M3 else operand.dtype.torch
    numbers = torch.randn(operand.shape, device="cuda", dtype=drawn)
    return numbers.to(operand.dtype.torch)
