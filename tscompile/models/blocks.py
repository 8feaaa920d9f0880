"""Block-scaled weights: whether the ranks' cuts fall between blocks, and that none run yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from tscompile.ir.errors import ShardSizeError, UnsupportedQuantizationError
from tscompile.ir.mesh import ATTN_TP, DENSE_TP, MOE_TP, ParallelSizes, divisors
from tscompile.models.annotations import (
    CausalLM,
    Shard,
    WeightAnnotation,
    checkpoint_names,
    placements_of,
    stacks_of,
)


def check_blocks(model: CausalLM, sizes: ParallelSizes) -> None:
    """Refuse a model of block-scaled weights; first of all where a rank's part would cut a block.

    `model` is on meta: its shapes and annotations are all that is looked at. Raises
    ShardSizeError, or else UnsupportedQuantizationError.
    """
    blocks = model.config.weight_blocks
    if blocks is None:
        return
    ranks = {ATTN_TP: sizes.attn_tp, DENSE_TP: sizes.dense_tp, MOE_TP: sizes.moe_tp}
    for name, group, size, dim in _cuts(model):
        block, count = blocks[dim], ranks[group]
        if size % count or size // count % block:
            what = ("rows", "columns")[dim]
            legal = [n for n in divisors(size) if size // n % block == 0]
            key = group.lower()
            raise ShardSizeError(
                f"{key} = {count} cuts the {size} {what} of {name} into parts that are no "
                f"multiple of its {block}-wide quantization blocks",
                remedy=f"sizes of {key} that keep its blocks whole: {', '.join(map(str, legal))}",
                where=f"parallel.{key}",
            )
    raise UnsupportedQuantizationError(
        f"weights scaled in blocks of {blocks[0]} x {blocks[1]} are not supported yet",
        remedy="use a checkpoint in bfloat16, whose config has no quantization_config",
        where="quantization_config",
    )


def _cuts(model: CausalLM) -> Iterator[tuple[str, str, int, int]]:
    """Name, group, size and dim (of one tensor) of every cut through a block-scaled weight.

    Those are all matrices but the embedding and the head, whose vocabulary may be padded.
    """
    assert isinstance(model, nn.Module)
    names = checkpoint_names(model)
    for _, module in model.named_modules():
        stacks = stacks_of(module)
        for attribute, tensor in module.named_parameters(recurse=False):
            stacked = attribute in stacks
            for shard in _shards(placements_of(module).get(attribute)):
                dim = shard.dim - stacked
                if tensor.dim() - stacked == 2 and dim >= 0 and not shard.padded:
                    yield names[id(tensor)], shard.group, tensor.shape[shard.dim], dim


def _shards(annotation: WeightAnnotation | None) -> Iterable[Shard]:
    parts = annotation if isinstance(annotation, tuple) else (annotation,)
    return [part for part in parts if isinstance(part, Shard)]
