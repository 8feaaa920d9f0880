"""Stop strings, whatever way the text is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tsruntime.server.stops import StopMatcher


def run(pieces: list[str], stops: list[str], *, include: bool = False) -> tuple[str, bool]:
    matcher = StopMatcher(stops, include=include)
    shown = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown += text
        if stopped:
            return shown, True
    return shown + matcher.finish(), False


@given(
    text=st.text("ab\n", max_size=30),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4),
    cuts=st.lists(st.integers(0, 30), max_size=8),
    include=st.booleans(),
)
def test_text_ends_before_the_first_stop_string_however_it_is_cut(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    end, start = min(found, default=(len(text), len(text)))
    shown, stopped = run([text[a:b] for a, b in pairwise(edges)], stops, include=include)
    assert stopped == bool(found)
    assert shown == text[: end if include else start]


def test_only_a_possible_beginning_is_held_back() -> None:
    matcher = StopMatcher(["</end>", "\n\n"])
    assert matcher.push("Hello <") == ("Hello ", False)
    assert matcher.push("b> x\n") == ("<b> x", False)
    assert matcher.push("y") == ("\ny", False)
    assert matcher.push("</en") == ("", False)
    assert matcher.push("d> tail") == ("", True)


def test_overlapping_beginnings() -> None:
    assert run(["a", "a", "a", "b", "c"], ["aab"]) == ("a", True)
    assert run(["x", "ab", "ab", "ac"], ["ababac"]) == ("x", True)


def test_the_stop_string_itself_on_request() -> None:
    assert run(["one S", "TOP two"], ["STOP"], include=True) == ("one STOP", True)


def test_held_text_comes_out_at_the_end() -> None:
    assert run(["end <|"], ["<|stop|>"]) == ("end <|", False)
