"""Which parallel sizes a model's heads and widths allow."""

from __future__ import annotations

from math import gcd

from tscompile.ir.errors import ShardSizeError
from tscompile.ir.mesh import ParallelSizes, divisors
from tscompile.models.config import ModelConfig


def check_sizes(config: ModelConfig, sizes: ParallelSizes) -> None:
    """Refuse sizes that do not divide what they cut, naming the legal ones: ShardSizeError."""
    heads = f"{config.heads} attention heads and {config.kv_heads} KV heads"
    width = f"an intermediate size of {config.intermediate}"
    _check("attn_tp", sizes.attn_tp, gcd(config.heads, config.kv_heads), heads)
    _check("dense_tp", sizes.dense_tp, config.intermediate, width)
    if config.moe is not None:
        experts, one = config.moe.experts, config.moe.width
        _check("moe_ep", sizes.moe_ep, experts, f"{experts} experts")
        _check("moe_tp", sizes.moe_tp, one, f"an expert's intermediate size of {one}")


def _check(name: str, ranks: int, whole: int, what: str) -> None:
    if whole % ranks:
        legal = ", ".join(map(str, divisors(whole)))
        raise ShardSizeError(
            f"{name} = {ranks} does not divide {what}",
            remedy=f"legal sizes of {name} for this model: {legal}",
            where=f"parallel.{name}",
        )
