"""The table of kernels: built-in ones, complete on import, and plug-ins on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import cast

from tskernels import builtin
from tskernels.errors import TsError
from tskernels.kernel import BANDS, HIGHEST, PLUGIN, KernelSpec, compiled
from tskernels.ops import OPS

PLUGIN_GROUP = "tscompile.kernels"
"""Entry-point group of plug-ins: each names a callable that takes the `Registry`."""


class UnknownKernelError(TsError):
    """A pin names no registered kernel."""

    code = "TS0402"
    summary = "A plan or recipe pins a kernel that is not registered."


class DuplicateKernelError(TsError):
    """Two kernels have one name."""

    code = "TS0403"
    summary = "Two kernels are registered under one name."


class PluginError(TsError):
    """A kernel plug-in cannot be loaded, or registers what it may not."""

    code = "TS0405"
    summary = "A kernel plug-in cannot be loaded, or registers what it may not."


class Registry:
    """Kernels by name. Iteration is sorted by name, whatever the order of registration."""

    def __init__(self, specs: Iterable[KernelSpec] = ()) -> None:
        self._specs: dict[str, KernelSpec] = {}
        self._plugins: set[str] = set()
        for spec in specs:
            self.register(spec)

    def register(self, spec: KernelSpec) -> None:
        """Add a kernel; DuplicateKernelError if its name is taken, ValueError if malformed."""
        if spec.op not in OPS:
            raise ValueError(f"kernel {spec.name}: there is no op {spec.op!r}")
        if not any(spec.priority in band for band in BANDS.values()):
            raise ValueError(f"kernel {spec.name}: priority {spec.priority} is not in 0-{HIGHEST}")
        inputs = {argument.name for argument in OPS[spec.op].schema.inputs}
        if unknown := spec.signature.keys() - inputs:
            raise ValueError(f"kernel {spec.name}: {spec.op} has no input {sorted(unknown)}")
        if (spec.bind is compiled) != (spec.launches is not None):
            raise ValueError(f"kernel {spec.name} needs either bind or launches")
        if spec.pack is not None and spec.launches is None:
            raise ValueError(f"kernel {spec.name} of pack {spec.pack} needs launches")
        if spec.name in self._specs:
            raise DuplicateKernelError(
                f"kernel {spec.name} is registered twice",
                remedy="rename the solution, or uninstall one of the plug-ins that provide it",
            )
        self._specs[spec.name] = spec

    def resolve(self, pin: str) -> KernelSpec:
        """The kernel of that name; UnknownKernelError if there is none."""
        if pin in self._specs:
            return self._specs[pin]
        near = get_close_matches(pin, self._specs, n=1)
        hint = f"did you mean {near[0]}? Otherwise " if near else ""
        raise UnknownKernelError(
            f"there is no kernel {pin!r}",
            remedy=f"{hint}install the plug-in that provides it, or build the artifact again",
        )

    def of(self, op: str) -> tuple[KernelSpec, ...]:
        """All kernels of an op, sorted by name."""
        return tuple(self._specs[n] for n in sorted(self._specs) if self._specs[n].op == op)

    def names(self) -> tuple[str, ...]:
        """All pins, sorted."""
        return tuple(sorted(self._specs))

    def packs(self) -> tuple[str, ...]:
        """Names of the kernel packs that any kernel needs, sorted."""
        return tuple(sorted({s.pack for s in self._specs.values() if s.pack is not None}))

    def load_plugins(self) -> tuple[str, ...]:
        """Let every installed plug-in register its kernels, once; the names of all plug-ins.

        PluginError if one fails, or claims a priority outside the PLUGIN band.
        """
        for point in sorted(entry_points(group=PLUGIN_GROUP), key=lambda point: point.name):
            if point.name not in self._plugins:
                self._load(point.name, point.value, point.load)
                self._plugins.add(point.name)
        return tuple(sorted(self._plugins))

    def _load(self, name: str, target: str, load: Callable[[], object]) -> None:
        staged = Registry()
        try:
            cast("Callable[[Registry], None]", load())(staged)
        except Exception as error:
            raise PluginError(
                f"kernel plug-in {name!r} ({target}) failed: {type(error).__name__}: {error}",
                remedy="repair or uninstall the package that provides it",
            ) from error
        for pin in staged.names():
            spec = staged.resolve(pin)
            if spec.priority not in BANDS["PLUGIN"]:
                raise PluginError(
                    f"kernel plug-in {name!r} gives {pin} priority {spec.priority}",
                    remedy=f"give it one of {PLUGIN} to {HIGHEST}, the PLUGIN band",
                )
            self.register(spec)


REGISTRY = Registry(builtin.SPECS)
