"""Stop strings in streamed text, also where they span tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Lets text through up to the first stop string: the one that ends first, then begins first.

    So the result does not depend on how the text is cut into tokens. Text that may yet turn out
    to begin a stop string is held back, and no more than that.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """Empty stop strings are not allowed; `include` leaves the stop string in the text."""
        self._stops = tuple(stops)
        self._include = include
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Text that may be shown now, and whether a stop string ended it."""
        text = self._held + text
        found = [(at + len(s), at) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            end, at = min(found)
            self._held = ""
            return text[: end if self._include else at], True
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        shown = len(text) - keep
        self._held = text[shown:]
        return text[:shown], False

    def finish(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` and is shorter than it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
