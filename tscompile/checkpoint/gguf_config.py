"""The Hugging Face config and tensor names that a GGUF file's metadata stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from tscompile.checkpoint.gguf_file import GgufFile, Metadata
from tscompile.errors import CheckpointDamagedError, CheckpointUnsupportedError


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp's converter stores an architecture.

    `permuted`: rows of q and k are interleaved for ggml's own RoPE.
    """

    hf_class: str
    model_type: str
    permuted: bool


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": Architecture("LlamaForCausalLM", "llama", permuted=True),
    "qwen2": Architecture("Qwen2ForCausalLM", "qwen2", permuted=False),
    "qwen3": Architecture("Qwen3ForCausalLM", "qwen3", permuted=False),
}

_TOP: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME: Final = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; one that is not known keeps its own."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, part, kind = match.groups()
    module = (_TOP if layer is None else _LAYER).get(part)
    if module is None:
        return name
    return f"{module}.{kind}" if layer is None else f"model.layers.{layer}.{module}.{kind}"


def architecture(file: GgufFile) -> Architecture:
    """The file's architecture; one that is not known is refused by name."""
    name = file.metadata.get("general.architecture")
    known = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if known is None:
        _unsupported(file, f"the architecture {name!r}", ", ".join(ARCHITECTURES))
    return known


def synthesise_config(file: GgufFile) -> dict[str, object]:
    """config.json in Hugging Face form, from the metadata and the tensors' shapes."""
    keys = _Keys(file)
    known = architecture(file)
    heads = keys.whole("attention.head_count")
    hidden = keys.whole("embedding_length")
    head_dim = keys.whole("attention.key_length", hidden // heads)
    rotary = keys.whole("rope.dimension_count", head_dim)
    if rotary != head_dim:
        _unsupported(file, f"RoPE over {rotary} of {head_dim} dims of a head", "the whole head")
    if "rope_freqs.weight" in file.tensors:
        _unsupported(
            file, "RoPE frequency factors (rope_freqs.weight, as in Llama 3.1)", "plain RoPE"
        )
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointDamagedError(
            "there is no token_embd.weight",
            remedy="fetch the file again",
            where=str(file.path),
        )
    return {
        "architectures": [known.hf_class],
        "model_type": known.model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": keys.whole("feed_forward_length"),
        "num_hidden_layers": keys.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(file, keys),
        "max_position_embeddings": keys.whole("context_length"),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }


def _rope_scaling(file: GgufFile, keys: _Keys) -> dict[str, object] | None:
    kind = keys.text("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        _unsupported(file, f"RoPE scaling {kind!r}", "none, linear, yarn")
    scaling: dict[str, object] = {
        "rope_type": kind,
        "factor": keys.number("rope.scaling.factor"),
    }
    if kind == "yarn":
        original = keys.whole("rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = original
    return scaling


class _Keys:
    """Metadata under the architecture's prefix, with the expected type."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._prefix = str(file.metadata["general.architecture"])

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if type(value) is not int or value <= 0:
            self._refuse(key, value, "a positive whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float):
            self._refuse(key, value, "a number")
        return float(value)  # pyright: ignore[reportArgumentType]

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            self._refuse(key, value, "text")
        return value

    def _get(self, key: str, default: Metadata | None) -> Metadata | None:
        return self._file.metadata.get(f"{self._prefix}.{key}", default)

    def _refuse(self, key: str, value: object, kind: str) -> NoReturn:
        found = "missing" if value is None else repr(value)[:60]
        raise CheckpointDamagedError(
            f"the metadata key {self._prefix}.{key} is {found}, {kind} is needed",
            remedy="convert the model again with a current llama.cpp",
            where=str(self._file.path),
        )


def _unsupported(file: GgufFile, what: str, known: str) -> NoReturn:
    raise CheckpointUnsupportedError(
        f"{what} in a GGUF file is not supported (known: {known})",
        remedy="use the model's checkpoint in Hugging Face layout",
        where=str(file.path),
    )
