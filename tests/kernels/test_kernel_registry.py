"""The registry: names, refusals, and plug-ins by entry point."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from tskernels import builtin, registry
from tskernels.kernel import BoundCall, KernelQuery, KernelSpec
from tskernels.registry import (
    DuplicateKernelError,
    PluginError,
    Registry,
    UnknownKernelError,
)
from tskernels.schema import DType
from tskernels.selection import select

PLUGIN_DIRECTORY = Path(__file__).parent / "plugin_example"


@pytest.fixture
def kernels() -> Registry:
    return Registry(builtin.SPECS)


def install(monkeypatch: pytest.MonkeyPatch, *targets: tuple[str, str]) -> None:
    """Make `importlib.metadata` report entry points of the plug-in group."""
    points = [EntryPoint(name, value, registry.PLUGIN_GROUP) for name, value in targets]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)  # pyright: ignore
    monkeypatch.setattr(sys, "path", [str(PLUGIN_DIRECTORY), *sys.path])
    monkeypatch.delitem(sys.modules, "ts_example_kernels", raising=False)


def test_a_pin_resolves_to_its_kernel(kernels: Registry) -> None:
    for name in kernels.names():
        assert kernels.resolve(name).name == name
    assert [spec.name for spec in kernels.of("add")] == [
        "add.native",
        "add.reference",
        "add.torch",
        "add.triton",
    ]


def test_an_unknown_pin_is_named_with_the_nearest(kernels: Registry) -> None:
    with pytest.raises(UnknownKernelError, match=r"no kernel 'linear\.nativ'") as caught:
        kernels.resolve("linear.nativ")
    assert "did you mean linear.native?" in caught.value.remedy


def test_a_name_is_taken_once(kernels: Registry) -> None:
    with pytest.raises(DuplicateKernelError, match=r"add\.native is registered twice"):
        kernels.register(kernels.resolve("add.native"))


def test_malformed_kernels_are_refused(kernels: Registry) -> None:
    spec = replace(kernels.resolve("add.native"), solution="other")
    with pytest.raises(ValueError, match="no op 'ad'"):
        kernels.register(replace(spec, op="ad"))
    with pytest.raises(ValueError, match="priority 20 is not in 0-19"):
        kernels.register(replace(spec, priority=20))
    with pytest.raises(ValueError, match="add has no input"):
        kernels.register(replace(spec, signature={"c": (DType.FLOAT32,)}))


def test_a_plug_in_beats_the_built_in_kernel(
    kernels: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("example", "ts_example_kernels:register"))
    f32 = DType.FLOAT32
    query = KernelQuery("add", "decode", (f32, f32), ((2, 3), (2, 3)), "cpu", "x86_64")
    assert select(query, kernels).winner.name == "add.native"
    assert kernels.load_plugins() == ("example",)
    assert kernels.load_plugins() == ("example",)  # a second time changes nothing
    chosen = select(query, kernels)
    assert chosen.winner.name == "add.example"
    assert chosen.reason == "PLUGIN, priority 16"
    assert ("add.native", "is PERFORMANT, add.example is PLUGIN") in chosen.losers
    a, b, y = torch.randn(2, 3), torch.randn(2, 3), torch.empty(2, 3)
    chosen.winner.bind(BoundCall((a, b), (y,), {}))()
    assert torch.equal(y, a + b)


def test_a_plug_in_that_fails_is_named(kernels: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("broken", "ts_example_kernels:missing"))
    with pytest.raises(PluginError, match=r"'broken' \(ts_example_kernels:missing\) failed"):
        kernels.load_plugins()


def out_of_band(target: Registry) -> None:
    """A plug-in that claims a built-in band."""
    spec: KernelSpec = registry.REGISTRY.resolve("add.native")
    target.register(replace(spec, solution="sly", priority=11))


def test_a_plug_in_keeps_to_its_band(kernels: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("sly", f"{__name__}:out_of_band"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with pytest.raises(PluginError, match=r"'sly' gives add\.sly priority 11") as caught:
        kernels.load_plugins()
    assert "16 to 19" in caught.value.remedy
    assert "add.sly" not in kernels.names()


def test_a_plug_in_may_not_take_a_built_in_name(
    kernels: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, ("one", "ts_example_kernels:register"))
    kernels.load_plugins()
    install(monkeypatch, ("two", "ts_example_kernels:register"))
    with pytest.raises(DuplicateKernelError, match=r"add\.example is registered twice"):
        kernels.load_plugins()


def test_the_table_needs_neither_triton_nor_cuda_core() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(('triton', 'cuda')));"
    asked = "from tskernels.registry import REGISTRY; print('linear.triton' in REGISTRY.names())"
    done = subprocess.run([sys.executable, "-c", f"{blocked} {asked}"], capture_output=True)
    assert done.stdout == b"True\n", done.stderr
    triton = "from tskernels.compilers.triton import triton_version; triton_version()"
    nvrtc = (
        "from tskernels.compilers import compile_function; from tskernels.launch import"
        " CudaFunction; compile_function(CudaFunction('x.cu', 'x', (), 1, 0), 'sm_90')"
    )
    for missing, named in ((triton, b"Triton"), (nvrtc, b"NVRTC")):
        done = subprocess.run([sys.executable, "-c", f"{blocked} {missing}"], capture_output=True)
        assert b"TS0406" in done.stderr
        assert named in done.stderr
