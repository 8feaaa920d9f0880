"""Dummy weights: any shard equals the same rows of the whole, by an independent numpy rendering."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsruntime.artifact.dummy import generate


def lowbias32(x: np.ndarray) -> np.ndarray:
    """The published mixer, in uint32."""
    x = x.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def expected_unit(seed: int, name: str, count: int) -> np.ndarray:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    keys = np.frombuffer(digest[:8], dtype="<u4")
    index = np.arange(count, dtype=np.uint64)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    mixed = lowbias32(low ^ keys[0]) + high * np.uint32(0x2545F491)
    bits = lowbias32(mixed ^ keys[1]).astype(np.int32)
    return (bits >> 8).astype(np.float32) / np.float32(1 << 23)


def test_a_matrix_is_the_published_hash_scaled_by_its_fan_in() -> None:
    weight = generate(7, "layer.weight", (6, 12), torch.float32)
    unit = expected_unit(7, "layer.weight", 72).reshape(6, 12)
    np.testing.assert_array_equal(weight.numpy(), unit * np.float32(np.sqrt(3 / 12)))


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 7),
    dim=st.integers(0, 1),
    data=st.data(),
)
def test_a_shard_is_a_slice_of_the_whole(
    rows: int, columns: int, dim: int, data: st.DataObject
) -> None:
    shape = (rows, columns)
    start = data.draw(st.integers(0, shape[dim]))
    size = data.draw(st.integers(0, shape[dim] - start))
    whole = generate(1, "w", shape, torch.bfloat16)
    shard = generate(1, "w", shape, torch.bfloat16, dim=dim, start=start, size=size)
    assert torch.equal(shard, whole.narrow(dim, start, size))


@pytest.mark.parametrize("shape", [(300, 400), (120_000,)])
def test_moments(shape: tuple[int, ...]) -> None:
    weight = generate(3, "some.weight", shape, torch.float64)
    spread = 0.125 / 3**0.5 if len(shape) == 1 else shape[-1] ** -0.5
    assert abs(weight.mean().item()) < 5 * spread / weight.numel() ** 0.5
    assert weight.std().item() == pytest.approx(spread, rel=0.02)


def test_gains_lie_around_one_so_that_a_missing_gain_shows() -> None:
    gains = generate(3, "model.layers.0.input_layernorm.weight", (4096,), torch.float32)
    assert gains.mean().item() == pytest.approx(1.0, abs=0.02)
    assert gains.std().item() == pytest.approx(0.25 / 3**0.5, rel=0.05)


def test_seed_and_name_both_matter() -> None:
    base = generate(0, "a", (64,), torch.float32)
    assert not torch.equal(base, generate(1, "a", (64,), torch.float32))
    assert not torch.equal(base, generate(0, "b", (64,), torch.float32))


def test_indices_beyond_32_bits_do_not_repeat() -> None:
    """Row 2^20 of a [2^21, 2^13] tensor begins at element 2^33."""
    shape = (1 << 21, 1 << 13)
    far = generate(0, "w", shape, torch.float32, start=1 << 20, size=1)
    near = generate(0, "w", shape, torch.float32, start=0, size=1)
    assert not torch.equal(far, near)


def test_float8_fills_its_range_and_its_scales_give_the_usual_variance() -> None:
    weight = generate(3, "a.weight", (256, 384), torch.float8_e4m3fn).double()
    unit = expected_unit(3, "a.weight", 256 * 384).reshape(256, 384)
    assert weight.abs().max() == 448
    assert np.abs(weight.numpy() - unit * 448).max() <= 16  # half a step between 256 and 448
    scales = generate(3, "a.weight_scale_inv", (2, 3), torch.float32)
    assert (scales > 0).all()
    assert len(np.unique(scales.numpy())) == 6
    wide = weight * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert wide.std().item() == pytest.approx(384**-0.5, rel=0.2)
