"""Log-probabilities of tokens, held back until the text of their tokens is shown."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tsruntime.sampling.params import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of an answer; `offset` counts the characters of the answer before its own."""

    token: int
    offset: int
    logprobs: TokenLogprobs


class Scores:
    """Of one sequence. What the client gets are the tokens of the text that it gets.

    A token belongs to the text from where it begins, one that completes no character together with
    the one that does. So tokens of a stop string that is cut off are dropped, and those of a text
    that may yet become one wait with it.
    """

    def __init__(self) -> None:
        self._held: deque[Scored] = deque()
        self._made = 0
        self._shown = 0

    def add(self, token: int, text: str, logprobs: TokenLogprobs) -> None:
        """A token came that completed `text`, shown or not."""
        self._held.append(Scored(token, self._made, logprobs))
        self._made += len(text)

    def show(self, text: str) -> list[Scored]:
        """The tokens that `text`, shown now, makes known."""
        self._shown += len(text)
        shown: list[Scored] = []
        while self._held and self._held[0].offset < self._shown:
            shown.append(self._held.popleft())
        return shown

    def finish(self) -> list[Scored]:
        """All that is left at an end that cut nothing off."""
        rest = list(self._held)
        self._held.clear()
        return rest
