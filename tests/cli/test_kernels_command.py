"""`tscompile kernels`: every registered kernel is listed, and every loser has its reason."""

from __future__ import annotations

from pathlib import Path

from checkpoints import TinyHf
from click.testing import CliRunner
from deployments import build, recipe

from tscompile.cli.kernels import kernels
from tskernels.registry import REGISTRY


def run(*words: str) -> str:
    done = CliRunner().invoke(kernels, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_every_kernel_is_listed_once_with_where_it_runs() -> None:
    lines = run("list").splitlines()
    assert [line.split()[0] for line in lines] == list(REGISTRY.names())
    (decode,) = [line for line in lines if line.startswith("attention.triton_decode ")]
    assert "PERFORMANT" in decode
    assert "cuda (sm_80, sm_89, sm_90, sm_100, sm_103, sm_120); decode only" in decode


def test_a_list_is_narrowed_by_operator_and_device() -> None:
    names = [
        line.split()[0]
        for line in run("list", "--op", "linear", "--device", "cuda").split("\n")
        if line
    ]
    assert names == ["linear.cublas", "linear.triton", "linear.triton_rows"]
    done = CliRunner().invoke(kernels, ["list", "--op", "liner"])
    assert done.exit_code == 2
    assert "there is no operator liner" in done.output


def test_pins_are_explained(tiny_hf: TinyHf, tmp_path: Path) -> None:
    artifact = build(tmp_path, recipe(tiny_hf("llama")))
    lines = run("explain", str(artifact), "--op", "add_rms_norm").splitlines()
    assert lines[0].startswith("decode add_rms_norm(float32[1,")
    assert lines[1] == "    add_rms_norm.native: PERFORMANT, priority 8"
    assert "    not add_rms_norm.triton: runs on cuda, not cpu" in lines
