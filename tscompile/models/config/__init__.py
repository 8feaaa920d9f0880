"""Model configurations: read from a Hugging Face `config.json`, checked, frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config.base import ModelConfig
from tscompile.models.config.deepseek import read_deepseek
from tscompile.models.config.gpt_oss import read_gpt_oss
from tscompile.models.config.llama import read_llama
from tscompile.models.config.qwen3_moe import read_qwen3_moe

__all__ = ["ARCHITECTURES", "ModelConfig", "from_hf"]

_READERS: Mapping[str, Callable[[Mapping[str, object], str], ModelConfig]] = MappingProxyType(
    {
        "DeepseekV3ForCausalLM": read_deepseek,
        "GptOssForCausalLM": read_gpt_oss,
        "LlamaForCausalLM": read_llama,
        "MistralForCausalLM": read_llama,
        "Qwen2ForCausalLM": read_llama,
        "Qwen3ForCausalLM": read_llama,
        "Qwen3MoeForCausalLM": read_qwen3_moe,
    }
)

ARCHITECTURES = tuple(_READERS)
"""The values of `architectures` that there is a reader and a module for."""


def from_hf(config: Mapping[str, object]) -> ModelConfig:
    """The configuration that `config.json` describes, by its `architectures` entry.

    Raises ModelConfigError naming the key for an unknown architecture, a missing or malformed
    size, or an option that this compiler does not support.
    """
    architecture = _architecture(config)
    return _READERS[architecture](config, architecture)


def _architecture(config: Mapping[str, object]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(cast("list[object]", names)) != 1:
        raise ModelConfigError(
            f"architectures is {names!r}, not a list of one name",
            remedy=f'set "architectures" to one of {", ".join(ARCHITECTURES)}',
            where="architectures",
        )
    name = str(cast("list[object]", names)[0])
    if name not in ARCHITECTURES:
        raise ModelConfigError(
            f"the architecture {name} is not supported",
            remedy=f"supported architectures: {', '.join(ARCHITECTURES)}",
            where="architectures",
        )
    return name
