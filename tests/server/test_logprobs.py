"""Log-probabilities and biases over HTTP, by the openai client's own types."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from fake_engine import EOS, FakeEngine, Submit, score, token_id
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionTokenLogprob
from openai.types.completion_choice import Logprobs
from served_app import ServedApp
from tokenizers import Tokenizer

from tsruntime.sampling.params import TokenLogprobs
from tsruntime.server.pieces import Pieces

TEXT = "Grüße aus Köln! 🙂 It is 東京."
USER: list[Any] = [{"role": "user", "content": "Hi"}]


def reply(served: ServedApp, tokenizer: Tokenizer, text: str) -> list[int]:
    """Have the engine answer `text`, then end; the tokens before the end."""
    ids: list[int] = tokenizer.encode(text).ids

    def answer(submit: Submit) -> list[int]:
        return [*ids, token_id(tokenizer, EOS)]

    served.engine.reply = answer
    return ids


def joined(content: Iterable[ChatCompletionTokenLogprob]) -> bytes:
    return b"".join(bytes(one.bytes or ()) for one in content)


def ask(
    client: openai.OpenAI, stream: bool, **given: Any
) -> tuple[str, list[ChatCompletionTokenLogprob]]:
    """Text and log-probabilities of a chat, every part of which the client's types accept."""
    create = cast("Any", client.chat.completions.create)
    answer = create(model="tiny", messages=USER, logprobs=True, stream=stream, **given)
    if not stream:
        (choice,) = ChatCompletion.model_validate_json(answer.to_json()).choices
        assert choice.logprobs is not None
        assert choice.logprobs.refusal is None
        return choice.message.content or "", choice.logprobs.content or []
    text, content = "", list[ChatCompletionTokenLogprob]()
    for chunk in answer:
        (part,) = ChatCompletionChunk.model_validate_json(chunk.to_json()).choices
        new = part.logprobs.content if part.logprobs else None
        assert (new or []) == [] or part.delta.content
        text += part.delta.content or ""
        content += new or []
        assert joined(content).decode() == text
    return text, content


@pytest.mark.parametrize("stream", [False, True])
def test_chat(served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer, stream: bool) -> None:
    ids = reply(served, tokenizer, TEXT)
    text, content = ask(client, stream, top_logprobs=3)
    assert text == TEXT
    assert joined(content).decode() == TEXT
    assert len(content) == len(ids)  # the end of the turn is no part of the message
    pieces = Pieces(tokenizer)
    for token, one in zip(ids, content, strict=True):
        expected = score(token, 3)
        assert one.logprob == expected.logprob
        assert [t.logprob for t in one.top_logprobs] == [value for _, value in expected.top]
        assert [t.token for t in one.top_logprobs] == [pieces[id_].name for id_, _ in expected.top]
    names = [one.token for one in content]
    assert "\\xf0" in names or any(name.startswith("\\xf0\\x9f") for name in names)
    assert served.engine.submitted[-1].params.logprobs == 3


@pytest.mark.parametrize("stream", [False, True])
def test_without_top_logprobs_only_the_drawn_tokens_are_shown(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer, stream: bool
) -> None:
    reply(served, tokenizer, TEXT)
    text, content = ask(client, stream)
    assert text == joined(content).decode() == TEXT
    assert all(one.top_logprobs == [] for one in content)
    assert served.engine.submitted[-1].params.logprobs == 0


def test_who_asks_for_none_gets_none(client: openai.OpenAI) -> None:
    create = cast("Any", client.chat.completions.create)
    answer = create(model="tiny", messages=USER, max_tokens=3, logprobs=False)
    assert answer.choices[0].logprobs is None
    chunks = list(create(model="tiny", messages=USER, max_tokens=3, stream=True))
    assert all(chunk.choices[0].logprobs is None for chunk in chunks)
    assert client.completions.create(model="tiny", prompt="a").choices[0].logprobs is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("stop", "shown"), [("Köln", "Grüße aus "), ("ln! 🙂 It", "Grüße aus Kö")])
def test_tokens_of_a_stop_string_are_not_shown(
    served: ServedApp,
    client: openai.OpenAI,
    tokenizer: Tokenizer,
    stream: bool,
    stop: str,
    shown: str,
) -> None:
    """A token that is partly shown is: its bytes may go beyond the text, by less than itself."""
    ids = reply(served, tokenizer, TEXT)
    create = cast("Any", client.chat.completions.create)
    answer = create(
        model="tiny", messages=USER, logprobs=True, max_tokens=len(ids), stop=[stop], stream=stream
    )
    parts = list(answer) if stream else [answer]
    content = [
        one
        for part in parts
        if part.choices[0].logprobs
        for one in part.choices[0].logprobs.content
    ]
    message = "".join(
        (p.choices[0].delta.content if stream else p.choices[0].message.content) or ""
        for p in parts
    )
    assert message == shown
    assert joined(content[:-1]).decode() in shown
    assert joined(content[:-1]) != shown.encode()
    assert joined(content).startswith(shown.encode())


def completion(
    client: openai.OpenAI, stream: bool, **given: Any
) -> tuple[str, dict[str, list[Any]]]:
    """Text and log-probabilities of a completion, a stream's put together."""
    create = cast("Any", client.completions.create)
    answer = create(model="tiny", prompt="x", stream=stream, **given)
    parts = list(answer) if stream else [answer]
    text = ""
    lists: dict[str, list[Any]] = {
        "tokens": [],
        "text_offset": [],
        "token_logprobs": [],
        "top_logprobs": [],
    }
    for part in parts:
        (choice,) = part.choices
        text += choice.text
        if choice.logprobs is None:
            continue
        checked = Logprobs.model_validate_json(choice.logprobs.to_json())
        for name, found in lists.items():
            found += getattr(checked, name)
    if not stream:
        Completion.model_validate_json(answer.to_json())
    return text, lists


@pytest.mark.parametrize("stream", [False, True])
def test_completion(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer, stream: bool
) -> None:
    ids = reply(served, tokenizer, TEXT)
    text, found = completion(client, stream, max_tokens=100, logprobs=2)
    assert text == TEXT
    pieces = Pieces(tokenizer)
    names = found["tokens"]
    assert names == [pieces[id_].legacy_name for id_ in ids]
    assert found["token_logprobs"] == [score(id_, 2).logprob for id_ in ids]
    for name, offset in zip(names, found["text_offset"], strict=True):
        assert name.startswith("bytes:\\x") or text[offset:].startswith(name)
    assert [name for name in names if name.startswith("bytes:")]
    for id_, shown in zip(ids, found["top_logprobs"], strict=True):
        assert len(shown) == (2 if id_ % 2 == 0 else 3)  # the drawn one is always there
        assert shown[pieces[id_].legacy_name] == score(id_, 2).logprob


def test_a_completion_s_zero_shows_the_drawn_token_alone(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    reply(served, tokenizer, "ab")
    _, found = completion(client, False, max_tokens=1, logprobs=0)
    name = Pieces(tokenizer)[tokenizer.encode("ab").ids[0]].legacy_name
    assert found["top_logprobs"] == [{name: -0.125}]


def test_what_json_cannot_hold_is_very_unlikely(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    reply(served, tokenizer, "ab")
    served.engine.score = lambda token, count: TokenLogprobs(
        float("-inf"), ((token + 1, -0.5), (token, float("-inf")))
    )
    _, content = ask(client, False, top_logprobs=2, max_tokens=1)
    assert content[0].logprob == -9999.0
    assert [top.logprob for top in content[0].top_logprobs] == [-0.5, -9999.0]


def test_tokens_without_a_tokenizer_have_numbers(bare_artifact: Path) -> None:
    with (
        ServedApp(bare_artifact, FakeEngine()) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        create = cast("Any", client.completions.create)
        for stream in (False, True):
            answer = create(model="tiny", prompt=[5, 8], max_tokens=2, logprobs=1, stream=stream)
            parts = list(answer) if stream else [answer]
            found = [p.choices[0].logprobs for p in parts if p.choices[0].logprobs]
            assert [name for logprobs in found for name in logprobs.tokens] == [
                "token_id:5",
                "token_id:8",
            ]
            assert found[0].top_logprobs[0] == {"token_id:5": -0.25, "token_id:6": -0.125}


def test_every_choice_has_its_own(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    ids = reply(served, tokenizer, "abc")
    answer = client.chat.completions.create(model="tiny", messages=USER, n=3, logprobs=True)
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [one.logprob for one in choice.logprobs.content] == [
            score(id_, 0).logprob for id_ in ids
        ]


def test_biases_reach_the_engine(served: ServedApp, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="tiny", messages=USER, max_tokens=1, logit_bias={"7": -100, "9": 5}
    )
    assert served.engine.submitted[-1].params.logit_bias == ((7, -100.0), (9, 5.0))
    assert served.engine.submitted[-1].params.logprobs is None
