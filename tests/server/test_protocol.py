"""Request bodies: what is refused, under which name, and what is let through."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tsruntime.server.errors import ApiError
from tsruntime.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    parse_chat,
    parse_completion,
)

USER = [{"role": "user", "content": "Hi"}]


def refuse(chat: bool, **fields: Any) -> ApiError:
    body = {"messages": USER, **fields} if chat else {"prompt": "ab", **fields}
    with pytest.raises(ApiError) as caught:
        (parse_chat if chat else parse_completion)(json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"seed": 2**63}, "seed"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"model": 5}, "model"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"05": 1}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0665": 1}}, "logit_bias"),
        ({"logit_bias": {"5": "1"}}, "logit_bias[5]"),
        ({"logit_bias": {"5": True}}, "logit_bias[5]"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias[5]"),
        ({"logit_bias": {"6": 0, "5": -101}}, "logit_bias[5]"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
    ],
)
@pytest.mark.parametrize("chat", [False, True])
def test_bad_values_are_named_and_quoted(chat: bool, fields: dict[str, Any], param: str) -> None:
    error = refuse(chat, **fields)
    assert error.param == param
    assert param in error.message


@pytest.mark.parametrize(
    ("chat", "fields", "param"),
    [
        (False, {"logprobs": -1}, "logprobs"),
        (False, {"logprobs": 6}, "logprobs"),
        (False, {"logprobs": True}, "logprobs"),
        (True, {"logprobs": 1}, "logprobs"),
        (True, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        (True, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (True, {"top_logprobs": 3}, "top_logprobs"),
        (True, {"logprobs": False, "top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_numbers_of_log_probabilities_are_bounded(
    chat: bool, fields: dict[str, Any], param: str
) -> None:
    error = refuse(chat, **fields)
    assert error.param == param
    assert param in error.message


def test_biases_and_log_probabilities_are_read() -> None:
    body = {"prompt": "a", "logit_bias": {"5": -100, "7": 2.5}, "logprobs": 5}
    completion = parse_completion(json.dumps(body).encode())
    assert completion.logit_bias == {5: -100.0, 7: 2.5}
    assert completion.likeliest == 5
    for fields, likeliest in (
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"logprobs": True}, 0),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({}, None),
    ):
        assert parse_chat(json.dumps({"messages": USER, **fields}).encode()).likeliest == likeliest


def test_message_says_what_is_wrong_and_what_came() -> None:
    assert refuse(False, max_tokens=0).message == (
        "max_tokens: Input should be greater than or equal to 1 (got 0)"
    )


def test_all_bad_values_are_told_at_once() -> None:
    message = refuse(True, max_tokens=0, top_p=3).message
    assert "max_tokens: " in message
    assert "top_p: " in message


@pytest.mark.parametrize(
    "prompt", ["null", "5", "[]", '[1, "a"]', '[[1], ["a"]]', '{"a": 1}', "[1.5]", "[true]"]
)
def test_bad_prompts(prompt: str) -> None:
    error = refuse(False, prompt=json.loads(prompt))
    assert error.param == "prompt"
    assert "must be a string, a list of strings, a list of token ids" in error.message


@pytest.mark.parametrize(
    ("messages", "param", "text"),
    [
        ([], "messages", "at least 1 item"),
        ("Hi", "messages", "valid array"),
        ([{"role": "user"}], "messages[0].content", "Field required"),
        ([{"role": "robot", "content": ""}], "messages[0].role", "'system', 'developer'"),
        ([*USER, {"role": "tool", "content": "1"}], "messages[1].role", "'assistant'"),
        ([{"role": "user", "content": 5}], "messages[0].content", "string or a list of text parts"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content",
            "part 0 has type 'image_url', but only `text` parts are supported",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content", "no `text`"),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}],
            "messages[0].tool_calls",
            "unrecognized request argument: messages[0].tool_calls",
        ),
    ],
)
def test_bad_messages(messages: Any, param: str, text: str) -> None:
    error = refuse(True, messages=messages)
    assert error.param == param
    assert text in error.message


def test_text_parts_are_joined_and_empty_fields_of_answers_ignored() -> None:
    body: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}] * 2, "name": "Bob"},
            {"role": "assistant", "content": "b", "tool_calls": None, "annotations": []},
        ]
    }
    first, second = parse_chat(json.dumps(body).encode()).messages
    assert (first.content, second.content) == ("a\na", "b")


@pytest.mark.parametrize(
    ("chat", "fields"),
    [
        (True, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (True, {"tool_choice": "auto"}),
        (True, {"modalities": ["audio"]}),
        (True, {"reasoning_effort": "high"}),
        (True, {"chat_template": "x"}),
        (False, {"echo": True}),
        (False, {"best_of": 2}),
        (False, {"suffix": "x"}),
        (False, {"tools": []}),
        *((chat, {"prompt_logprobs": 0}) for chat in (False, True)),
        *((chat, {"response_format": {"type": "json_object"}}) for chat in (False, True)),
        *((chat, {"guided_regex": "a"}) for chat in (False, True)),
        *((chat, {"store": True}) for chat in (False, True)),
        *((chat, {"service_tier": "priority"}) for chat in (False, True)),
        *((chat, {"temprature": 1}) for chat in (False, True)),
        *((chat, {"use_beam_search": True}) for chat in (False, True)),
    ],
)
def test_what_is_not_supported_is_refused_by_name(chat: bool, fields: dict[str, Any]) -> None:
    (name,) = fields
    error = refuse(chat, **fields)
    assert error.param == name
    assert name in error.message
    assert "not supported" in error.message or "unrecognized" in error.message


def test_unsupported_stream_options_are_named() -> None:
    error = refuse(True, stream=True, stream_options={"continuous_usage_stats": True})
    assert error.param == "stream_options.continuous_usage_stats"


def test_parameters_that_ask_for_nothing_pass() -> None:
    shared = {
        "model": None,
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "logit_bias": {},
        "service_tier": "auto",
        "n": 1,
        "seed": None,
        "stop": None,
        "stream": False,
        "response_format": {"type": "text"},
        "logprobs": None,
    }
    parse_completion(json.dumps({"prompt": "a", "best_of": 1, "echo": False, **shared}).encode())
    chat = {
        "messages": USER,
        "tools": None,
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "top_logprobs": None,
        "modalities": ["text"],
        **shared,
    }
    parse_chat(json.dumps(chat | {"logprobs": False}).encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"prompt": "a",}', b"\xff\xfe", b'{"prompt": "\\ud800"}', b'{"prompt": "\xff"}'],
)
def test_invalid_json(body: bytes) -> None:
    with pytest.raises(ApiError, match="the request body is no valid JSON: ") as caught:
        parse_completion(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [b"[]", b"5", b'"a"', b"null"])
def test_json_that_is_no_object(body: bytes) -> None:
    with pytest.raises(ApiError, match=r"request body: .*object"):
        parse_completion(body)


@pytest.mark.parametrize(
    "body", [b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a", "top_p": Infinity}']
)
def test_numbers_must_be_finite(body: bytes) -> None:
    with pytest.raises(ApiError, match=r"finite|less than or equal"):
        parse_completion(body)


def test_the_document_names_every_parameter() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
    told = set(re.findall(r"`([a-z_]+)`", text))
    for model in (CompletionRequest, ChatCompletionRequest):
        assert set(model.model_fields) <= told
        assert set(model.harmless) <= told
