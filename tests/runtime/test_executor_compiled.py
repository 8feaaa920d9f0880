"""Compiled plans on one and on three ranks against the module they were compiled from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from batches import run_whole, worst_position
from ranks_in_threads import TIMEOUT, on_ranks
from tiny_rows import Rows
from torch import Tensor, nn
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.models import CausalLM, build
from tscompile.models.config import ModelConfig, from_hf
from tscompile.passes.pipeline import compile_plan
from tskernels.platform import cpu_arch
from tskernels.schema import DType
from tsruntime.artifact.dummy import generate
from tsruntime.artifact.schema import Plan, Target
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor.collectives import connect_mesh
from tsruntime.executor.executor import Executor

SEED = 3
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}
PROMPTS = [[7 * i % 96 for i in range(1, n + 1)] for n in (19, 1, 11, 30)]


def compiled(config: ModelConfig, dtype: DType, world: int) -> Plan:
    request = CompileRequest(
        name="tiny",
        model=config,
        dtype=dtype,
        target=Target("cpu", cpu_arch(), "cpu-gloo"),
        parallel=ParallelSizes(world, world, world),
        buckets=Buckets(decode=(1, 4), extend=((8, 4), (32, 4)), all_logits=()),
        kv=KvCacheRequest(page_size=4, dtype=dtype, pages=129),
        limits=LimitsRequest(max_model_len=128, max_batch=4, token_budget=32),
        dummy_seed=SEED,
        dump_dir=None,
    )
    return compile_plan(request).plan


def eager(config: ModelConfig, dtype: DType) -> CausalLM:
    """The unsharded module with the same generated weights."""
    with torch.device("meta"):
        model = build(config)
    assert isinstance(model, nn.Module)
    model.to(dtype.torch)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tied_embeddings else {}
    state: dict[str, Tensor] = {
        name: generate(SEED, tied.get(name, name), tuple(parameter.shape), dtype.torch)
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    model.load_state_dict(state, assign=True)
    return model


def serve(plan: Plan, rank: int, store: Store) -> dict[tuple[int, int], Tensor]:
    """Logits by (prompt, position) of steps that mix chunks of all prompts with decodes."""
    weights = WeightStore(Path("unused"), plan, rank)
    executor = Executor(plan, rank, weights, connect_mesh(plan, rank, store, TIMEOUT))
    executor.arena.fill_(0xFF)
    executor.pools.group(plan.kv_cache.groups[0].name).fill_(torch.nan)
    rows, done, got = Rows(plan), [0] * len(PROMPTS), dict[tuple[int, int], Tensor]()
    for sizes in ((5, 1, 2, 0), (13, 0, 7, 12), (0, 0, 1, 1), (1, 0, 0, 1), (0, 0, 1, 16)):
        chunks = [
            (slot, done[slot], PROMPTS[slot][done[slot] : done[slot] + size])
            for slot, size in enumerate(sizes)
            if size
        ]
        logits = executor.forward(rows.batch(chunks)).clone()
        for row, (slot, start, tokens) in enumerate(chunks):
            done[slot] = start + len(tokens)
            got[slot, done[slot] - 1] = logits[row]
    assert done == [len(prompt) for prompt in PROMPTS]
    return got


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(
    ("architecture", "dtype", "limit"),
    [(LLAMA, DType.FLOAT64, 1e-9), (QWEN2, DType.FLOAT64, 1e-9), (LLAMA, DType.FLOAT32, 1e-4)],
    ids=["llama f64", "qwen2 f64", "llama f32"],
)
def test_a_compiled_plan_computes_what_its_module_computes(
    architecture: dict[str, object], dtype: DType, limit: float, world: int
) -> None:
    config = from_hf(architecture)
    plan, model = compiled(config, dtype, world), eager(config, dtype)
    expected = [run_whole(model, prompt, dtype.torch) for prompt in PROMPTS]
    for got in on_ranks(world, lambda rank, store: serve(plan, rank, store)):
        assert len(got) == 12
        for (slot, position), logits in got.items():
            assert worst_position(logits[None], expected[slot][position][None]) < limit
