"""The streaming writer's files are what the safetensors library reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

from tscompile.freeze.safetensors_writer import SafetensorsWriter
from tskernels.schema import DType
from tsruntime.artifact.weight_files import ALIGNMENT, TensorEntry

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def write(path: Path, tensors: dict[str, torch.Tensor]) -> tuple[int, str]:
    entries = [
        TensorEntry(name, DType(str(t.dtype).removeprefix("torch.")), tuple(t.shape))
        for name, t in tensors.items()
    ]
    writer = SafetensorsWriter(path, entries)
    for name, tensor in tensors.items():
        writer.write(name, tensor)
    entry = writer.close()
    (digest,) = entry.sha256
    return entry.bytes, digest


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_library_reads_back_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("st") / "x.safetensors"
    tensors: dict[str, torch.Tensor] = {}
    for index in range(data.draw(st.integers(0, 4))):
        dtype = data.draw(st.sampled_from(DType)).torch
        shape = data.draw(SHAPES)
        tensors[f"t{index}.é"] = (torch.randn(shape, dtype=torch.float64) * 100).to(dtype)
    size, digest = write(path, tensors)
    read = load_file(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    content = path.read_bytes()
    assert (size, digest) == (len(content), hashlib.sha256(content).hexdigest())
    assert (8 + int.from_bytes(content[:8], "little")) % ALIGNMENT == 0


def test_a_transposed_tensor_is_written_in_its_own_order(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    write(tmp_path / "x", {"t": tensor})
    assert torch.equal(load_file(tmp_path / "x")["t"], tensor)


def test_another_tensor_than_announced_is_refused(tmp_path: Path) -> None:
    writer = SafetensorsWriter(tmp_path / "x", [TensorEntry("a", DType.FLOAT32, (2,))])
    with pytest.raises(ValueError, match="expected"):
        writer.write("a", torch.zeros(3))
    writer.abandon()


def test_a_tensor_left_out_is_refused(tmp_path: Path) -> None:
    writer = SafetensorsWriter(tmp_path / "x", [TensorEntry("a", DType.FLOAT32, (2,))])
    with pytest.raises(ValueError, match="1 tensors were never written"):
        writer.close()
    writer.abandon()
