"""What all families' configurations share: sizes, and how they are read from `config.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config.moe import MoeConfig
from tscompile.models.rope import RopeScaling


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and options of a decoder; families with more of them have a subclass.

    `window` is the sliding window in tokens that every layer uses, or 0. `qkv_bias`, `o_bias` and
    `mlp_bias` say which linears have biases; `qk_norm` normalises each query and key head; `moe` is
    the mixture of experts that some layers have, or None. A quantized checkpoint's matrices are
    scaled in `weight_blocks` of so many rows and columns, but for the head and the `unquantized`
    modules, which are named from the root or by the end of their paths. Behind its last layer lie
    `draft_layers` that only guess further tokens; they are left out.
    """

    architecture: str
    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    max_positions: int
    rope: RopeScaling
    tied_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int = 0
    moe: MoeConfig | None = None
    weight_blocks: tuple[int, int] | None = None
    unquantized: frozenset[str] = frozenset()
    draft_layers: int = 0

    @property
    def drafts(self) -> range:
        """Numbers of the layers that are left out."""
        return range(self.layers, self.layers + self.draft_layers)


def read_size(config: Mapping[str, object], key: str, default: int | None = None) -> int:
    """A positive integer, or `default` where `key` is absent; ModelConfigError otherwise."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelConfigError(
            f"{key} = {value!r} is no positive integer",
            remedy=f"give {key} in the model's config",
            where=key,
        )
    return value


def read_norm_eps(config: Mapping[str, object]) -> float:
    """The epsilon of RMS norms; ModelConfigError where it is no positive number."""
    value = config.get("rms_norm_eps", 1e-6)
    if not isinstance(value, float) or value <= 0:
        raise ModelConfigError(
            f"rms_norm_eps = {value!r} is no positive number",
            remedy="give rms_norm_eps in the model's config",
            where="rms_norm_eps",
        )
    return value


def read_weight_blocks(config: Mapping[str, object]) -> tuple[int, int] | None:
    """Blocks of a checkpoint in block-scaled e4m3; ModelConfigError for other quantizations."""
    quantization = cast("Mapping[str, object] | None", config.get("quantization_config"))
    if quantization is None:
        return None
    method, blocks = quantization.get("quant_method"), quantization.get("weight_block_size")
    for key, known in (("fmt", "e4m3"), ("activation_scheme", "dynamic")):
        if quantization.get(key, known) != known:
            raise ModelConfigError(
                f"{key} = {quantization[key]!r} is not supported",
                remedy=f"use a checkpoint whose {key} is {known!r}",
                where=f"quantization_config.{key}",
            )
    match method, blocks:
        case "fp8", [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
        case _:
            raise ModelConfigError(
                f"quantization_config asks for {method}, which is not supported",
                remedy="use the model's unquantized checkpoint",
                where="quantization_config",
            )


def read_unquantized(config: Mapping[str, object]) -> frozenset[str]:
    """Modules that a quantized checkpoint keeps as they were, by name; ModelConfigError if odd."""
    quantization = cast("Mapping[str, object]", config.get("quantization_config") or {})
    value = quantization.get("modules_to_not_convert") or ()
    names = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(name, str) and name for name in names):
        raise ModelConfigError(
            f"modules_to_not_convert = {value!r} is no list of names",
            remedy="use the config.json that the checkpoint was saved with",
            where="quantization_config.modules_to_not_convert",
        )
    return frozenset(map(str, names))


def refuse_unsupported(config: Mapping[str, object], *, layer_types: frozenset[str]) -> None:
    """Options that would change the result and that no module here implements."""
    only: Mapping[str, tuple[object, ...]] = {
        "hidden_act": ("silu", "swish"),
        "pruned_heads": ({}, []),
        "pretraining_tp": (1, 0),
        "layer_types": (),
        "add_cross_attention": (False,),
        "is_encoder_decoder": (False,),
    }
    for key, allowed in only.items():
        value = config.get(key)
        if value is None or value in allowed:
            continue
        if key == "layer_types" and set(cast("list[str]", value)) <= layer_types:
            continue
        shown = ", ".join(repr(a) for a in allowed) or "none"
        raise ModelConfigError(
            f"{key} = {value!r} is not supported",
            remedy=f"use a checkpoint with another {key}; supported values: {shown}",
            where=key,
        )
