"""What the front end and the engine say to each other, across a pipe or in one process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tsruntime.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Submit:
    """Generate from `tokens`; `id` is the front end's and unique among live requests."""

    id: int
    tokens: tuple[int, ...]
    params: SamplingParams
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Fork:
    """Generate once more from the prompt of request `parent`, which was submitted just before.

    It begins when the parent's prompt has been computed, and shares its pages.
    """

    id: int
    parent: int
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class Abort:
    """Forget request `id`; no output follows. Unknown or finished ids are ignored."""

    id: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop once every live request is done (`drain`), or at once."""

    drain: bool = True


Command: TypeAlias = Submit | Fork | Abort | Shutdown


class FinishReason(StrEnum):
    """Why a request ended, in the API's words."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """The next token of a request. With `finish` set it is the last one.

    A stop token ends a request and is itself delivered, so that the front end may drop it from
    the text. `cached_tokens` counts prompt tokens found in the prefix cache.
    """

    id: int
    token: int
    finish: FinishReason | None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine will never run this request; `message` is for the client."""

    id: int
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded and waits for requests."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine cannot go on; `message` is one line for the terminal."""

    message: str


Event: TypeAlias = TokenOutput | Refused | Ready | Failed
