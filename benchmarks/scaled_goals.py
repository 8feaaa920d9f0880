"""Goals for another dense model on one GPU: `python -m benchmarks.scaled_goals recipes/X.yaml`.

Those of Qwen3-8B, decoding scaled by the bytes of weights and KV cache that a step reads, prefill
by its arithmetic. Start and gap do not depend on the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tscompile.deployment import requested
from tscompile.ir.request import CompileRequest
from tscompile.recipe import load

_BASE: Final = Path(__file__).parents[1] / "recipes" / "qwen3-8b.yaml"

DECODE: Final = ((1, 1024, 3.9), (8, 1024, 4.4), (32, 1024, 5.4), (64, 1024, 6.7), (64, 8192, 21.9))
"""Sequences, context, and Qwen3-8B's milliseconds a step in bfloat16."""

PREFILL: Final = ((1024, 30.0), (8192, 219.0))
"""Tokens of one prompt, and Qwen3-8B's milliseconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a dense model reads and computes: bytes of its matrices and of a token's KV cache.

    `layer_weights` and `head_weights` count numbers in matrices; `score_width` is heads times their
    width, over all layers.
    """

    layer_weights: int
    head_weights: int
    score_width: int
    weight_bytes: int
    token_bytes: int

    @classmethod
    def of(cls, request: CompileRequest) -> Work:
        """By the sizes of the model alone; the embedding is read a row at a time."""
        model, width = request.model, request.dtype.itemsize
        queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        attention = model.hidden * (queries + 2 * keys) + queries * model.hidden
        layers = model.layers * (attention + 3 * model.hidden * model.intermediate)
        head = model.vocab_size * model.hidden
        token = 2 * model.layers * keys * request.kv.dtype.itemsize
        return cls(layers, head, model.layers * queries, (layers + head) * width, token)

    def read(self, sequences: int, context: int) -> int:
        """Bytes that a decode step reads."""
        return self.weight_bytes + sequences * context * self.token_bytes

    def operations(self, tokens: int) -> int:
        """Of a prompt's prefill: two for each weight and token, scores and values causal."""
        return 2 * (tokens * self.layer_weights + self.head_weights + tokens**2 * self.score_width)


def rows(work: Work, base: Work) -> Iterator[str]:
    """The goals as a table, and what each is scaled by."""
    yield "| | reads or computes | of Qwen3-8B's | goal, ms |"
    yield "|---|---|---|---|"
    for sequences, context, goal in DECODE:
        size = work.read(sequences, context)
        ratio = size / base.read(sequences, context)
        name = f"{context // 1024}k context, batch {sequences}"
        yield f"| {name} | {size / 1e9:.2f} GB | {ratio:.3f} | {goal * ratio:.2f} |"
    for tokens, goal in PREFILL:
        size = work.operations(tokens)
        ratio = size / base.operations(tokens)
        name = f"prefill of {tokens:,} tokens"
        yield f"| {name} | {size / 1e12:.1f} TFLOP | {ratio:.3f} | {goal * ratio:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", type=Path)
    options = parser.parse_args()
    work, base = (Work.of(requested(load(path))) for path in (options.recipe, _BASE))
    print("\n".join(rows(work, base)))


if __name__ == "__main__":
    main()
