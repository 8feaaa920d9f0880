"""Weights in block-scaled e4m3 on the GPU: the bits of dummy ones, and a checkpoint's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TinyHf
from deployments import EngineClient, build, greedy, recipe, start
from fp8_checkpoints import save_quantized

from tsruntime.artifact.dummy import generate

pytestmark = pytest.mark.gpu

CUDA = {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"}
PROMPTS = [[5, 9, 200, 3], [7] * 33, [i * 31 % 384 for i in range(70)], [1]]


def answers(folder: Path, source: Path, target: dict[str, str]) -> list[list[int]]:
    folder.mkdir()
    contents: dict[str, Any] = recipe(source, dtype="float32", target=target)
    contents["kv_cache"] = {"page_size": 16, "pages": 65}
    contents["buckets"] = {"decode": [1, 4], "extend": [[64, 4]]}
    with start(build(folder, contents)) as workers:
        return [a.tokens for a in EngineClient(workers).generate(PROMPTS, greedy(24))]


def test_float32_gives_the_text_of_the_cpu(tiny_hf: TinyHf, tmp_path: Path) -> None:
    source = tmp_path / "fp8"
    save_quantized(tiny_hf("qwen3"), source, tmp_path / "wide", (16, 16))
    there = answers(tmp_path / "cuda", source, CUDA)
    assert there == answers(tmp_path / "cpu", source, {"device": "cpu"})


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("a.weight", torch.float8_e4m3fn), ("a.weight_scale_inv", torch.float32)],
)
def test_dummy_weights_have_the_same_bits_as_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    here = generate(3, name, (700, 1300), dtype, start=5)
    there = generate(3, name, (700, 1300), dtype, start=5, device="cuda").cpu()
    assert torch.equal(here.view(torch.uint8), there.view(torch.uint8))
