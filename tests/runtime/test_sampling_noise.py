"""The counter-based noise: its published test vector, its distribution, its key."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tsruntime.sampling.noise import bits, draw, gumbel, mix, stream_key

# First outputs of SplitMix64 for the seed 1234567, as published with java.util.SplittableRandom
# ports (Rosetta Code, "Pseudo-random numbers/Splitmix64").
PUBLISHED = (
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
)


def test_bits_are_the_published_splitmix64_stream() -> None:
    assert bits(1234567, np.arange(5)).tolist() == list(PUBLISHED)


def test_bits_of_chosen_ids_equal_the_whole_stream() -> None:
    ids = np.array([7, 0, 151935, 33])
    assert bits(99, ids).tolist() == bits(99, np.arange(151936))[ids].tolist()


def test_scalar_and_array_mixers_agree() -> None:
    gamma = 0x9E3779B97F4A7C15
    assert [mix(1234567 + (i + 1) * gamma & (1 << 64) - 1) for i in range(5)] == list(PUBLISHED)


def test_every_part_of_the_key_matters() -> None:
    keys = {stream_key(seed, position) for seed in range(-50, 50) for position in range(100)}
    assert len(keys) == 100 * 100
    assert stream_key(5, 3) == stream_key(5 + 2**64, 3)


def test_gumbel_has_the_gumbel_distribution() -> None:
    noise = np.sort(gumbel(bits(stream_key(1, 2), np.arange(200_000))))
    expected = np.exp(-np.exp(-noise))
    observed = (np.arange(len(noise)) + 0.5) / len(noise)
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand.
    assert float(np.abs(expected - observed).max()) < 1.95 / math.sqrt(len(noise))
    assert np.isfinite(gumbel(np.array([0, 2**64 - 1], np.uint64))).all()


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
def test_draw_equals_the_argmax_over_all_noise(spread: float) -> None:
    generator = np.random.default_rng(0)
    ids = np.arange(5_000)
    for position in range(200):
        scores = generator.normal(size=len(ids)) * spread
        scores -= scores.max()
        whole = scores + gumbel(bits(stream_key(4, position), ids))
        assert draw(ids, scores, 4, position) == int(whole.argmax())
