"""How rank 0 tells the other ranks what to run: one broadcast a step, heartbeats in between."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tsruntime.executor.batch import ForwardBatch, Ints, decode, encode

INLINE_WORDS = 1024
"""Words of every first broadcast; a larger message sends the rest in a second one.

A decode step of 100 sequences fits, so that it costs one broadcast.
"""

_FRAME_WORDS = 2
"""Words before the payload: the kind, and the payload's length."""


class Kind(IntEnum):
    """What a message tells the other ranks."""

    STEP = 1
    HEARTBEAT = 2
    STOP = 3


class Broadcaster(Protocol):
    """What is asked of the communicator of all ranks."""

    def broadcast(self, x: Tensor, root: int) -> None:
        """Replace `x` by the root's, on every rank."""
        ...


class Followers(Protocol):
    """The other ranks, as rank 0's engine sees them."""

    def step(self, batch: ForwardBatch) -> None:
        """Have every other rank run `batch`."""
        ...

    def heartbeat(self) -> None:
        """Tell them that rank 0 lives and has nothing to run."""
        ...

    def stop(self) -> None:
        """Tell them to end."""
        ...


class NoFollowers:
    """The other ranks of a world of one."""

    def step(self, batch: ForwardBatch) -> None:
        """Nobody to tell."""

    def heartbeat(self) -> None:
        """Nobody to tell."""

    def stop(self) -> None:
        """Nobody to tell."""


class Channel:
    """Rank 0 sends, the others receive, in the same order; rank 0 is the root."""

    def __init__(self, communicator: Broadcaster) -> None:
        self._communicator = communicator
        self._frame = torch.zeros(INLINE_WORDS, dtype=torch.int32)
        self._words: Ints = self._frame.numpy()

    def step(self, batch: ForwardBatch) -> None:
        """Send one batch."""
        self._send(Kind.STEP, encode(batch))

    def heartbeat(self) -> None:
        """Send a sign of life."""
        self._send(Kind.HEARTBEAT, np.empty(0, np.int32))

    def stop(self) -> None:
        """Send the end."""
        self._send(Kind.STOP, np.empty(0, np.int32))

    def receive(self) -> ForwardBatch | None:
        """The next batch, or None where rank 0 says stop. It is valid until the next call."""
        while True:
            self._communicator.broadcast(self._frame, 0)
            kind, length = self._words[:_FRAME_WORDS].tolist()
            if kind == Kind.STOP:
                return None
            if kind == Kind.STEP:
                return decode(self._payload(length))

    def _send(self, kind: Kind, payload: Ints) -> None:
        front = payload[: INLINE_WORDS - _FRAME_WORDS]
        self._words[:_FRAME_WORDS] = kind, len(payload)
        self._words[_FRAME_WORDS : _FRAME_WORDS + len(front)] = front
        self._communicator.broadcast(self._frame, 0)
        if len(front) < len(payload):
            self._communicator.broadcast(torch.as_tensor(payload[len(front) :]), 0)

    def _payload(self, length: int) -> Ints:
        front = self._words[_FRAME_WORDS : _FRAME_WORDS + length]
        if len(front) == length:
            return front
        rest = torch.empty(length - len(front), dtype=torch.int32)
        self._communicator.broadcast(rest, 0)
        return np.concatenate((front, rest.numpy()))
