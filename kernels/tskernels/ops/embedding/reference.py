"""Reference of the token embedding."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def embedding(ids: Tensor, weight: Tensor, *, vocab_start: int = 0) -> Tensor:
    """Rows of a vocabulary shard: ids [T], weight [V, H] to [T, H].

    The shard holds the ids vocab_start to vocab_start + V - 1; any other id gives a row of zeros,
    so that the sum over all shards is the whole embedding.
    """
    local = ids.long() - vocab_start
    inside = (local >= 0) & (local < weight.shape[0])
    rows = functional.embedding(local.where(inside, local.new_zeros(())), weight)
    return rows.masked_fill(~inside.unsqueeze(-1), 0.0)
