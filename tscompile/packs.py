"""The kernel packs that a recipe names: whole, for its target, and each of use to some kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tscompile.recipe import Recipe
from tskernels.packs.errors import PackMisfit
from tskernels.packs.manifest import Pack, read_pack
from tskernels.registry import REGISTRY, Registry


@dataclass(frozen=True, slots=True)
class GivenPack:
    """A pack, where it was read, and its library."""

    pack: Pack
    folder: Path
    library: bytes


def open_packs(recipe: Recipe, registry: Registry = REGISTRY) -> tuple[GivenPack, ...]:
    """Every pack of the recipe, in its order; no code of one is run.

    PackDamaged as `read_pack`; PackMisfit where one is for another target, or of no use.
    """
    folders = [recipe.locate(path) for path in recipe.kernels.packs]
    given = tuple(GivenPack(*_parts(folder)) for folder in folders)
    where = recipe.where("kernels", "packs")
    for one in given:
        _check_use(one, recipe.target.arch, registry, where)
    _check_names(given, where)
    return given


def _parts(folder: Path) -> tuple[Pack, Path, bytes]:
    pack, library = read_pack(folder)
    return pack, folder, library


def _check_use(given: GivenPack, arch: str, registry: Registry, where: str) -> None:
    pack = given.pack
    if pack.arch != arch:
        raise PackMisfit(
            f"kernel pack {pack.name} is for {pack.arch}, target.arch is {arch}",
            remedy=f"name a pack for {arch}, or leave it out",
            where=where,
        )
    if pack.name not in registry.packs():
        known = ", ".join(registry.packs()) or "none"
        raise PackMisfit(
            f"no kernel needs a pack named {pack.name}; those that kernels need: {known}",
            remedy="install the plug-in whose kernels need it, or leave it out",
            where=where,
        )


def _check_names(given: Iterable[GivenPack], where: str) -> None:
    seen: dict[str, Path] = {}
    for one in given:
        if one.pack.name in seen:
            raise PackMisfit(
                f"{seen[one.pack.name]} and {one.folder} are both kernel pack {one.pack.name}",
                remedy="keep one of them",
                where=where,
            )
        seen[one.pack.name] = one.folder
