"""`tscompile tune`: what it measures, what it keeps, and where it refuses to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import TinyHf
from deployments import ROOT, command, recipe, write_recipe

from tscompile.deployment import compile_recipe
from tscompile.recipe import load
from tscompile.tune import compile_options, problems
from tskernels.capabilities import SHARED_BYTES
from tskernels.ops.linear import configs
from tskernels.ops.linear.configs import FewRows, OneRow, Product, candidates, few_rows
from tskernels.schema import DType
from tskernels.tuning.table import Entry, parse, text

CUDA = {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"}


@pytest.fixture
def path(tiny_hf: TinyHf, tmp_path: Path) -> Path:
    return write_recipe(tmp_path, recipe(tiny_hf("qwen3"), dtype="bfloat16", target=CUDA))


def test_products_and_attention_have_a_problem_each() -> None:
    found = problems(compile_recipe(load(ROOT / "recipes" / "qwen3-8b.yaml", ())).result.plan)
    kinds = [key.split()[0] for key in sorted(found)]
    assert set(kinds) == {"decode", "linear", "linear_silu_mul", "rows"}
    for key, problem in found.items():
        assert problem.key == key
        configs = [tuple(option.config.items()) for option in problem.options]
        assert len(set(configs)) == len(configs)


@pytest.mark.nightly
def test_candidates_are_compiled_once_and_kept(path: Path, tmp_path: Path) -> None:
    found = problems(compile_recipe(load(path, ())).result.plan)
    key = next(key for key in sorted(found) if key.startswith("rows"))
    one = replace(found[key], options=found[key].options[:1])
    ((_, first),) = compile_options([one], "sm_90", tmp_path / "kept")
    (file,) = (tmp_path / "kept").iterdir()
    written = file.stat().st_mtime_ns
    ((_, second),) = compile_options([one], "sm_90", tmp_path / "kept")
    assert first == second
    assert file.stat().st_mtime_ns == written


def test_a_machine_without_that_gpu_refuses(path: Path, tmp_path: Path) -> None:
    done = command("tscompile", "tune", path, "--cubins", tmp_path / "c", "--out", tmp_path / "t")
    assert done.returncode == 1
    assert "the recipe is for cuda sm_90, this machine has no GPU" in done.stderr
    assert not (tmp_path / "t").exists()


def test_a_table_reads_back_and_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    product = Product(7, 4096, 4096, DType.BFLOAT16, gated=False)
    chosen = {"block_n": 32, "block_k": 64, "splits": 3, "num_warps": 2, "stages": 2}
    entries = {product.key: Entry(chosen, 12.5), "another": Entry({"block_n": 1}, 3.0)}
    assert parse(text("a GPU", entries)) == entries
    assert few_rows(product, "sm_80") != FewRows(**chosen)

    def measured(arch: str) -> Mapping[str, Entry]:
        return entries if arch == "sm_80" else {}

    monkeypatch.setattr(configs, "table", measured)
    assert few_rows(product, "sm_80") == FewRows(**chosen)


@pytest.mark.parametrize("rows", [1, 8, 32, 64])
@pytest.mark.parametrize("gated", [False, True])
def test_candidates_fit_what_is_measured(rows: int, gated: bool) -> None:
    product = Product(rows, 4096, 4096, DType.BFLOAT16, gated)
    found = list(candidates(product))
    assert len(found) > 10
    assert all(isinstance(option, OneRow) == (rows == 1) for option in found)
    assert len(set(found)) == len(found)
    for option in found:
        if isinstance(option, FewRows):
            weights = option.block_n * option.block_k * 2 * (2 if gated else 1)
            assert weights * (option.stages - 1) < SHARED_BYTES["sm_90"]
