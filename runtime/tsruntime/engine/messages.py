"""What the front end and the engine say to each other, across a pipe or in one process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tsruntime.sampling.params import SamplingParams, TokenLogprobs


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
class AskStats:
    """Answer with `EngineStats`, once the step that runs is done."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop once every live request is done (`drain`), or at once."""

    drain: bool = True


Command: TypeAlias = Submit | Fork | Abort | AskStats | Shutdown


class FinishReason(StrEnum):
    """Why a request ended, in the API's words."""

    STOP = "stop"
    LENGTH = "length"


class TokenOutput(NamedTuple):
    """The next token of a request. With `finish` set it is the last one.

    A stop token ends a request and is itself delivered, so that the front end may drop it from
    the text. `cached_tokens` counts prompt tokens found in the prefix cache. `logprobs` are there
    if the request asks for them. A tuple, since there is one for each token: it is pickled in a
    fifth of a frozen dataclass's time.
    """

    id: int
    token: int
    finish: FinishReason | None
    cached_tokens: int = 0
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine will never run this request; `message` is for the client."""

    id: int
    message: str


@dataclass(frozen=True, slots=True)
class PagePool:
    """Pages of one cache group, the null page not counted.

    `cached` ones are kept for their contents alone; those that are neither free nor cached are in
    use.
    """

    group: str
    total: int
    free: int
    cached: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What runs and waits now, and counts since the start.

    `preemptions` are retractions. `prefix_queries` are prompt tokens that were looked up in the
    prefix cache, at a request's first admission, and `prefix_hits` those that were found.
    `pages_stored` went to the host and `pages_loaded` came back, over all cache groups. `hosts`
    are the pools in host memory, none where the plan has no host pages.
    """

    running: int
    waiting: int
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    pages_stored: int
    pages_loaded: int
    pools: tuple[PagePool, ...]
    hosts: tuple[PagePool, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded and waits for requests."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine cannot go on; `message` is one line for the terminal."""

    message: str


Event: TypeAlias = TokenOutput | Refused | EngineStats | Ready | Failed
