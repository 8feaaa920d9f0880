"""Tiny random checkpoints of every family, sharded and not, against transformers end to end."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import FAMILIES, Family, TinyHf, load_reference
from deployments import build, recipe
from teacher_forcing import measure

LIMIT = 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("world", "shards"), [(1, 1), (3, 2)])
def test_every_position_agrees(
    family: Family, world: int, shards: int, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    source = tiny_hf(family, shards=shards)
    artifact = build(
        tmp_path, recipe(source, world=world, chat=False, buckets={"all_logits": [[64, 4]]})
    )
    draw = random.Random(1)
    batch = [[draw.randrange(3, 300) for _ in range(n)] for n in (1, 5, 33, 64, 100)]
    model = load_reference(source)
    for index, prompt in enumerate(batch):
        with torch.no_grad():
            np.save(tmp_path / f"{index}.npy", model(torch.tensor([prompt])).logits[0].numpy())
    (found,) = measure(artifact, [batch], [tmp_path])
    assert max(max(errors) for errors in found.values()) < LIMIT
