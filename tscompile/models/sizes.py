"""Which parallel sizes a model's heads, widths and experts allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tscompile.ir.errors import ShardSizeError
from tscompile.ir.mesh import ParallelSizes, divisors
from tscompile.models.annotations import CacheLayer, Shard
from tscompile.models.config import ModelConfig
from tscompile.models.config.deepseek import DeepseekConfig


@dataclass(frozen=True, slots=True)
class SizeProblem:
    """A key of the recipe's `parallel` that the model does not allow, why, and what it allows."""

    key: str
    message: str
    remedy: str


def check_sizes(config: ModelConfig, sizes: ParallelSizes) -> None:
    """Refuse the first size that does not divide what it cuts: ShardSizeError."""
    for problem in size_problems(config, sizes):
        raise ShardSizeError(
            problem.message, remedy=problem.remedy, where=f"parallel.{problem.key}"
        )


def size_problems(config: ModelConfig, sizes: ParallelSizes) -> tuple[SizeProblem, ...]:
    """Every size that does not divide what it cuts. No tensor is looked at."""
    found = [
        _heads(config, sizes.attn_tp),
        _dense(config, sizes.dense_tp),
    ]
    if config.moe is not None:
        experts, width = config.moe.experts, config.moe.width
        found.append(_divided("moe_ep", sizes.moe_ep, experts, "the number of experts,"))
        found.append(_divided("moe_tp", sizes.moe_tp, width, "an expert's intermediate size of"))
    return tuple(problem for problem in found if problem is not None)


def token_bytes(layers: Sequence[CacheLayer], attn_tp: int, itemsize: int) -> int:
    """Bytes that one rank keeps of each token, over all layers' caches."""
    return itemsize * sum(
        layer.planes * layer.head_dim * -(-layer.kv_heads // _ranks(layer, attn_tp))
        for layer in layers
    )


def _ranks(layer: CacheLayer, attn_tp: int) -> int:
    """Ranks that share a layer's heads; a head that is left alone goes to several of them."""
    return attn_tp if isinstance(layer.placement, Shard) else 1


def _heads(config: ModelConfig, ranks: int) -> SizeProblem | None:
    """Query heads divide; a KV head goes to one rank with others, or to several."""
    heads, kv_heads = config.heads, config.kv_heads
    legal = [n for n in divisors(heads) if kv_heads % n == 0 or n % kv_heads == 0]
    if ranks in legal:
        return None
    return _problem("attn_tp", ranks, f"{heads} attention heads and {kv_heads} KV heads", legal)


def _dense(config: ModelConfig, ranks: int) -> SizeProblem | None:
    """Widths divide: of dense layers if there are any, and of shared experts, cut as one."""
    moe = config.moe
    if moe is None or moe.dense_layers.intersection(range(config.layers)):
        problem = _divided("dense_tp", ranks, config.intermediate, "an intermediate size of")
        if problem is not None:
            return problem
    if moe is None or not isinstance(config, DeepseekConfig):
        return None
    width = config.shared_experts * moe.width
    return _divided("dense_tp", ranks, width, "the shared experts' width of") if width else None


def _divided(key: str, ranks: int, whole: int, what: str) -> SizeProblem | None:
    return None if whole % ranks == 0 else _problem(key, ranks, f"{what} {whole}", divisors(whole))


def _problem(key: str, ranks: int, what: str, legal: Sequence[int]) -> SizeProblem:
    return SizeProblem(
        key,
        f"{key} = {ranks} does not divide {what}",
        f"legal sizes of {key} for this model: {', '.join(map(str, legal))}",
    )
