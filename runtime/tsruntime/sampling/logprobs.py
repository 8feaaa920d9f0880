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
    order = np.argsort(-wide, kind="stable")[:count] if count else np.empty(0, np.int64)
    top = tuple((int(i), float(values[i])) for i in order)
    return TokenLogprobs(float(values[token]), top)
