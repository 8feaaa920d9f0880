"""Small compile requests for tests of the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from checkpoints import Family, redraw, tiny_config

from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.models import CausalLM, ModelConfig, build
from tscompile.models.config import from_hf
from tskernels.schema import DType
from tsruntime.artifact.schema import Target

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "llama3": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek": "DeepseekV3ForCausalLM",
}


def tiny_model_config(family: Family, **changes: Any) -> ModelConfig:
    """Our configuration of a tiny model of `family`; `changes` override its HF fields."""
    hf = tiny_config(family, **changes).to_dict()
    return from_hf({**hf, "architectures": [ARCHITECTURES[family]]})


def random_model(config: ModelConfig, dtype: torch.dtype, seed: int = 0) -> CausalLM:
    """The eager module with every parameter redrawn."""
    model = build(config)
    assert isinstance(model, torch.nn.Module)
    redraw(model, seed)
    return model.to(dtype).eval()


def tiny_request(
    config: ModelConfig, sizes: int | ParallelSizes = 1, **changes: Any
) -> CompileRequest:
    """A request for float64 with small buckets; `changes` override its fields."""
    parallel = sizes if isinstance(sizes, ParallelSizes) else ParallelSizes(sizes, sizes, sizes)
    fields: dict[str, Any] = {
        "name": "tiny",
        "model": config,
        "dtype": DType.FLOAT64,
        "target": Target("cpu", "x86_64", "cpu-gloo"),
        "parallel": parallel,
        "buckets": Buckets((1, 4), ((32, 4),), ((64, 4),)),
        "kv": KvCacheRequest(8, DType.FLOAT64, pages=40),
        "limits": LimitsRequest(max_model_len=96, max_batch=4, token_budget=32),
    }
    return CompileRequest(**(fields | changes))


def smollm2_config() -> dict[str, object]:
    """The published config of SmolLM2-135M, the parts that matter."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    }


def smollm2_request(world: int, dump_dir: Path | None = None) -> CompileRequest:
    """SmolLM2-135M in float32 with eight buckets."""
    return CompileRequest(
        name="smollm2",
        model=from_hf(smollm2_config()),
        dtype=DType.FLOAT32,
        target=Target("cpu", "x86_64", "cpu-gloo"),
        parallel=ParallelSizes(world, world, world),
        buckets=Buckets((1, 2, 4, 8), ((64, 8), (128, 8), (256, 8), (512, 8))),
        kv=KvCacheRequest(16, DType.FLOAT32, pages=1025),
        limits=LimitsRequest(2048, 8, 512),
        dump_dir=dump_dir,
    )
