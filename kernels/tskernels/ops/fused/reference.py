"""References of the fused ops: each is the composition of the ops that it stands for."""

from __future__ import annotations

from torch import Tensor

from tskernels.ops.attention.reference import kv_write
from tskernels.ops.elementwise.reference import add, silu_mul
from tskernels.ops.linear.reference import linear, scaled_linear
from tskernels.ops.norm.reference import rms_norm
from tskernels.ops.rotary.reference import rotary


def add_rms_norm(a: Tensor, b: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of a and b [T, H], and its `rms_norm` by weight [H]."""
    total = add(a, b)
    return total, rms_norm(total, weight, eps=eps)


def linear_silu_mul(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """silu(gate) * up of x [T, K] by packed weight [2F, K], gate's rows first, to [T, F].

    `bias` [2F] is packed alike.
    """
    gate, up = linear(x, weight, bias).chunk(2, dim=1)
    return silu_mul(gate, up)


def scaled_linear_silu_mul(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    block: tuple[int, ...],
) -> Tensor:
    """silu(gate) * up of x [T, K] by `scaled_linear`, gate's rows first, to [T, F].

    weight [2F, K], scale and bias [2F] are packed: gate's rows are whole blocks.
    """
    gate, up = scaled_linear(x, weight, scale, bias, block=block).chunk(2, dim=1)
    return silu_mul(gate, up)


def rope_kv_write(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    cache: Tensor,
    slot_mapping: Tensor,
    *,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    """`rotary` of query [T, hq, D] and key [T, h, D] by table [T, Dr], then `kv_write`.

    The rotated query, and `cache` [pages, 2, h, page_size, D], which is mutated.
    """
    turned = rotary(key, table, interleaved=interleaved)
    written = kv_write(turned, value, cache, slot_mapping)
    return rotary(query, table, interleaved=interleaved), written


def qk_norm_rope_kv_write(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    table: Tensor,
    cache: Tensor,
    slot_mapping: Tensor,
    *,
    eps: float,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    """`rope_kv_write` after `rms_norm` of each head of query and key by weights [D]."""
    query = rms_norm(query, query_weight, eps=eps)
    key = rms_norm(key, key_weight, eps=eps)
    return rope_kv_write(query, key, value, table, cache, slot_mapping, interleaved=interleaved)
