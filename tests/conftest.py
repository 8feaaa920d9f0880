"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoints
import pytest
from checkpoints import TinyHf
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def tiny_hf(tmp_path_factory: pytest.TempPathFactory) -> TinyHf:
    """`tiny_hf(family, shards=1, seed=0)`: directory of a tiny random checkpoint, read-only."""
    made: dict[tuple[str, int, int], Path] = {}

    def make(family: checkpoints.Family, shards: int = 1, seed: int = 0) -> Path:
        key = (family, shards, seed)
        if key not in made:
            directory = tmp_path_factory.mktemp(f"{family}-{shards}-{seed}")
            made[key] = checkpoints.save_tiny_hf(family, directory, shards=shards, seed=seed)
        return made[key]

    return make


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """Path of the real SmolLM2-135M-Instruct GGUF file that the test extra installs."""
    return checkpoints.smollm2_gguf()


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_gguf: Path) -> Any:
    """SmolLM2 as transformers' model in float32, eager attention (540 MB): do not modify."""
    return checkpoints.load_smollm2(smollm2_gguf)
