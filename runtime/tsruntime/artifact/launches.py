"""The launches of a plan for a GPU: `kernels/launches.json`, the cubins and packs that it names.

Everything that the runtime passes to the driver, but for addresses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tskernels.launch import Address, TensorMap
from tskernels.ops.sampling.words import DrawKind
from tskernels.packs.errors import PackMisfit, PackUntrusted
from tskernels.packs.manifest import digest_of
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
    """One launch of the cubin number `cubin`; `maps` and `addresses` as its parameters stand.

    Where `early`, it may begin before the one before it has ended: it waits by itself.
    """

    cubin: int
    grid: tuple[int, int, int]
    addresses: tuple[Address, ...]
    early: bool
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True, slots=True)
class PackFile:
    """A kernel pack's library: its file in the artifact, and the digest that it is trusted by."""

    file: str
    name: str
    version: str
    arch: str
    digest: str


@dataclass(frozen=True, slots=True)
class PackCall:
    """A call of a function of the pack number `pack`, with all that it is passed."""

    pack: int
    function: str
    addresses: tuple[Address, ...]
    integers: tuple[int, ...]
    reals: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """What runs one op: launches, then those from packs.

    Before a step that has such a call, `prepare` runs once on the host, with copies of the op's
    inputs there, and fills the `step` area (see `Address`).
    """

    launches: tuple[KernelLaunch, ...]
    from_pack: tuple[PackCall, ...] = ()
    prepare: tuple[PackCall, ...] = ()


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
    """All launches of a plan, and the sizes of the areas that they use (see `Address`).

    `past` rebuilds a slot's counts and biases (outputs 0 and 1) from words (input 0).
    """

    arch: str
    cubins: tuple[CubinFile, ...]
    calls: tuple[Call, ...]
    programs: Mapping[str, ProgramCalls]
    past: int
    scratch_bytes: int
    counter_bytes: int
    packs: tuple[PackFile, ...] = ()
    step_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The launches of a plan, and the code of its cubins and packs, each in their order."""

    launches: Launches
    cubins: tuple[bytes, ...]
    packs: tuple[bytes, ...] = ()


_ADAPTER = TypeAdapter(Launches)


def launches_bytes(launches: Launches) -> bytes:
    """The canonical bytes of `kernels/launches.json`."""
    return canonical_json(_ADAPTER.dump_python(launches, mode="json"))


def load_code(
    path: Path, manifest: Manifest, plan: Plan, trusted: Collection[str] = ()
) -> DeviceCode:
    """The launches of the artifact at `path` and the code that they run, digests verified.

    ArtifactDamaged where they are not what the manifest seals, or do not fit the plan;
    PackUntrusted where a pack's digest is not one of `trusted`.
    """
    verify_files(path, manifest, lambda name: name.startswith("kernels/"))
    if LAUNCHES not in manifest.files:
        raise ArtifactDamaged(path, f"{LAUNCHES} is missing from a plan for {plan.target.device}")
    try:
        launches = _ADAPTER.validate_json((path / LAUNCHES).read_bytes())
    except ValidationError as error:
        raise ArtifactDamaged(path, f"{LAUNCHES} does not fit its schema: {error}") from None
    _check(path, manifest, launches, plan)
    libraries = tuple(_library(path, pack, trusted) for pack in launches.packs)
    cubins = tuple((path / cubin.file).read_bytes() for cubin in launches.cubins)
    return DeviceCode(launches, cubins, libraries)


def _library(path: Path, pack: PackFile, trusted: Collection[str]) -> bytes:
    """The bytes of a pack's library, once they have the digest that is trusted."""
    library = (path / pack.file).read_bytes()
    if (found := digest_of(library)) != pack.digest:
        raise ArtifactDamaged(
            path, f"{pack.file} has sha256 {found}, {LAUNCHES} says {pack.digest}"
        )
    _check_trust(path, pack, trusted)
    return library


def _check_trust(path: Path, pack: PackFile, trusted: Collection[str]) -> None:
    if pack.digest not in trusted:
        told = f"only {', '.join(sorted(trusted))} is trusted" if trusted else "nothing is trusted"
        raise PackUntrusted(
            f"native code of kernel pack {pack.name} {pack.version} has sha256 {pack.digest}, but"
            f" {told}",
            remedy="if you know that digest from whoever built the pack, pass --trust-pack with it",
            where=str(path),
        )


def _check(path: Path, manifest: Manifest, launches: Launches, plan: Plan) -> None:
    if launches.arch != plan.target.arch:
        raise ArtifactDamaged(
            path, f"{LAUNCHES} is for {launches.arch}, the plan for {plan.target.arch}"
        )
    for file in (*launches.cubins, *launches.packs):
        if file.file not in manifest.files:
            raise ArtifactDamaged(path, f"{LAUNCHES} names {file.file}, which is not sealed")
    for pack in launches.packs:
        if pack.arch != plan.target.arch:
            raise PackMisfit(
                f"kernel pack {pack.name} is for {pack.arch}, the plan for {plan.target.arch}",
                remedy="build the artifact with the pack for its architecture",
                where=str(path),
            )
    for program in plan.programs:
        calls = launches.programs.get(program.name)
        if calls is None or len(calls.ops) != len(program.ops):
            raise ArtifactDamaged(path, f"{LAUNCHES} does not fit program {program.name}")
