"""Cutting a checkpoint into the plan's weights: each tensor read once, every shard written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from tscompile.checkpoint.base import Checkpoint
from tscompile.freeze.safetensors_writer import SafetensorsWriter
from tsruntime.artifact.digest import PIECE_BYTES
from tsruntime.artifact.manifest import FileEntry
from tsruntime.artifact.schema import Plan, Weight, WeightPart, part_tensors, weight_file
from tsruntime.artifact.weight_files import TensorEntry, stored_weights
from tsruntime.artifact.weights import held_tensors, shard_range

Progress = Callable[[str], None]


def write_weights(
    plan: Plan,
    checkpoint: Checkpoint,
    folder: Path,
    progress: Progress,
    piece_bytes: int = PIECE_BYTES,
) -> dict[str, FileEntry]:
    """Write `folder/*.safetensors`; sizes and digests by file name. Calls `progress` per weight."""
    weights = stored_weights(plan)
    with _writers(plan, weights, folder, piece_bytes) as writers:
        for weight in weights:
            progress(weight.name)
            if weight.parts[0].stack is None:
                _write_whole(plan, weight, checkpoint, writers)
            else:
                _write_stack(plan, weight, checkpoint, writers)
        return {name: writer.close() for name, writer in writers.items()}


def _write_whole(
    plan: Plan, weight: Weight, checkpoint: Checkpoint, writers: Mapping[str, SafetensorsWriter]
) -> None:
    parts = [(part, checkpoint.read(part.tensor)) for part in weight.parts]
    for file, rank in _holders(plan, weight).items():
        writers[file].write(weight.name, _shard(plan, weight, parts, rank))


def _write_stack(
    plan: Plan, weight: Weight, checkpoint: Checkpoint, writers: Mapping[str, SafetensorsWriter]
) -> None:
    """Tensor by tensor, each to the files that hold a piece of it: a stack fills no memory."""
    (part,) = weight.parts
    holders = _holders(plan, weight)
    held = {file: set(held_tensors(plan, part, rank)) for file, rank in holders.items()}
    for name in part_tensors(part):
        tensor = checkpoint.read(name)
        for file, rank in holders.items():
            if name in held[file]:
                shard = _cut(plan, part, tensor, rank).to(weight.dtype.torch)
                writers[file].extend(weight.name, shard.contiguous())


@contextmanager
def _writers(
    plan: Plan, weights: tuple[Weight, ...], folder: Path, piece_bytes: int
) -> Generator[dict[str, SafetensorsWriter]]:
    entries: dict[str, list[TensorEntry]] = {}
    for weight in weights:
        for file in _holders(plan, weight):
            entries.setdefault(file, []).append(TensorEntry.of(weight))
    writers = {
        name: SafetensorsWriter(folder / name, listed, piece_bytes)
        for name, listed in sorted(entries.items())
    }
    try:
        yield writers
    finally:
        for writer in writers.values():
            writer.abandon()


def _holders(plan: Plan, weight: Weight) -> dict[str, int]:
    """Each file that holds a shard of `weight`, with the first rank that reads it."""
    holders: dict[str, int] = {}
    for rank in range(plan.mesh.world):
        holders.setdefault(weight_file(plan.mesh, weight, rank), rank)
    return holders


def _shard(plan: Plan, weight: Weight, parts: list[tuple[WeightPart, Tensor]], rank: int) -> Tensor:
    cut = [_cut(plan, part, tensor, rank) for part, tensor in parts]
    whole = cut[0] if len(cut) == 1 else torch.cat(cut)
    return whole.to(weight.dtype.torch).contiguous()


def _cut(plan: Plan, part: WeightPart, tensor: Tensor, rank: int) -> Tensor:
    dim = part.dim or 0
    start, kept, padding = shard_range(plan, part, rank)
    shard = tensor.narrow(dim, start, kept)
    if not padding:
        return shard
    shape = list(shard.shape)
    shape[dim] = padding
    return torch.cat([shard, shard.new_zeros(shape)], dim=dim)
