"""Weights stacked from many checkpoint tensors: cut, written, read, generated, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from tiny_plan import Sizes, tiny_plan
from torch import Tensor

from tscompile.checkpoint import Checkpoint, check_tensors
from tscompile.checkpoint.base import TensorInfo
from tscompile.deployment import source_shapes
from tscompile.errors import TensorMismatchError
from tscompile.freeze.safetensors_writer import SafetensorsWriter
from tscompile.freeze.weights import write_weights
from tskernels.schema import DType
from tsruntime.artifact.schema import (
    Axis,
    Mesh,
    Plan,
    Stack,
    Weight,
    WeightPart,
    part_shape,
)
from tsruntime.artifact.weight_files import TensorEntry
from tsruntime.artifact.weights import WeightStore

COUNT, ROWS, COLUMNS = 6, 8, 4
MESH = Mesh((Axis("a", 2), Axis("b", 3)), {})
NAME = "mlp.experts.{}.up_proj.weight"

STACKS = {
    "whole": WeightPart(NAME, (ROWS, COLUMNS), stack=Stack(COUNT)),
    "experts": WeightPart(NAME, (ROWS, COLUMNS), stack=Stack(COUNT, ("b",))),
    "all experts": WeightPart(NAME, (ROWS, COLUMNS), stack=Stack(COUNT, ("a", "b"))),
    "rows": WeightPart(NAME, (ROWS, COLUMNS), 0, ("a",), ROWS, Stack(COUNT)),
    "columns": WeightPart(NAME, (ROWS, COLUMNS), 1, ("a",), COLUMNS, Stack(COUNT, ("b",))),
    "padded": WeightPart(NAME, (ROWS, COLUMNS), 0, ("b",), 9, Stack(COUNT, ("a",))),
}


def plan_of(part: WeightPart, seed: int | None = None) -> Plan:
    """A plan whose only weight is made of `part`."""
    assert part.stack is not None
    axes = tuple(axis.name for axis in MESH.axes if axis.name in (*part.stack.axes, *part.axes))
    weight = Weight(NAME, DType.FLOAT32, part_shape(MESH, part), (part,), axes)
    return replace(tiny_plan(Sizes()), mesh=MESH, weights=(weight,), dummy_seed=seed)


class Numbered:
    """A checkpoint that holds tensor `n` of the stack under its own name."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.held = tensors
        self.tensors = {n: TensorInfo("float32", tuple(t.shape)) for n, t in tensors.items()}
        self.reads: list[str] = []

    def read(self, name: str) -> Tensor:
        self.reads.append(name)
        return self.held[name]


def numbered() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {NAME.format(n): torch.randn(ROWS, COLUMNS, generator=generator) for n in range(COUNT)}


def expected(part: WeightPart, tensors: list[Tensor], rank: int) -> Tensor:
    """By padding and chunking the whole stack."""
    whole, digits = torch.stack(tensors), {"a": rank % 2, "b": rank // 2}
    assert part.stack is not None
    if part.dim is not None and part.padded is not None:
        shape = list(whole.shape)
        shape[1 + part.dim] = part.padded - shape[1 + part.dim]
        whole = torch.cat((whole, torch.zeros(shape)), 1 + part.dim)
    cuts = [(0, part.stack.axes)] + ([] if part.dim is None else [(1 + part.dim, part.axes)])
    for dim, axes in cuts:
        for axis in reversed(axes):
            size = {"a": 2, "b": 3}[axis]
            whole = whole.chunk(size, dim)[digits[axis]]
    return whole


@pytest.mark.parametrize("name", STACKS)
def test_every_rank_reads_its_own_shard(name: str, tmp_path: Path) -> None:
    plan, tensors = plan_of(STACKS[name]), numbered()
    checkpoint = Numbered(tensors)
    (tmp_path / "weights").mkdir()
    write_weights(plan, cast("Checkpoint", checkpoint), tmp_path / "weights", lambda _: None)
    assert checkpoint.reads == list(tensors), "each tensor is read once, in order"
    for rank in range(MESH.world):
        held = WeightStore(tmp_path, plan, rank).tensor(NAME)
        assert torch.equal(held, expected(STACKS[name], list(tensors.values()), rank))


@pytest.mark.parametrize("name", STACKS)
def test_dummy_weights_are_the_same_bits_whatever_the_sharding(name: str, tmp_path: Path) -> None:
    whole = WeightStore(tmp_path, plan_of(STACKS["whole"], seed=5), 0).tensor(NAME)
    assert whole.shape == (COUNT, ROWS, COLUMNS)
    assert len({tuple(tensor.flatten()[:8]) for tensor in whole}) == COUNT
    plan = plan_of(STACKS[name], seed=5)
    for rank in range(MESH.world):
        held = WeightStore(tmp_path, plan, rank).tensor(NAME)
        assert torch.equal(held, expected(STACKS[name], list(whole), rank))


def test_every_tensor_of_a_stack_is_looked_for_by_its_name_and_shape() -> None:
    plan, checkpoint = plan_of(STACKS["columns"]), Numbered(numbered())
    shapes = source_shapes(plan)
    assert shapes == {NAME.format(n): (ROWS, COLUMNS) for n in range(COUNT)}
    check_tensors(cast("Checkpoint", checkpoint), shapes, tied=False, where="w")
    del checkpoint.tensors[NAME.format(4)]
    checkpoint.tensors[NAME.format(2)] = TensorInfo("float32", (ROWS, 5))
    with pytest.raises(TensorMismatchError) as refusal:
        check_tensors(cast("Checkpoint", checkpoint), shapes, tied=False, where="w")
    assert "mlp.experts.4.up_proj.weight [8, 4] is missing" in refusal.value.message
    assert "mlp.experts.2.up_proj.weight is [8, 5], the model's is [8, 4]" in refusal.value.message


def test_a_tensor_written_row_by_row_is_that_tensor(tmp_path: Path) -> None:
    rows, path = torch.randn(3, 2), tmp_path / "x"
    entries = [TensorEntry("a", DType.FLOAT32, (3, 2)), TensorEntry("b", DType.FLOAT32, (1,))]
    writer = SafetensorsWriter(path, entries)
    for row in rows:
        writer.extend("a", row)
    writer.write("b", torch.ones(1))
    assert writer.close().bytes == path.stat().st_size
    assert torch.equal(load_file(path)["a"], rows)
    assert torch.equal(load_file(path)["b"], torch.ones(1))


def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    writer = SafetensorsWriter(tmp_path / "x", [TensorEntry("a", DType.FLOAT32, (2, 3))])
    with pytest.raises(ValueError, match="expected row 0"):
        writer.extend("a", torch.zeros(4))
    writer.extend("a", torch.zeros(3))
    with pytest.raises(ValueError, match="from row 1 on"):
        writer.write("a", torch.zeros(2, 3))
    with pytest.raises(ValueError, match="expected row 1"):
        writer.extend("b", torch.zeros(3))
    writer.abandon()
