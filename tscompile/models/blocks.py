"""Block-scaled weights: which modules have them, and whether ranks' cuts fall between blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from torch import nn

from tscompile.ir.errors import ShardSizeError, UnsupportedQuantizationError
from tscompile.ir.mesh import ATTN_KV, ATTN_TP, DENSE_TP, MOE_TP, ParallelSizes, divisors
from tscompile.models.annotations import (
    CausalLM,
    Shard,
    WeightAnnotation,
    checkpoint_names,
    placements_of,
    quantized_of,
    stacks_of,
)
from tscompile.models.config import ModelConfig
from tscompile.models.config.deepseek import DeepseekConfig
from tscompile.models.layers import Linear

_HEAD = "lm_head"


def quantize(model: nn.Module, config: ModelConfig) -> None:
    """Give the linears of a dense model the blocks of its config, but for those it leaves alone.

    The head is left alone always, as published checkpoints do.
    """
    if config.weight_blocks is None or not _supported(config):
        return
    for path, module in cast("Iterable[tuple[str, nn.Module]]", model.named_modules()):
        if isinstance(module, Linear) and not _kept(path, config.unquantized):
            module.quantize(config.weight_blocks)


def _supported(config: ModelConfig) -> bool:
    """Experts and latent attention take their weights unscaled."""
    return config.moe is None and not isinstance(config, DeepseekConfig)


def _kept(path: str, names: frozenset[str]) -> bool:
    """Whether the module at `path` is one of `names`, lies in one, or ends in one's name."""
    return path == _HEAD or any(
        f"{path}.".startswith(f"{name}.") or path.endswith(f".{name}") for name in names
    )


def check_blocks(model: CausalLM, sizes: ParallelSizes) -> None:
    """Refuse block-scaled weights of which a rank's part would cut a block, and those of experts.

    `model` is on meta: its shapes and annotations are all that is looked at. Raises
    ShardSizeError, or else UnsupportedQuantizationError.
    """
    blocks = model.config.weight_blocks
    if blocks is None:
        return
    kv_ranks = min(sizes.attn_tp, model.config.kv_heads)
    keys = {
        ATTN_TP: ("attn_tp", sizes.attn_tp),
        ATTN_KV: ("attn_tp", kv_ranks),
        DENSE_TP: ("dense_tp", sizes.dense_tp),
        MOE_TP: ("moe_tp", sizes.moe_tp),
    }
    for name, group, size, dim in _cuts(model):
        block, (key, count) = blocks[dim], keys[group]
        if count > 1 and (size % count or size // count % block):
            what = ("rows", "columns")[dim]
            legal = [n for n in divisors(size) if n == 1 or size // n % block == 0]
            raise ShardSizeError(
                f"{key} = {count} cuts the {size} {what} of {name} into parts that are no "
                f"multiple of its {block}-wide quantization blocks",
                remedy=f"sizes of {key} that keep its blocks whole: {', '.join(map(str, legal))}",
                where=f"parallel.{key}",
            )
    if not _supported(model.config):
        raise UnsupportedQuantizationError(
            f"weights of experts scaled in blocks of {blocks[0]} x {blocks[1]} are not supported "
            "yet",
            remedy="use a checkpoint in bfloat16, whose config has no quantization_config",
            where="quantization_config",
        )


def _cuts(model: CausalLM) -> Iterator[tuple[str, str, int, int]]:
    """Name, group, size and dim (of one tensor) of every cut through a block-scaled weight.

    Of a dense model those are the linears that `quantize` chose, of others all matrices but the
    embedding and the head, whose vocabulary may be padded.
    """
    assert isinstance(model, nn.Module)
    names, supported = checkpoint_names(model), _supported(model.config)
    for _, module in model.named_modules():
        stacks = stacks_of(module)
        for attribute, tensor in module.named_parameters(recurse=False):
            if supported and attribute not in quantized_of(module):
                continue
            stacked = attribute in stacks
            for shard in _shards(placements_of(module).get(attribute)):
                dim = shard.dim - stacked
                if tensor.dim() - stacked == 2 and dim >= 0 and not shard.padded:
                    yield names[id(tensor)], shard.group, tensor.shape[shard.dim], dim


def _shards(annotation: WeightAnnotation | None) -> Iterable[Shard]:
    parts = annotation if isinstance(annotation, tuple) else (annotation,)
    return [part for part in parts if isinstance(part, Shard)]
