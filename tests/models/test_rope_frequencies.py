from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tscompile.ir.errors import ModelConfigError
from tscompile.models.rope import inverse_frequencies, read_rope

LLAMA_31: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama-3.1": LLAMA_31,
    "yarn": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096},
    "yarn-tuned": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.25,
    },
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_frequencies_are_transformers_own(name: str, theta: float) -> None:
    parameters = {**SCALINGS[name], "rope_theta": theta}
    config = cast("Any", transformers).LlamaConfig(
        head_dim=128, max_position_embeddings=131072, rope_parameters=dict(parameters)
    )
    functions = cast("Any", ROPE_INIT_FUNCTIONS)
    expected, scale = functions[parameters["rope_type"]](config, device="cpu")
    rope = read_rope({"rope_parameters": parameters, "max_position_embeddings": 131072})
    ours = torch.tensor(inverse_frequencies(rope, 128))
    torch.testing.assert_close(ours, expected, rtol=3e-7, atol=0)
    assert rope.table_scale == pytest.approx(scale)


def test_plain_frequencies_are_the_papers_formula() -> None:
    """theta ** (-2i / d), RoFormer (arXiv 2104.09864), section 3.2.2."""
    ours = inverse_frequencies(read_rope({"rope_theta": 10000.0}), 64)
    assert ours == pytest.approx([10000.0 ** (-2 * i / 64) for i in range(32)], rel=3e-7)


def test_published_configs_and_transformers_5_configs_read_alike() -> None:
    old = {"rope_theta": 500000.0, "rope_scaling": LLAMA_31, "max_position_embeddings": 131072}
    new = {
        "rope_parameters": {"rope_theta": 500000.0, **LLAMA_31},
        "max_position_embeddings": 131072,
    }
    assert read_rope(old) == read_rope(new)
    legacy = {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_rope(legacy).kind == "linear"
    assert read_rope({"rope_theta": 1e4, "rope_scaling": None}).kind == "default"


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su"])
def test_other_scalings_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        read_rope({"rope_theta": 1e4, "rope_scaling": {"rope_type": kind, "factor": 2.0}})
    assert repr(kind) in refusal.value.message
    assert "llama3" in refusal.value.remedy
    assert refusal.value.where == "rope_scaling.rope_type"


def test_a_missing_parameter_is_named() -> None:
    scaling = {k: v for k, v in LLAMA_31.items() if k != "high_freq_factor"}
    with pytest.raises(ModelConfigError, match="high_freq_factor"):
        read_rope({"rope_scaling": scaling, "max_position_embeddings": 8192})
