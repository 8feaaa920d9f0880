"""The launches of a plan for a GPU: `kernels/launches.json`, and the cubins that it names.

Everything that the runtime passes to the driver, but for addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tskernels.launch import Address
from tskernels.ops.sampling.words import DrawKind
from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.manifest import Manifest, verify_files
from tsruntime.artifact.schema import Plan

LAUNCHES = "kernels/launches.json"


@dataclass(frozen=True, slots=True)
class CubinFile:
    """A compiled kernel: its file in the artifact, entry point, and what a block of it needs."""

    file: str
    symbol: str
    shared_bytes: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of the cubin number `cubin`; `addresses` as its pointers stand.

    Where `early`, it may begin before the one before it has ended: it waits by itself.
    """

    cubin: int
    grid: tuple[int, int, int]
    addresses: tuple[Address, ...]
    early: bool


@dataclass(frozen=True, slots=True)
class Call:
    """The launches that run one op."""

    launches: tuple[KernelLaunch, ...]


@dataclass(frozen=True, slots=True)
class ProgramCalls:
    """For each op of a program the number of its call, or None for views and host kernels.

    `feed` goes before them: token ids (output 0) below 0 become the last tokens (input 1) of their
    rows' slots (input 0). After them comes one of `draws`, from the logits to tokens, as
    `tskernels.ops.sampling.cuda_full.plan_draw` says; where the logits are not "last" there is the
    greedy kind alone, and its tokens go nowhere else.
    """

    ops: tuple[int | None, ...]
    feed: int
    draws: Mapping[DrawKind, int]


@dataclass(frozen=True, slots=True)
class Launches:
    """All launches of a plan, and the sizes of the two areas that they share (see `Address`).

    `past` rebuilds a slot's counts and biases (outputs 0 and 1) from words (input 0).
    """

    arch: str
    cubins: tuple[CubinFile, ...]
    calls: tuple[Call, ...]
    programs: Mapping[str, ProgramCalls]
    past: int
    scratch_bytes: int
    counter_bytes: int


_ADAPTER = TypeAdapter(Launches)


def launches_bytes(launches: Launches) -> bytes:
    """The canonical bytes of `kernels/launches.json`."""
    return canonical_json(_ADAPTER.dump_python(launches, mode="json"))


def load_launches(path: Path, manifest: Manifest, plan: Plan) -> tuple[Launches, tuple[bytes, ...]]:
    """The launches of the artifact at `path` and the code of each cubin, digests verified.

    ArtifactDamaged where they are not what the manifest seals, or do not fit the plan.
    """
    verify_files(path, manifest, lambda name: name.startswith("kernels/"))
    if LAUNCHES not in manifest.files:
        raise ArtifactDamaged(path, f"{LAUNCHES} is missing from a plan for {plan.target.device}")
    try:
        launches = _ADAPTER.validate_json((path / LAUNCHES).read_bytes())
    except ValidationError as error:
        raise ArtifactDamaged(path, f"{LAUNCHES} does not fit its schema: {error}") from None
    _check(path, manifest, launches, plan)
    return launches, tuple((path / cubin.file).read_bytes() for cubin in launches.cubins)


def _check(path: Path, manifest: Manifest, launches: Launches, plan: Plan) -> None:
    if launches.arch != plan.target.arch:
        raise ArtifactDamaged(
            path, f"{LAUNCHES} is for {launches.arch}, the plan for {plan.target.arch}"
        )
    for cubin in launches.cubins:
        if cubin.file not in manifest.files:
            raise ArtifactDamaged(path, f"{LAUNCHES} names {cubin.file}, which is not sealed")
    for program in plan.programs:
        calls = launches.programs.get(program.name)
        if calls is None or len(calls.ops) != len(program.ops):
            raise ArtifactDamaged(path, f"{LAUNCHES} does not fit program {program.name}")
