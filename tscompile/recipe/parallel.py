"""The recipe's `parallel`: how many ranks, and the sizes of the groups they form."""

from __future__ import annotations

import itertools
from typing import Annotated

from .section import Count, Default, Section, Vllm


class Parallel(Section):
    """Group sizes. Every size divides `world`, and of any two one divides the other."""

    world: Annotated[Count, Vllm("--tensor-parallel-size * --data-parallel-size")] = 1
    """Number of ranks; a rank is a process with a device of its own."""

    attn_tp: Annotated[Count, Default("world"), Vllm("--tensor-parallel-size")]
    """Ranks that share the attention heads of a sequence; the rest are attention replicas."""

    dense_tp: Annotated[Count, Default("world"), Vllm("--tensor-parallel-size")]
    """Ranks that share each dense MLP."""

    moe_tp: Annotated[Count, Default("world / moe_ep"), Vllm("--tensor-parallel-size")]
    """Ranks that share each expert, innermost."""

    moe_ep: Annotated[
        Count, Default("world / moe_tp if that is given, else 1"), Vllm("--enable-expert-parallel")
    ]
    """Ranks over which the experts are distributed."""

    def sizes(self) -> dict[str, int]:
        """The sizes that must nest, by the key that names them (`moe_ep` for moe_tp * moe_ep)."""
        return {
            "attn_tp": self.attn_tp,
            "dense_tp": self.dense_tp,
            "moe_tp": self.moe_tp,
            "moe_ep": self.moe_tp * self.moe_ep,
        }


def divisors(number: int) -> tuple[int, ...]:
    """Every divisor of a positive `number`, ascending."""
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def nests(sizes: tuple[int, ...]) -> bool:
    """Whether of any two sizes one divides the other."""
    ordered = sorted(sizes)
    return all(large % small == 0 for small, large in itertools.pairwise(ordered))
