"""One client's sequences in flight: from engine events to text, until the last one is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from tsruntime.engine.messages import FinishReason, TokenOutput
from tsruntime.server.detokenizer import Detokenizer
from tsruntime.server.intake import GenerationRequest
from tsruntime.server.scores import Scored, Scores
from tsruntime.server.stops import StopMatcher
from tsruntime.server.tokenizer import TextTokenizer


@dataclass(slots=True)
class Delta:
    """What one sequence gained since its stream was last read."""

    index: int
    text: str
    tokens: list[int]
    finish: FinishReason | None
    scored: list[Scored]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as OpenAI counts them: a prompt once, however many choices it gives."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def body(self) -> dict[str, object]:
        """The API's `usage` object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


Gain: TypeAlias = tuple[str, list[Scored], FinishReason | None]
"""Text to show, tokens with log-probabilities that it makes known, and why the sequence ends."""


class LiveSequence:
    """The state of one sequence: its held-back text and its counts."""

    def __init__(self, request: GenerationRequest, tokenizer: TextTokenizer | None) -> None:
        self.request = request
        self.generated = 0
        self.cached_tokens = 0
        self._detokenizer = Detokenizer(tokenizer, request.tokens) if tokenizer else None
        self._stops = StopMatcher(request.stop, include=request.include_stop)
        self._scores = None if request.params.logprobs is None else Scores()

    def push(self, output: TokenOutput) -> Gain:
        """What there is to show after `output`."""
        self.generated += 1
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        if output.finish is FinishReason.STOP:  # the stop token's own text is not shown
            return self._end("", output.finish)
        text = self._detokenizer.push(output.token) if self._detokenizer else ""
        if self._scores is not None and output.logprobs is not None:
            self._scores.add(output.token, text, output.logprobs)
        if text and self.request.stop and self.generated >= self.request.params.min_tokens:
            text, stopped = self._stops.push(text)
            if stopped:
                return self._gain(text, FinishReason.STOP)
        if output.finish is not None:
            return self._end(text, output.finish)
        return self._gain(text, None)

    def _end(self, text: str, finish: FinishReason) -> Gain:
        """`text` and all that was held back, a stop string in it still counting."""
        rest = self._detokenizer.finish() if self._detokenizer else ""
        last, stopped = self._stops.push(rest)
        if stopped:
            return self._gain(text + last, FinishReason.STOP)
        text, scored, _ = self._gain(text + last + self._stops.finish(), finish)
        if self._scores is not None:
            scored += self._scores.finish()
        return text, scored, finish

    def _gain(self, text: str, finish: FinishReason | None) -> Gain:
        if self._scores is None:
            return text, [], finish
        shown = self._scores.show(text) if self._detokenizer else self._scores.finish()
        return text, shown, finish


class TokenStream:
    """Sequences that one client waits for, read by `async for` as lists of deltas.

    Deltas of one sequence that come between two reads are merged. Leaving the context (the client
    went away, or an error) aborts what still runs. Raises what `fail` was given.
    """

    def __init__(
        self,
        requests: Sequence[GenerationRequest],
        tokenizer: TextTokenizer | None,
        abandon: Callable[[TokenStream], None],
    ) -> None:
        self._sequences = [LiveSequence(request, tokenizer) for request in requests]
        self._running = len(requests)
        self._pending: dict[int, Delta] = {}
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._abandon = abandon

    def push(self, index: int, output: TokenOutput) -> FinishReason | None:
        """Take one token of sequence `index`; says why the sequence ended, if it did."""
        text, scored, finish = self._sequences[index].push(output)
        delta = self._pending.get(index)
        if delta is None:
            self._pending[index] = Delta(index, text, [output.token], finish, scored)
        else:
            delta.text += text
            delta.tokens.append(output.token)
            delta.finish = finish
            delta.scored += scored
        if finish is not None:
            self._running -= 1
        self._wake()
        return finish

    def fail(self, error: Exception) -> None:
        """End the stream with `error`, once what came before is read; a later one is ignored."""
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        """Once for all that comes before the reader runs."""
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    def sequence(self, index: int) -> LiveSequence:
        """One of the sequences."""
        return self._sequences[index]

    def usage(self, choices: int = 1) -> Usage:
        """Counts so far, where each prompt has `choices` neighbouring sequences."""
        prompts = self._sequences[::choices]
        return Usage(
            prompt_tokens=sum(len(sequence.request.tokens) for sequence in prompts),
            completion_tokens=sum(sequence.generated for sequence in self._sequences),
            cached_tokens=sum(sequence.cached_tokens for sequence in prompts),
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delta]:
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._running == 0:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        deltas = list(self._pending.values())
        self._pending.clear()
        return deltas

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._abandon(self)
