"""The exact search in the pipeline: real models, placed by it, still compute what they should."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, Family
from compile_requests import random_model, tiny_model_config, tiny_request
from interpreter import Interpreter
from passes.test_sharded_equivalence import serve, state

from tscompile.ir.mesh import ParallelSizes
from tscompile.passes import pipeline
from tscompile.search.drafts import place


def check(
    monkeypatch: pytest.MonkeyPatch,
    family: Family,
    sizes: int | ParallelSizes,
    changes: dict[str, Any],
) -> str:
    """Compile with the search in place of the forward choice, verify each pass, and interpret."""
    monkeypatch.setattr(pipeline, "propagate_placements", place)
    config = tiny_model_config(family, **changes)
    model = random_model(config, torch.float64)
    result = pipeline.compile_plan(tiny_request(config, sizes))
    serve(Interpreter(result.plan, state(model)), model)
    return result.text


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_on_two_ranks(monkeypatch: pytest.MonkeyPatch, family: Family) -> None:
    check(monkeypatch, family, 2, {})


@pytest.mark.parametrize(
    ("family", "sizes", "changes"),
    [
        ("llama", 1, {}),
        ("qwen3", 3, {"vocab_size": 302}),
        ("llama3", 2, {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", ParallelSizes(6, 6, 3), {}),
        ("llama", ParallelSizes(4, 4, 1), {"num_key_value_heads": 12}),
    ],
)
def test_options(
    monkeypatch: pytest.MonkeyPatch,
    family: Family,
    sizes: int | ParallelSizes,
    changes: dict[str, Any],
) -> None:
    check(monkeypatch, family, sizes, changes)


def test_the_last_reduction_of_a_prefill_carries_one_row_a_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = check(monkeypatch, "llama", 2, {})
    extend = text[text.index("program extend_32x4 ") :]
    tail = extend[extend.index("select_rows:") : extend.index("lm_head")]
    assert "Partial@a" in tail.splitlines()[0]
    assert "all_reduce" in tail
