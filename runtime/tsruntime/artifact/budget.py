"""What a plan takes of a GPU's memory: held against the device at build, the GPU at load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tskernels.ops.sampling import words
from tsruntime.artifact.launches import Launches
from tsruntime.artifact.schema import CacheGroup, KvCache, Plan
from tsruntime.artifact.weights import weight_bytes

SPARE_BYTES: Final = 1 << 30
"""What the driver, the graphs and the libraries take beside what the plan counts."""

_PAST_SPARE: Final = 4096
"""Words of a past for biases and padding, beside one for each token that may be named."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes of one rank. `draws` is what is known of the slots' requests, `areas` what kernels
    share.
    """

    weights: int
    kv_cache: int
    arena: int
    draws: int
    areas: int

    @property
    def total(self) -> int:
        """All of it, with `SPARE_BYTES`."""
        return self.weights + self.kv_cache + self.arena + self.draws + self.areas + SPARE_BYTES

    def sums(self) -> str:
        """The total and its parts, in GB."""
        parts = {
            "weights": self.weights,
            "KV cache": self.kv_cache,
            "arena": self.arena,
            "state of draws": self.draws,
            "areas of launches": self.areas,
            "driver, graphs and libraries": SPARE_BYTES,
        }
        listed = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items())
        return f"{self.total / 1e9:.2f} GB ({listed})"


def budget(plan: Plan, launches: Launches) -> Budget:
    """What a rank that runs `plan` by `launches` takes."""
    return Budget(
        weights=weight_bytes(plan),
        kv_cache=pool_bytes(plan.kv_cache),
        arena=max(program.arena_bytes for program in plan.programs),
        draws=plan_draw_bytes(plan),
        areas=launches.scratch_bytes + launches.counter_bytes + launches.step_bytes,
    )


def pool_shape(kv: KvCache, group: CacheGroup) -> tuple[int, int, int, int, int, int]:
    """[layers, pages, planes, kv_heads, page_size, head_dim] of one rank; see `CacheGroup`."""
    layers, planes = len(group.layers), group.planes
    return (layers, kv.pages, planes, group.kv_heads, kv.page_size, group.head_dim)


def pool_bytes(kv: KvCache) -> int:
    """Bytes of every group's pool on one rank."""
    return sum(math.prod(pool_shape(kv, group)) * group.dtype.itemsize for group in kv.groups)


def draw_shapes(
    *, slots: int, longest: int, vocab_size: int, tokens: int, sequences: int
) -> dict[str, tuple[int, ...]]:
    """Tensors of 32-bit words that a device draws with (see `tsruntime.executor.drawing`).

    For requests of at most `longest` tokens in so many slots; `tokens` and `sequences` are the
    largest of any program.
    """
    past = words.PAST_HEADER + longest + vocab_size + _PAST_SPARE
    return {
        "tokens": (max(tokens, sequences),),
        "sampled": (slots,),
        "counts": (slots, vocab_size),
        "biases": (slots, vocab_size),
        "rows": (sequences, words.ROW_WORDS),
        "masks": (sequences, words.mask_words(vocab_size)),
        "past": (past,),
        "logprobs": (sequences * (1 + 2 * words.TOP_LOGPROBS),),
    }


def words_bytes(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Bytes of `draw_shapes`."""
    return sum(4 * math.prod(shape) for shape in shapes.values())


def plan_draw_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """`draw_shapes` of a plan's limits and programs."""
    return draw_shapes(
        slots=plan.limits.max_batch,
        longest=plan.limits.max_model_len,
        vocab_size=plan.vocab_size,
        tokens=max(program.tokens for program in plan.programs),
        sequences=max(program.sequences for program in plan.programs),
    )


def plan_draw_bytes(plan: Plan) -> int:
    """Bytes of the tensors that a device draws with."""
    return words_bytes(plan_draw_shapes(plan))
