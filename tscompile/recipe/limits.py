"""The recipe's `limits`: what the server admits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from .section import Count, Default, Section, Vllm
from .target import Device

DEFAULT_MAX_BATCH: Final[Mapping[Device, int]] = {"cpu": 8, "cuda": 64}
DEFAULT_TOKEN_BUDGET: Final[Mapping[Device, int]] = {"cpu": 256, "cuda": 2048}
DEFAULT_STEPS_IN_FLIGHT: Final[Mapping[Device, int]] = {"cpu": 1, "cuda": 2}


class Limits(Section):
    """Bounds on a sequence, a batch and a step."""

    max_model_len: Annotated[Count, Vllm("--max-model-len")] = 2048
    """Longest sequence, prompt and answer together, in tokens."""

    max_batch: Annotated[Count, Default("8 on cpu, 64 on cuda"), Vllm("--max-num-seqs")]
    """Most sequences that run at once."""

    token_budget: Annotated[
        Count, Default("256 on cpu, 2048 on cuda"), Vllm("--max-num-batched-tokens")
    ]
    """Most tokens of one step: longer prompts are prefilled in chunks."""

    steps_in_flight: Annotated[
        Literal[1, 2], Default("1 on cpu, 2 on cuda"), Vllm("--async-scheduling")
    ]
    """With 2, a step is planned while the one before it runs; with 1, once its tokens are known."""
