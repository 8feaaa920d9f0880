"""`tscompile kernels`: what is registered, why an artifact's kernels were pinned, and packs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tscompile.cli.progress import activity
from tskernels.kernel import KernelSpec
from tskernels.ops import OPS
from tskernels.packs.compile import compile_pack
from tskernels.packs.manifest import write_pack
from tskernels.packs.sources import SOURCES
from tskernels.registry import REGISTRY
from tsruntime.artifact.load import verify


@click.group()
def kernels() -> None:
    """List the kernels that may be pinned, explain an artifact's pins, or build a pack."""


@kernels.command("list")
@click.option("--op", help="Only this operator's.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Only this device's.")
def list_(op: str | None, device: str | None) -> None:
    """Print every registered kernel: its name, band, device and what it takes."""
    if op is not None and op not in OPS:
        raise click.UsageError(f"there is no operator {op}: {', '.join(sorted(OPS))}")
    REGISTRY.load_plugins()
    specs = [REGISTRY.resolve(name) for name in REGISTRY.names()]
    shown = [
        spec for spec in specs if op in (None, spec.op) and device in (None, spec.capability.device)
    ]
    width = max((len(spec.name) for spec in shown), default=0)
    for spec in shown:
        click.echo(f"{spec.name:{width}}  {spec.band:11}  {described(spec)}")


@kernels.command("explain")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--op", help="Only this operator's.")
def explain(artifact: Path, op: str | None) -> None:
    """Print for each question of ARTIFACT's build the kernel that won, why, and why others lost."""
    verify(artifact, weights=False)
    pins = json.loads((artifact / "kernels" / "pins.json").read_text(encoding="utf-8"))
    for pin in pins:
        if op in (None, pin["op"]):
            click.echo(f"{pin['query']}\n    {pin['winner']}: {pin['reason']}")
            for name, why in pin["losers"]:
                click.echo(f"    not {name}: {why}")


@kernels.command("pack")
@click.argument("name", type=click.Choice(sorted(SOURCES)))
@click.option("--arch", default="sm_90", show_default=True, help="The GPU's architecture.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: packs/<name>-<arch>.")
def pack(name: str, arch: str, out: Path | None) -> None:
    """Compile kernel pack NAME by nvcc, which needs no GPU, and print its digest.

    A recipe names the folder in kernels.packs; `tsrun` is told the digest by --trust-pack. Another
    compilation gives another library, and another digest.
    """
    folder = out or Path("packs") / f"{name}-{arch}"
    with activity(f"compiling kernel pack {name}"):
        built, library = compile_pack(SOURCES[name], arch)
    write_pack(folder, built, library)
    click.echo(f"{folder}  {built.version}  {len(library) / 1e6:,.1f} MB  {built.digest}")


def described(spec: KernelSpec) -> str:
    """Where a kernel runs, its mode, and its conditions, in one line."""
    device = spec.capability.device
    where = f"{device} ({', '.join(spec.capability.archs)})" if spec.capability.archs else device
    mode = [] if spec.mode == "any" else [f"{spec.mode} only"]
    mode += [] if spec.pack is None else [f"from kernel pack {spec.pack}"]
    dtypes = sorted({dtype.value for taken in spec.signature.values() for dtype in taken})
    takes = [", ".join(dtypes)] if dtypes else []
    return "; ".join([where, *mode, *takes, *(trait.text for trait in spec.traits)])
