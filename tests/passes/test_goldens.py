"""The text of a small plan after each pass, reviewed by eye when it changes.

Pins are those of float64, which the reference and torch kernels alone take, so that a new native
kernel changes no golden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from compile_requests import tiny_model_config, tiny_request

from tscompile.cost.topology import Topology, find_topology
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest
from tscompile.ir.verifier import Stage
from tscompile.passes import propagate_placements
from tscompile.passes.pipeline import compile_plan, compile_until
from tscompile.passes.plan_memory import page_bytes
from tscompile.search.layouts import layouts, weight_bytes


def _request() -> CompileRequest:
    """Three layers of Qwen2 (biases) on two ranks, one bucket of each phase, padded vocabulary."""
    config = tiny_model_config("qwen2", vocab_size=383, tie_word_embeddings=False)
    request = tiny_request(config, 2, buckets=Buckets((4,), ((32, 4),)))
    return replace(request, name="golden")


@pytest.mark.parametrize("stage", list(Stage))
def test_pass(stage: Stage, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    compile_plan(replace(_request(), dump_dir=tmp_path))
    name = f"{stage.number:02}-{stage.name.lower()}.plan"
    golden(name, (tmp_path / name).read_text())


def test_unequal_groups(golden: Callable[[str, str], None]) -> None:
    """Attention over four ranks, the MLP over two: each reduces over its own axes."""
    config = tiny_model_config("llama", num_attention_heads=12, num_key_value_heads=12)
    request = tiny_request(config, ParallelSizes(4, 4, 2), buckets=Buckets((4,), ((32, 4),)))
    golden("attn4-dense2.plan", compile_plan(request).text)


def test_the_embedding_is_reduced_in_the_first_norm(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no rank has room for the whole vocabulary. The last reduction is in the final norm."""
    request = _request()
    draft = compile_until(request, Stage.PLAN_BUCKETS)
    least = min(weight_bytes(draft, placed) for placed in layouts(draft))
    cache = compile_plan(request).plan.kv_cache
    capacity = least + page_bytes(cache) * cache.pages + 1000
    small = replace(find_topology("cpu-gloo"), capacity=capacity)

    def found(name: str) -> Topology:
        return small

    monkeypatch.setattr(propagate_placements, "find_topology", found)
    text = compile_plan(request).text
    golden("first-norm.plan", text[text.index("program decode_4 ") : text.index("program extend")])
