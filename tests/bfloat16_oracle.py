"""The rule for greedy text in bfloat16: each token is nearly the oracle's likeliest one.

The oracle is transformers in float32, on weights rounded to bfloat16, fed our own text.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from checkpoints import Family, load_reference

LIMIT = 2e-2
"""Of the largest logit's magnitude: a few roundings of 2^-8 that do not cancel."""

DENSE: tuple[Family, ...] = ("llama", "llama3", "mistral", "qwen2", "qwen3")


def prompts() -> list[list[int]]:
    """Random tokens: a page and less, chunks of several steps, and a single one."""
    draw = random.Random(3)
    return [[draw.randrange(3, 300) for _ in range(n)] for n in (1, 5, 33, 100)]


def rounded_reference(source: Path) -> Any:
    """Transformers' model of a checkpoint, every weight as bfloat16 holds it."""
    model = load_reference(source)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model


def assert_nearly_likeliest(
    model: Any, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> None:
    """No token's logit is far below its place's largest, where few other tokens' are near it."""
    rivals: list[float] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        logits = _logits(model, prompt, answer)
        short = (logits.amax(1, keepdim=True) - logits) / logits.abs().amax(1, keepdim=True)
        worst = short.gather(1, torch.tensor(answer)[:, None]).max().item()
        assert worst <= LIMIT, f"{len(prompt)} tokens: {worst:.3g} below the largest"
        rivals.append((short <= LIMIT).sum(1).double().mean().item())
    assert max(rivals) < 2


def _logits(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        whole: torch.Tensor = model(torch.tensor([[*prompt, *answer]])).logits[0]
    return whole[len(prompt) - 1 : -1].double()
