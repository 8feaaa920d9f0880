"""Incremental detokenization: text of a growing token sequence, whole characters only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from tsruntime.server.tokenizer import TextTokenizer

_BROKEN: Final = "\ufffd"
_CONTEXT: Final = 6
"""Prompt tokens decoded along with the first output, so that a leading space is kept."""


class Detokenizer:
    """Text of one request's output, piece by piece.

    The last piece given out is decoded again together with what follows, since a decoder may join
    or strip at a token's edge; the new text is what goes beyond it. (The scheme of Hugging Face's
    text-generation-inference and of vLLM.) A character that is still incomplete is held back.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = _context(tokenizer, prompt)
        self._known = len(self._window)
        self._text = tokenizer.decode(self._window)

    def push(self, token: int) -> str:
        """The text that `token` completes, possibly none."""
        if not self._tokenizer.has_text(token):
            return ""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        if text.endswith(_BROKEN):
            return ""
        new = self._beyond(text)
        if not new:
            return ""
        self._window = self._window[self._known :]
        self._known = len(self._window)
        self._text = self._tokenizer.decode(self._window)
        return new

    def finish(self) -> str:
        """What is still held back, less a character that was never completed."""
        if len(self._window) == self._known:
            return ""
        return self._beyond(self._tokenizer.decode(self._window)).rstrip(_BROKEN)

    def _beyond(self, text: str) -> str:
        if self._text.endswith(_BROKEN):  # the prompt ended within a character
            same = takewhile(lambda pair: pair[0] == pair[1], zip(self._text, text, strict=False))
            return text[sum(1 for _ in same) :]
        return text[len(self._text) :]


def _context(tokenizer: TextTokenizer, prompt: Sequence[int]) -> list[int]:
    """The end of `prompt`, from where a character begins; one has at most four bytes."""
    for length in range(_CONTEXT, _CONTEXT + 4):
        context = [token for token in prompt[-length:] if tokenizer.has_text(token)]
        if not tokenizer.decode(context).startswith(_BROKEN):
            return context
    return []
