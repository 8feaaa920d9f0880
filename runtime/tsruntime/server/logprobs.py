"""Log-probabilities as the API words them: a list of tokens, or parallel lists in completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from tsruntime.server.pieces import Pieces
from tsruntime.server.scores import Scored

Json: TypeAlias = dict[str, object]

UNLIKELY: Final = -9999.0
"""What the API says of all that is less likely, which JSON's numbers may not hold."""


def chat_logprobs(scored: Sequence[Scored], pieces: Pieces) -> Json:
    """`choices[].logprobs` of a chat."""
    content = [
        {
            **_token(one.token, one.logprobs.logprob, pieces),
            "top_logprobs": [_token(token, value, pieces) for token, value in one.logprobs.top],
        }
        for one in scored
    ]
    return {"content": content, "refusal": None}


def _token(token: int, value: float, pieces: Pieces) -> Json:
    piece = pieces[token]
    data = None if piece.data is None else list(piece.data)
    return {"token": piece.name, "bytes": data, "logprob": max(value, UNLIKELY)}


def legacy_logprobs(scored: Sequence[Scored], pieces: Pieces) -> Json:
    """`choices[].logprobs` of a completion: the token itself is always among the likeliest."""
    return {
        "text_offset": [one.offset for one in scored],
        "token_logprobs": [max(one.logprobs.logprob, UNLIKELY) for one in scored],
        "tokens": [pieces[one.token].legacy_name for one in scored],
        "top_logprobs": [_likeliest(one, pieces) for one in scored],
    }


def _likeliest(one: Scored, pieces: Pieces) -> dict[str, float]:
    """By name. Of tokens that share one, the likeliest is told, or the drawn one."""
    shown: dict[str, float] = {}
    for token, value in (*one.logprobs.top, (one.token, one.logprobs.logprob)):
        name = pieces[token].legacy_name
        if name not in shown or token == one.token:
            shown[name] = max(value, UNLIKELY)
    return shown
