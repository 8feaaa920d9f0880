"""Random numbers that are a pure function of (seed, position, token id).

No generator has state, so a draw depends neither on the batch that a row is in, nor on the rank
or the device that computes it, nor on whether the request was retracted and run again.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_GAMMA: Final = 0x9E37_79B9_7F4A_7C15
_FIRST: Final = 0xBF58_476D_1CE4_E5B9
_SECOND: Final = 0x94D0_49BB_1331_11EB
_ULP: Final = 2.0**-52
_LIKELY: Final = -4.0


def mix(word: int) -> int:
    """SplitMix64's finalizer, a bijection on 64-bit words (Stafford's variant 13)."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)


def stream_key(seed: int, position: int) -> int:
    """Where the stream of one (seed, position) starts; `seed` counts modulo 2**64."""
    return mix((seed_key(seed) + (position + 1) * _GAMMA) & _MASK)


def seed_key(seed: int) -> int:
    """What the streams of one `seed` have in common."""
    return mix((seed + _GAMMA) & _MASK)


def stream_keys(seeds: NDArray[np.uint64], positions: NDArray[np.integer]) -> NDArray[np.uint64]:
    """`stream_key` of many [n]: `seeds` are seed keys."""
    return _mixed((positions.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA) + seeds)


def bits(key: int, ids: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Outputs number `ids` [n] of the SplitMix64 stream that starts at `key`, by direct jump.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014: the
    state is a Weyl sequence, so that the i-th output is mix(key + (i + 1) * gamma).
    """
    words = ids.astype(np.uint64)
    words += np.uint64(1)
    words *= np.uint64(_GAMMA)
    words += np.uint64(key)
    return _mixed(words)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of each word [n], in place."""
    shifted = np.empty_like(words)
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        words ^= np.right_shift(words, np.uint64(shift), out=shifted)
        words *= np.uint64(factor)
    return words


def gumbel(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Standard Gumbel noise from random 64-bit `words` [n], rising with the word.

    The uniform lies strictly between 0 and 1 (the top 52 bits plus one half), so that neither
    logarithm overflows.
    """
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * _ULP
    return -np.log(-np.log(uniform))


def draw(ids: NDArray[np.integer], scores: NDArray[np.float64], seed: int, position: int) -> int:
    """One of `ids` [n], drawn from softmax(`scores` [n]); the largest score must be 0.

    argmax(score + Gumbel noise) is such a draw (Gumbel 1954; Maddison et al. 2014). The likely
    tokens set a bar which, no score being above 0, most noise misses whatever its score: the
    logarithms of those are not taken.
    """
    words = bits(stream_key(seed, position), ids)
    likely = np.flatnonzero(scores > _LIKELY)
    bar = float((scores[likely] + gumbel(words[likely])).max())
    word = (math.exp(-math.exp(-bar)) - 8 * _ULP) * 2.0**64
    able = np.flatnonzero(words >= np.uint64(max(word, 0.0)))
    return int(ids[able[(scores[able] + gumbel(words[able])).argmax()]])
