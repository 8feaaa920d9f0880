"""Writes tiny random GGUF files as llama.cpp's converter does, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import gguf
import torch
import transformers
from checkpoints import CHAT_TEMPLATE, VOCAB_SIZE, redraw, tiny_config, tiny_tokenizer

_hf = cast("Any", transformers)  # its signatures are partly untyped

GgufFamily: TypeAlias = Literal["llama", "qwen2", "qwen3"]

_GGUF_NAMES: Final[Mapping[str, str]] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor."""
    module, _, kind = name.rpartition(".")
    if module.startswith("model.layers."):
        _, _, layer, module = module.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[module]}.{kind}"
    return f"{_GGUF_NAMES[module]}.{kind}"


def permute(weights: Any, heads: int) -> Any:
    """Rows as llama.cpp's converter stores q and k of the llama architecture (numpy).

    convert_hf_to_gguf.py, LlamaModel.permute.
    """
    shape = weights.shape
    return (
        weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    )


def save_tiny_gguf(
    family: GgufFamily,
    path: Path,
    *,
    quantization: str = "F32",
    pre: str = "gpt-2",
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Mapping[str, torch.Tensor]:
    """Write a tiny random GGUF file as llama.cpp's converter does; returns the HF tensors.

    Matrices are stored as `quantization` (a GGMLQuantizationType name), vectors as F32. `metadata`
    and `tensors` add to the file, or replace what is in it.
    """
    config = tiny_config(family, **changes)
    model = _hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    redraw(model)
    state = {
        name: tensor
        for name, tensor in cast("dict[str, torch.Tensor]", model.state_dict()).items()
        if not (config.tie_word_embeddings and name == "lm_head.weight")
    }
    stored = {gguf_name(name): tensor.numpy() for name, tensor in state.items()}
    if family == "llama":
        for name, heads in (("attn_q", 12), ("attn_k", 6)):
            for layer in range(config.num_hidden_layers):
                key = f"blk.{layer}.{name}.weight"
                stored[key] = permute(stored[key], heads)
    write_gguf(
        path,
        _gguf_metadata(family, config, pre) | dict(metadata or {}),
        stored | dict(tensors or {}),
        quantization,
    )
    return state


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Any], quantization: str = "F32"
) -> None:
    """Write a GGUF file with the gguf package; None leaves a metadata key out."""
    writer = cast("Any", gguf).GGUFWriter(str(path), metadata["general.architecture"])
    for key, value in metadata.items():
        if key != "general.architecture" and value is not None:
            _add_gguf_value(writer, key, value)
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in tensors.items():
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        else:
            quantized = cast("Any", gguf.quants).quantize(tensor, kind)
            writer.add_tensor(name, quantized, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_gguf_value(writer: Any, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def _gguf_metadata(family: GgufFamily, config: Any, pre: str) -> dict[str, Any]:
    tokenizer = json.loads(tiny_tokenizer().to_str())
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [token for token, _ in vocabulary]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), VOCAB_SIZE)]
    merges = [" ".join(merge) for merge in tokenizer["model"]["merges"]]
    fields = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_parameters["rope_theta"],
    }
    if family == "qwen3":
        fields |= {"attention.key_length": 16, "attention.value_length": 16}
    return {
        "general.architecture": family,
        "general.name": "tiny",
        **{f"{family}.{key}": value for key, value in fields.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3]
        + [1] * (len(vocabulary) - 3)
        + [5] * (VOCAB_SIZE - len(vocabulary)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
