"""Log-probabilities of the raw model, before anything that a request asks of its draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsruntime.sampling.params import TokenLogprobs


def logprobs_of(logits: NDArray[np.float32], token: int, count: int) -> TokenLogprobs:
    """Log softmax of `logits` [V] at `token` and at its `count` largest, in float64."""
    wide = logits.astype(np.float64)
    values = wide - wide.max()
    values -= np.log(np.exp(values).sum())
    top = tuple((int(i), float(values[i])) for i in largest(logits, count))
    return TokenLogprobs(float(values[token]), top)


def largest(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Where the `count` largest of `logits` [V] are, falling; of equal ones the lowest first."""
    count = min(count, len(logits))
    if count == 0:
        return np.empty(0, np.int64)
    place = len(logits) - count
    able = np.flatnonzero(logits >= np.partition(logits, place)[place])
    return able[np.argsort(-logits[able], kind="stable")][:count]
