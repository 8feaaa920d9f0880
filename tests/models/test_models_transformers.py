from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import run_whole, worst_position
from checkpoints import FAMILIES, Family, TinyHf, load_reference, redraw, save_tiny_hf
from their_tensors import their_tensors
from torch import Tensor

from tscompile.models import CausalLM, build
from tscompile.models.config import from_hf

LIMIT = 1e-4

VARIANTS: dict[str, tuple[Family, dict[str, Any]]] = {
    "linear-rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "yarn-rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "biases": ("llama3", {"attention_bias": True, "mlp_bias": True}),
    "untied-qwen2": ("qwen2", {"tie_word_embeddings": False}),
    "biased-qwen3": ("qwen3", {"attention_bias": True}),
    "no-window": ("mistral", {"sliding_window": None}),
    "one-kv-head": ("llama", {"num_key_value_heads": 1, "head_dim": 32}),
    "moe-weights-not-normalized": ("qwen3_moe", {"norm_topk_prob": False}),
    "moe-every-second-layer": ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": []}),
    "moe-everywhere": ("qwen3_moe", {"mlp_only_layers": [], "num_experts_per_tok": 1}),
}


def prompt(length: int, seed: int = 0, vocab_size: int = 384) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(t) for t in torch.randint(vocab_size, (length,), generator=generator)]


def load(directory: Path, reference: Any) -> CausalLM:
    """Our eager module of a saved checkpoint's config, with transformers' tensors."""
    model = build(from_hf(json.loads((directory / "config.json").read_text())))
    assert isinstance(model, torch.nn.Module)
    state = {**reference.state_dict(), **their_tensors(reference)}
    left = model.load_state_dict({n: t for n, t in state.items() if "gate_up_proj" not in n})
    assert str(left) == "<All keys matched successfully>"
    return model.eval()


def reference_logits(reference: Any, tokens: list[int]) -> Tensor:
    with torch.no_grad():
        return reference(torch.tensor([tokens])).logits[0]


def check(directory: Path) -> None:
    reference = load_reference(directory)
    model = load(directory, reference)
    for length, seed in ((1, 0), (40, 1), (300, 2)):
        tokens = prompt(length, seed)
        ours = run_whole(model, tokens, torch.float32)
        assert worst_position(ours, reference_logits(reference, tokens)) < LIMIT


@pytest.mark.parametrize("family", FAMILIES)
def test_every_position_agrees_with_transformers(family: Family, tiny_hf: TinyHf) -> None:
    check(tiny_hf(family))


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_agree_with_transformers(variant: str, tmp_path: Path) -> None:
    family, changes = VARIANTS[variant]
    check(save_tiny_hf(family, tmp_path, **changes))


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_matters(family: Family, tiny_hf: TinyHf) -> None:
    """Perturbing any one tensor moves the logits by over 100 times the limit, here and there."""
    directory = tiny_hf(family)
    reference = load_reference(directory)
    model = load(directory, reference)
    assert isinstance(model, torch.nn.Module)
    tokens = prompt(40, 3)
    before = run_whole(model, tokens, torch.float32)
    theirs = their_tensors(reference)
    for name, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        generator = torch.Generator().manual_seed(1)
        noise = torch.randn(kept.shape, generator=generator) * kept.std()
        with torch.no_grad():
            parameter += noise
            theirs[name] += noise
        after = run_whole(model, tokens, torch.float32)
        assert worst_position(after, before) > 100 * LIMIT, name
        assert worst_position(after, reference_logits(reference, tokens)) < LIMIT, name
        with torch.no_grad():
            parameter.copy_(kept)
            theirs[name].copy_(kept)


def test_a_module_cast_to_bfloat16_keeps_its_frequencies() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 96,
        "intermediate_size": 144,
        "num_attention_heads": 12,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "vocab_size": 384,
    }
    model = build(from_hf(config))
    assert isinstance(model, torch.nn.Module)
    redraw(model)
    tokens = prompt(200)
    exact = run_whole(model, tokens, torch.float32)
    half = model.to(torch.bfloat16)
    (frequencies,) = [b for n, b in half.named_buffers() if n.endswith("inv_freq")]
    assert frequencies.dtype == torch.float32
    error = worst_position(run_whole(half, tokens, torch.bfloat16).float(), exact)
    assert 1e-4 < error < 0.1  # bfloat16 has 8 bits


def test_parameters_are_named_as_in_checkpoints(tiny_hf: TinyHf) -> None:
    with torch.device("meta"):
        model = build(from_hf(json.loads((tiny_hf("qwen3") / "config.json").read_text())))
    assert isinstance(model, torch.nn.Module)
    names = {name for name, _ in model.named_parameters()}
    assert names == set(load_reference(tiny_hf("qwen3")).state_dict())
    assert all(p.device.type == "meta" for p in model.parameters())
