"""Which kernel the compiler pins: deterministic, total, and with a reason for every loser."""

from __future__ import annotations

from dataclasses import dataclass

from tskernels import measured
from tskernels.errors import TsError
from tskernels.kernel import BANDS, KernelQuery, KernelSpec
from tskernels.ops import OPS
from tskernels.registry import REGISTRY, Registry


class NoKernelError(TsError):
    """No registered kernel can run an op of the plan."""

    code = "TS0404"
    summary = "No kernel takes an operator on this device with these dtypes and shapes."


@dataclass(frozen=True, slots=True)
class Selection:
    """The kernel to pin, why, and why not each other one, sorted by name."""

    winner: KernelSpec
    reason: str
    losers: tuple[tuple[str, str], ...]


def select(query: KernelQuery, registry: Registry = REGISTRY) -> Selection:
    """Choose by capability, signature and traits; then band, measured time, priority, name.

    NoKernelError where nothing fits; it lists what each kernel lacks.
    """
    specs = registry.of(query.op)
    unfit = {spec.name: why for spec in specs if (why := misfit(spec, query)) is not None}
    fit = sorted((s for s in specs if s.name not in unfit), key=lambda s: _order(s, query))
    if not fit:
        raise _nothing_fits(query, unfit)
    winner, *others = fit
    beaten = {spec.name: _behind(spec, winner, query) for spec in others}
    reason = f"{winner.band}, priority {winner.priority}" if others else "the only one that fits"
    return Selection(winner, reason, tuple(sorted((unfit | beaten).items())))


def misfit(spec: KernelSpec, query: KernelQuery) -> str | None:
    """Why `spec` cannot run `query`, or None if it can."""
    capability = spec.capability
    if capability.device != query.device:
        return f"runs on {capability.device}, not {query.device}"
    if capability.archs and query.arch not in capability.archs:
        return f"runs on {', '.join(capability.archs)}, not {query.arch}"
    if spec.mode not in ("any", query.mode):
        return f"is for {spec.mode}, not {query.mode}"
    if spec.pack is not None and spec.pack not in query.packs:
        return f"needs kernel pack {spec.pack}, which the recipe does not name"
    names = [argument.name for argument in OPS[spec.op].schema.inputs]
    for name, dtype in zip(names, query.dtypes, strict=True):
        taken = spec.signature.get(name)
        if taken is not None and dtype is not None and dtype not in taken:
            return f"takes {name} as {' or '.join(taken)}, not {dtype}"
    return next((trait.text for trait in spec.traits if not trait.holds(query)), None)


def _band(spec: KernelSpec) -> int:
    return BANDS[spec.band].start


def _order(spec: KernelSpec, query: KernelQuery) -> tuple[int, float, int, str]:
    return (-_band(spec), measured.time(spec.name, query), -spec.priority, spec.name)


def _behind(loser: KernelSpec, winner: KernelSpec, query: KernelQuery) -> str:
    if _band(loser) != _band(winner):
        return f"is {loser.band}, {winner.name} is {winner.band}"
    slow, fast = measured.time(loser.name, query), measured.time(winner.name, query)
    if slow != fast:
        return f"measured slower than {winner.name} at this size"
    if loser.priority != winner.priority:
        return f"has priority {loser.priority}, {winner.name} has {winner.priority}"
    return f"equal to {winner.name}; its name comes later"


def _nothing_fits(query: KernelQuery, unfit: dict[str, str]) -> NoKernelError:
    dtypes = ", ".join(str(dtype) for dtype in query.dtypes if dtype is not None)
    lacks = "; ".join(f"{name} {why}" for name, why in sorted(unfit.items()))
    return NoKernelError(
        f"no kernel runs {query.op} ({dtypes}) on {query.device} {query.arch}: {lacks}",
        remedy="choose another dtype or target, or install a plug-in with such a kernel",
    )
