"""What a device draws tokens with: state of its slots, a step's rules, and what it drew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tskernels.device import CudaDevice
from tskernels.ops.sampling import words
from tskernels.ops.sampling.words import TOP_LOGPROBS
from tsruntime.artifact.budget import plan_draw_shapes
from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import Draws, Ints
from tsruntime.executor.launching import Operands
from tsruntime.executor.output import DrawnLogprobs


@dataclass(frozen=True, slots=True)
class DrawMemory:
    """Tensors of the device, for the largest program; smaller ones use their fronts.

    `tokens` are the rows', `sampled` the last ones of the slots [max_batch], `counts` and `biases`
    [max_batch, V] what is known of slots; `rows`, `masks` and `past` are told (see
    `tskernels.ops.sampling.words`), and `logprobs` holds, as words, what `DrawnLogprobs` does.
    """

    tokens: Tensor
    sampled: Tensor
    counts: Tensor
    biases: Tensor
    rows: Tensor
    masks: Tensor
    past: Tensor
    logprobs: Tensor

    def operands(self, logits: Tensor, slots: Tensor) -> Operands:
        """What a call that draws from `logits` works on."""
        chosen, ids, values = _parts(self.logprobs)
        return {
            "input": [logits, slots, self.rows, self.masks, self.counts, self.biases],
            "output": [self.tokens, self.sampled, self.counts, chosen, ids, values],
        }


def draw_memory(plan: Plan, device: torch.device) -> DrawMemory:
    """All of it, zero."""
    tensors = {
        name: torch.zeros(
            shape, dtype=torch.float32 if name == "biases" else torch.int32, device=device
        )
        for name, shape in plan_draw_shapes(plan).items()
    }
    return DrawMemory(**tensors)


def _parts(found: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = len(found) // (1 + 2 * TOP_LOGPROBS)
    chosen, ids = found[:rows], found[rows : rows * (1 + TOP_LOGPROBS)]
    values = found[rows * (1 + TOP_LOGPROBS) :]
    return (
        chosen.view(torch.float32),
        ids.view(rows, TOP_LOGPROBS),
        values.view(torch.float32).view(rows, TOP_LOGPROBS),
    )


class DrawStage:
    """Pinned host memory of one step in flight, for what is told of its draws and what is drawn.

    What is told is copied on `device`'s stream, what is drawn on that of `fetches`.
    """

    def __init__(self, device: CudaDevice, fetches: CudaDevice, memory: DrawMemory) -> None:
        self._device, self._memory = device, memory
        self._rows, self._masks = _pinned(memory.rows), _pinned(memory.masks)
        self._past, self._copied = _pinned(memory.past), torch.cuda.Event()
        self._tokens, self._logprobs = _pinned(memory.tokens), _pinned(memory.logprobs)
        self._send_rows = device.copy(memory.rows, self._rows)
        self._send_masks = device.copy(memory.masks, self._masks)
        self._fetch_tokens = fetches.copy(self._tokens, memory.tokens)
        self._fetch_logprobs = fetches.copy(self._logprobs, memory.logprobs)

    def send(self, draws: Draws) -> None:
        """Have the rows' rules on the device, where the kind of draw reads them."""
        if not draws.kind.full:
            return
        rows: Ints = self._rows.numpy()
        rows[: len(draws.rows)] = draws.rows
        rows[len(draws.rows) :] = 0
        self._send_rows()
        if len(draws.masked):
            masks: Ints = self._masks.numpy()
            masks[draws.masked] = draws.masks
            self._send_masks()

    def rebuild(
        self, pasts: Ints, launch: Callable[[Tensor], None], stream: torch.cuda.Stream
    ) -> None:
        """Send each past, and `launch` what reads it from there.

        As many as fit the memory go together; further ones wait until those have been read.
        """
        for number, together in enumerate(packs(pasts, len(self._past))):
            if number:
                self._copied.synchronize()
            size = sum(map(len, together))
            self._past.numpy()[:size] = np.concatenate(together)
            self._device.copy(self._memory.past[:size], self._past[:size])()
            self._copied.record(stream)
            at = 0
            for past in together:
                launch(self._memory.past[at : at + len(past)])
                at += len(past)

    def fetch(self, draws: Draws) -> None:
        """Have what was drawn on the host."""
        self._fetch_tokens()
        if draws.kind.logprobs:
            self._fetch_logprobs()

    def tokens(self, rows: int) -> Ints:
        """The tokens of the first rows, once they are here."""
        return self._tokens[:rows].numpy()

    def logprobs(self, rows: int) -> DrawnLogprobs:
        """The log-probabilities of the first rows, once they are here."""
        chosen, ids, values = _parts(self._logprobs)
        return DrawnLogprobs(chosen[:rows].numpy(), ids[:rows].numpy(), values[:rows].numpy())


def each_past(pasts: Ints) -> Iterator[Ints]:
    """The pasts that lie one after another."""
    while len(pasts):
        seen, made, stops, biased = pasts[1:5].tolist()
        size = words.PAST_HEADER + seen + made + stops + 2 * biased
        size += -size % words.PAST_STEP
        yield pasts[:size]
        pasts = pasts[size:]


def packs(pasts: Ints, room: int) -> Iterator[list[Ints]]:
    """The pasts in lists of at most `room` words; ValueError for one that is longer."""
    together: list[Ints] = []
    for past in each_past(pasts):
        if len(past) > room:
            raise ValueError(f"a slot's past has {len(past)} words, and there is room for {room}")
        if sum(map(len, together)) + len(past) > room:
            yield together
            together = []
        together.append(past)
    if together:
        yield together


def _pinned(like: Tensor) -> Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=True)
