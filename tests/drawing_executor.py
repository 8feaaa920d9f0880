"""An executor that draws tokens as its batches say, like a GPU, but at once and on the host."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tiny_rows import make_executor

from tskernels.ops.sampling import words
from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch, decode, encode
from tsruntime.executor.drawing import each_past
from tsruntime.executor.output import DrawnLogprobs, StepOutput, Wait
from tsruntime.sampling.filters import candidates
from tsruntime.sampling.logprobs import logprobs_of
from tsruntime.sampling.noise import bits, gumbel
from tsruntime.sampling.params import SamplingParams


class DrawingExecutor:
    """Knows of requests only what the words of batches tell; `events` say what came when."""

    draws_tokens = True

    def __init__(self, plan: Plan) -> None:
        self._executor = make_executor(plan)
        slots, vocab = plan.limits.max_batch, plan.vocab_size
        self._last = np.full(slots, -1, np.int32)
        self._counts = np.zeros((slots, vocab), np.int64)
        self._biases = np.zeros((slots, vocab), np.float32)
        self.events: list[str] = []
        self.fed = self.rebuilt = 0

    @property
    def plan(self) -> Plan:
        return self._executor.plan

    def run(self, batch: ForwardBatch) -> StepOutput:
        return self.launch(batch)()

    def launch(self, batch: ForwardBatch) -> Wait:
        batch = decode(encode(batch))  # as other ranks have it
        ids = batch.token_ids.copy()
        for row in np.flatnonzero(ids < 0):
            ids[row] = self._last[batch.slots[row]]
            self.fed += 1
        assert (ids >= 0).all()
        self._rebuild(batch)
        logits = self._executor.run(dataclasses.replace(batch, token_ids=ids)).logits.clone()
        drawn = [self._draw(batch, row, logits[row].numpy()) for row in range(batch.num_sequences)]
        tokens = np.array(drawn, np.int32)
        self._last[batch.slots] = tokens
        self.events.append(f"launch {batch.step}")
        logprobs = _logprobs(logits.numpy(), tokens) if batch.draws.kind.logprobs else None

        def wait() -> StepOutput:
            self.events.append(f"wait {batch.step}")
            return StepOutput(logits, tokens, logprobs)

        return wait

    def _rebuild(self, batch: ForwardBatch) -> None:
        for past in each_past(batch.draws.pasts):
            self.rebuilt += 1
            slot, seen, made, stops, biased = (int(word) for word in past[:5])
            counts, ids = self._counts[slot], past[words.PAST_HEADER :]
            counts[:] = 0
            np.add.at(counts, ids[seen : seen + made], 1)
            counts[ids[:seen]] |= words.IN_PROMPT
            counts[ids[seen + made : seen + made + stops]] |= words.IS_STOP
            ids = ids[seen + made + stops :]
            self._biases[slot] = 0.0
            self._biases[slot, ids[:biased]] = ids[biased : 2 * biased].view(np.float32)

    def _draw(self, batch: ForwardBatch, row: int, logits: NDArray[np.float32]) -> int:
        if not batch.draws.kind.full:
            return int(logits.argmax())
        told, slot = batch.draws.rows[row], int(batch.slots[row])
        flags = int(told[words.FLAGS])
        counts = self._counts[slot]
        adjusted = logits + self._biases[slot] if flags & words.BIASED else logits.copy()
        if flags & words.STOPS_BANNED:
            adjusted[(counts & words.IS_STOP) != 0] = -np.inf
        if flags & words.PENALIZED:
            adjusted = _penalized(adjusted, counts, told)
        token = _drawn(adjusted, told)
        if flags & words.COUNTED:
            counts[token] += 1
        return token


def _number(told: NDArray[np.int32], place: int, kind: Any) -> Any:
    size = np.dtype(kind).itemsize // 4
    return told[place : place + size].copy().view(kind)[0]


def _penalized(
    logits: NDArray[np.float32], counts: NDArray[np.int64], told: NDArray[np.int32]
) -> NDArray[np.float32]:
    times = (counts & words.TIMES).astype(np.float32)
    seen = (times > 0) | ((counts & words.IN_PROMPT) != 0)
    repetition, frequency, presence = (
        np.float32(_number(told, place, np.float32))
        for place in (words.REPETITION, words.FREQUENCY, words.PRESENCE)
    )
    lower = np.where(logits > 0, logits / repetition, logits * repetition)
    lower = lower - frequency * times - presence * (times > 0)
    return np.where(seen, lower, logits)


def _drawn(logits: NDArray[np.float32], told: NDArray[np.int32]) -> int:
    temperature = float(_number(told, words.TEMPERATURE, np.float64))
    if temperature == 0.0:
        return int(logits.argmax())
    params = SamplingParams(
        1,
        temperature,
        top_p=float(_number(told, words.TOP_P, np.float64)),
        top_k=int(told[words.TOP_K]),
        min_p=math.exp(_number(told, words.LOG_MIN_P, np.float64)),
    )
    left = candidates(logits, params)
    noise = gumbel(bits(int(_number(told, words.STREAM, np.uint64)), left.ids))
    return int(left.ids[(left.scores + noise).argmax()])


def _logprobs(logits: NDArray[np.float32], tokens: NDArray[np.int32]) -> DrawnLogprobs:
    found = [
        logprobs_of(row, int(token), words.TOP_LOGPROBS)
        for row, token in zip(logits, tokens, strict=False)
    ]
    chosen = np.array([one.logprob for one in found], np.float32)
    ids = np.array([[i for i, _ in one.top] for one in found], np.int32)
    values = np.array([[x for _, x in one.top] for one in found], np.float32)
    return DrawnLogprobs(chosen, ids, values)
