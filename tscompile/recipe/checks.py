"""Checks across sections of a recipe, and of a recipe against its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from tscompile.errors import Problem

from .buckets import Buckets
from .kv_cache import KvCache
from .limits import Limits
from .model import Model
from .parallel import Parallel, divisors, nests
from .section import Section
from .source import Document
from .target import ARCHS, TOPOLOGIES, Target, is_topology

SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections that are valid by themselves; a check runs when those that it reads are."""

    model: Model | None
    target: Target | None
    parallel: Parallel | None
    buckets: Buckets | None
    kv_cache: KvCache | None
    limits: Limits | None


def valid_sections(data: dict[str, object]) -> Sections:
    """Each section validated alone, so that one's errors hide no check of the others."""
    return Sections(
        _valid(Model, data["model"]),
        _valid(Target, data["target"]),
        _valid(Parallel, data["parallel"]),
        _valid(Buckets, data["buckets"]),
        _valid(KvCache, data["kv_cache"]),
        _valid(Limits, data["limits"]),
    )


def _valid(kind: type[SectionT], data: object) -> SectionT | None:
    try:
        return kind.model_validate(data)
    except ValidationError:
        return None


def cross_check(sections: Sections, document: Document) -> Iterator[Problem]:
    """Every contradiction between keys that are valid by themselves."""
    where = document.where
    if sections.model is not None:
        yield from _check_model(sections.model, where)
    if sections.target is not None:
        yield from _check_target(sections.target, where)
    if sections.parallel is not None:
        yield from _check_groups(sections.parallel, where)
    if sections.kv_cache is not None:
        yield from _check_pool_size(sections.kv_cache, where)
    if sections.limits is not None:
        yield from _check_limits(sections.limits, sections, where)


Where = Callable[[tuple[str | int, ...]], str]


def _check_model(model: Model, where: Where) -> Iterator[Problem]:
    if (model.source is None) == (model.config is None):
        both = "both model.source and model.config are" if model.source else "neither is"
        yield Problem(
            where(("model",)),
            f"a model is a source or a config with dummy weights; {both} given",
            "write model.source: PATH, or model.config: FILE and model.weights: dummy",
        )
    elif model.config is not None and model.weights is None:
        yield Problem(
            where(("model", "config")),
            "model.config has no weights",
            "add model.weights: dummy, or name a checkpoint with model.source",
        )
    for name in ("weights", "seed"):
        if model.source is not None and model.config is None and getattr(model, name) is not None:
            yield Problem(
                where(("model", name)),
                f"model.{name} {getattr(model, name)!r} belongs to model.config, not model.source",
                f"take model.{name} out",
            )
    if model.sha256 is not None and model.source is None:
        yield Problem(
            where(("model", "sha256")), "dummy weights have no files to check", "take it out"
        )


def _check_target(target: Target, where: Where) -> Iterator[Problem]:
    tables = {"arch": ARCHS[target.device], "topology": TOPOLOGIES[target.device]}
    for name, known in tables.items():
        value = getattr(target, name)
        if value not in known and not (name == "topology" and is_topology(target.device, value)):
            yield Problem(
                where(("target", name)),
                f"{value!r} is not a {name} of device {target.device}",
                f"choose one of {', '.join(known)}",
            )


def _check_groups(parallel: Parallel, where: Where) -> Iterator[Problem]:
    """Each size divides the world, and of any two one divides the other."""
    sizes = parallel.sizes()
    legal = ", ".join(map(str, divisors(parallel.world)))
    misfits = {name: size for name, size in sizes.items() if parallel.world % size}
    for name, size in misfits.items():
        formula = f"moe_tp * moe_ep = {size}" if name == "moe_ep" else f"{name} {size}"
        yield Problem(
            where(("parallel", name)),
            f"{formula} does not divide world {parallel.world}",
            f"choose a size that divides {parallel.world}: {legal}",
        )
    seen: dict[str, int] = {}
    for name, size in sizes.items():
        clash = next((n for n, other in seen.items() if not nests((size, other))), None)
        if name not in misfits and clash is not None:
            others = tuple(other for n, other in seen.items() if n not in misfits)
            fits = [d for d in divisors(parallel.world) if all(nests((d, o)) for o in others)]
            yield Problem(
                where(("parallel", name)),
                f"size {size} does not nest with {clash} {seen[clash]}: neither divides the other",
                f"choose a size that nests: {', '.join(map(str, fits))}",
            )
        if name not in misfits:
            seen[name] = size


def _check_pool_size(kv_cache: KvCache, where: Where) -> Iterator[Problem]:
    if kv_cache.pages is not None and kv_cache.memory is not None:
        yield Problem(
            where(("kv_cache", "memory")),
            f"both memory {kv_cache.memory!r} and pages {kv_cache.pages} are given",
            "keep one of kv_cache.memory and kv_cache.pages",
        )
    if kv_cache.host_pages is not None and kv_cache.host_memory is not None:
        yield Problem(
            where(("kv_cache", "host_memory")),
            f"both host_memory {kv_cache.host_memory!r} and host_pages {kv_cache.host_pages} are "
            "given",
            "keep one of kv_cache.host_memory and kv_cache.host_pages",
        )


def _check_limits(limits: Limits, sections: Sections, where: Where) -> Iterator[Problem]:
    buckets, kv_cache = sections.buckets, sections.kv_cache
    if kv_cache is not None and kv_cache.pages is not None:
        yield from check_pool(limits, kv_cache.page_size, kv_cache.pages, where)
    if kv_cache is not None:
        yield from _check_budget(limits, kv_cache.page_size, where)
    if buckets is not None:
        yield from _check_decode(limits, buckets, where)
        yield from _check_extend(limits, buckets, where)


def check_pool(limits: Limits, page_size: int, pages: int, where: Where) -> Iterator[Problem]:
    """The pool holds one sequence of max_model_len; one page is the null page."""
    largest = page_size * (pages - 1)
    if limits.max_model_len > largest:
        need = -(-limits.max_model_len // page_size) + 1
        yield Problem(
            where(("limits", "max_model_len")),
            f"max_model_len {limits.max_model_len} is beyond what the KV pool can hold: {pages} "
            f"pages of {page_size} tokens, one of them the null page, hold {largest}",
            f"lower limits.max_model_len to {largest}, or give the pool {need} pages or more",
        )


def _check_budget(limits: Limits, page_size: int, where: Where) -> Iterator[Problem]:
    least = limits.max_batch + page_size
    if limits.token_budget < least:
        yield Problem(
            where(("limits", "token_budget")),
            f"token_budget {limits.token_budget} leaves no room to prefill beside a full batch: "
            f"max_batch {limits.max_batch} + page_size {page_size} = {least}",
            f"raise limits.token_budget to {least} or more, or lower limits.max_batch",
        )


def _check_decode(limits: Limits, buckets: Buckets, where: Where) -> Iterator[Problem]:
    largest = buckets.decode[-1]
    if limits.max_batch > largest:
        yield Problem(
            where(("limits", "max_batch")),
            f"max_batch {limits.max_batch} is above the largest decode bucket {largest}",
            f"add {limits.max_batch} to buckets.decode, or lower limits.max_batch to {largest}",
        )


def _check_extend(limits: Limits, buckets: Buckets, where: Where) -> Iterator[Problem]:
    tokens = max(shape[0] for shape in buckets.extend)
    sequences = max(shape[1] for shape in buckets.extend if shape[0] == tokens)
    if tokens != limits.token_budget:
        yield Problem(
            where(("buckets", "extend")),
            f"the largest extend bucket has {tokens} tokens but token_budget is "
            f"{limits.token_budget}",
            f"add [{limits.token_budget}, {limits.max_batch}] to buckets.extend, or set "
            f"limits.token_budget to {tokens}",
        )
    elif sequences < limits.max_batch:
        yield Problem(
            where(("buckets", "extend")),
            f"the largest extend bucket [{tokens}, {sequences}] holds {sequences} sequences but "
            f"max_batch is {limits.max_batch}",
            f"make it [{tokens}, {limits.max_batch}], or lower limits.max_batch to {sequences}",
        )
