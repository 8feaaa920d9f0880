"""Tiny random checkpoints in bfloat16 answer greedily what transformers finds likeliest."""

from __future__ import annotations

from pathlib import Path

import pytest
from bfloat16_oracle import DENSE, assert_nearly_likeliest, prompts, rounded_reference
from checkpoints import Family, TinyHf
from deployments import EngineClient, build, greedy, recipe, start


@pytest.mark.parametrize("family", DENSE)
def test_every_token_is_nearly_the_likeliest(
    family: Family, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    source = tiny_hf(family)
    with start(build(tmp_path, recipe(source, dtype="bfloat16"))) as workers:
        answers = EngineClient(workers).generate(prompts(), greedy(24))
    assert_nearly_likeliest(rounded_reference(source), prompts(), [a.tokens for a in answers])
