"""The API's answers as bytes: whole JSON bodies, and server-sent events cut to size beforehand."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Final, Protocol

from tsruntime.engine.messages import FinishReason
from tsruntime.server.logprobs import Json, chat_logprobs, legacy_logprobs
from tsruntime.server.pieces import Pieces
from tsruntime.server.scores import Scored
from tsruntime.server.stream import Delta, Usage

DONE: Final = b"data: [DONE]\n\n"

dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON; made once, since json.dumps makes an encoder a call."""


_IDS: Final = random.Random()
"""Of answers: unlike each other, and no secrets, so the system is asked for randomness once."""

quoted: Final = encode_basestring
"""A string as JSON, without an encoder."""


def event(value: object) -> bytes:
    """One server-sent event."""
    return f"data: {dumps(value)}\n\n".encode()


@dataclass(slots=True)
class Choice:
    """One finished sequence of an answer that is not streamed."""

    text: list[str] = field(default_factory=list[str])
    tokens: list[int] = field(default_factory=list[int])
    finish: FinishReason | None = None
    scored: list[Scored] = field(default_factory=list[Scored])

    def add(self, delta: Delta) -> None:
        """Append what came."""
        self.text.append(delta.text)
        self.tokens.extend(delta.tokens)
        self.scored.extend(delta.scored)
        self.finish = delta.finish


class Wire(Protocol):
    """How one endpoint words its answers."""

    def begin(self, choices: int) -> bytes:
        """Events that come before the first text."""
        ...

    def chunk(self, delta: Delta) -> bytes:
        """Events for `delta`, possibly none."""
        ...

    def usage(self, usage: Usage) -> bytes:
        """The event that comes last, with no choice in it."""
        ...

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of an answer that is not streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk of one answer repeats, and which options shape it.

    `likeliest` tokens are shown beside each with its log-probability; None where none is asked for.
    """

    id: str
    created: int
    model: str
    usage_in_stream: bool = False
    token_ids: bool = False
    likeliest: int | None = None

    @classmethod
    def new(
        cls,
        prefix: str,
        model: str,
        *,
        usage_in_stream: bool = False,
        token_ids: bool = False,
        likeliest: int | None = None,
    ) -> Identity:
        """A fresh id (`cmpl-…`), as of now."""
        id_ = f"{prefix}-{_IDS.getrandbits(128):032x}"
        return cls(id_, int(time.time()), model, usage_in_stream, token_ids, likeliest)

    def body(self, kind: str, choices: Sequence[object]) -> dict[str, object]:
        """An answer or chunk of type `kind`."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def frame(self, kind: str) -> tuple[str, str]:
        """The text of a chunk before and after its one choice."""
        usage = ',"usage":null' if self.usage_in_stream else ""
        before, after = dumps(self.body(kind, [0])).rsplit("0", 1)
        return f"data: {before}", f"{after[:-1]}{usage}}}\n\n"

    def tail(self, delta: Delta, logprobs: Json | None) -> str:
        """The end of a chunk's choice, from after its text; written out, as there are so many."""
        shown = "null" if logprobs is None else dumps(logprobs)
        finish = "null" if delta.finish is None else f'"{delta.finish}"'
        ids = f',"token_ids":[{",".join(map(str, delta.tokens))}]' if self.token_ids else ""
        return f',"logprobs":{shown},"finish_reason":{finish}{ids}}}'

    def ids(self, tokens: Sequence[int]) -> Json:
        """The `token_ids` field, if it was asked for."""
        return {"token_ids": list(tokens)} if self.token_ids else {}


class CompletionWire:
    """`/v1/completions`."""

    def __init__(self, identity: Identity, pieces: Pieces) -> None:
        self._identity = identity
        self._pieces = pieces
        self._before, self._after = identity.frame("text_completion")

    def begin(self, choices: int) -> bytes:
        """Nothing precedes the text."""
        return b""

    def chunk(self, delta: Delta) -> bytes:
        """One event, unless there is nothing to tell."""
        if not (delta.text or delta.finish or self._identity.token_ids):
            return b""
        text = f'"index":{delta.index},"text":{quoted(delta.text)}'
        shown = self._logprobs(delta.scored) if delta.scored else None
        return f"{self._before}{{{text}{self._identity.tail(delta, shown)}{self._after}".encode()

    def usage(self, usage: Usage) -> bytes:
        """The usage event."""
        body = self._identity.body("text_completion", [])
        return event({**body, "usage": usage.body()})

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The JSON body."""
        listed = [
            self._choice(
                index,
                "".join(choice.text),
                choice.finish,
                choice.tokens,
                self._logprobs(choice.scored),
            )
            for index, choice in enumerate(choices)
        ]
        body = self._identity.body("text_completion", listed)
        return dumps({**body, "usage": usage.body()}).encode()

    def _choice(
        self,
        index: int,
        text: str,
        finish: FinishReason | None,
        tokens: Sequence[int],
        logprobs: Json | None,
    ) -> Json:
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish,
            **self._identity.ids(tokens),
        }

    def _logprobs(self, scored: Sequence[Scored]) -> Json | None:
        asked = self._identity.likeliest is not None
        return legacy_logprobs(scored, self._pieces) if asked else None


class ChatWire:
    """`/v1/chat/completions`."""

    def __init__(self, identity: Identity, pieces: Pieces) -> None:
        self._identity = identity
        self._pieces = pieces
        self._before, self._after = identity.frame("chat.completion.chunk")

    def begin(self, choices: int) -> bytes:
        """The role of each choice."""
        delta = {"role": "assistant", "content": ""}
        shared: Json = {"delta": delta, "logprobs": None, "finish_reason": None}
        texts = (dumps({"index": index, **shared}) for index in range(choices))
        return "".join(f"{self._before}{text}{self._after}" for text in texts).encode()

    def chunk(self, delta: Delta) -> bytes:
        """One event, unless there is nothing to tell."""
        if not (delta.text or delta.finish or self._identity.token_ids):
            return b""
        content = f'"content":{quoted(delta.text)}' if delta.text else ""
        text = f'"index":{delta.index},"delta":{{{content}}}'
        shown = self._logprobs(delta.scored) if delta.scored else None
        return f"{self._before}{{{text}{self._identity.tail(delta, shown)}{self._after}".encode()

    def usage(self, usage: Usage) -> bytes:
        """The usage event."""
        body = self._identity.body("chat.completion.chunk", [])
        return event({**body, "usage": usage.body()})

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The JSON body."""
        listed = [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": "".join(choice.text),
                    "refusal": None,
                },
                "logprobs": self._logprobs(choice.scored),
                "finish_reason": choice.finish,
                **self._identity.ids(choice.tokens),
            }
            for index, choice in enumerate(choices)
        ]
        body = self._identity.body("chat.completion", listed)
        return dumps({**body, "usage": usage.body()}).encode()

    def _logprobs(self, scored: Sequence[Scored]) -> Json | None:
        asked = self._identity.likeliest is not None
        return chat_logprobs(scored, self._pieces) if asked else None
