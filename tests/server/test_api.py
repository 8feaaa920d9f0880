"""The API over HTTP, driven by the real openai client."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import httpx
import openai
import pytest
from fake_engine import EOS, MAX_MODEL_LEN, FakeEngine, Submit, token_id, write_artifact
from openai.types import Completion
from served_app import ServedApp
from tokenizers import Tokenizer

from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.server.loading import load_intake

PROMPT = "Once upon a time"


def say(tokenizer: Tokenizer, text: str) -> Callable[[Submit], list[int]]:
    """A reply of `text`, then the end-of-sequence token."""
    ids = tokenizer.encode(text).ids
    return lambda submit: [*ids, token_id(tokenizer, EOS)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def complete(client: openai.OpenAI, **given: Any) -> Completion:
    return cast("Any", client.completions.create)(model="tiny", **given)


def stream_of(client: openai.OpenAI, **given: Any) -> list[Completion]:
    return list(cast("Any", client.completions.create)(model="tiny", stream=True, **given))


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "tscompile")
    assert client.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("other/model")


def test_health(served: ServedApp) -> None:
    assert httpx.get(f"{served.url}/health").status_code == 200
    served.draining = True
    answer = httpx.get(f"{served.url}/health")
    served.draining = False
    assert answer.status_code == 503
    assert answer.json()["reason"] == "the server is shutting down"


def test_completion(served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    served.engine.cached_tokens = 1
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=5)
    ids = tokenizer.encode(PROMPT).ids
    (choice,) = answer.choices
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.model == "tiny"
    assert abs(answer.created - time.time()) < 60
    assert choice.text == tokenizer.decode((ids * 5)[:5])
    assert (choice.finish_reason, choice.index, choice.logprobs) == ("length", 0, None)
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(ids), 5)
    assert usage.total_tokens == len(ids) + 5
    assert usage.prompt_tokens_details.cached_tokens == 1


def test_completion_streams_the_same_text(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"prompt": "Grüße 🙂 ", "max_tokens": 60}
    whole = complete(client, **given)
    chunks = stream_of(client, **given)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert "🙂 Grüße" in whole.choices[0].text
    assert not [chunk for chunk in chunks if "\ufffd" in chunk.choices[0].text]
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_and_choices_are_numbered(
    client: openai.OpenAI, tokenizer: Tokenizer, stream: bool
) -> None:
    prompts = [tokenizer.encode(text).ids for text in ("ab", "cde")]
    given: dict[str, Any] = {"prompt": prompts, "n": 2, "max_tokens": 9}
    texts = dict.fromkeys(range(4), "")
    if stream:
        options = {"include_usage": True}
        chunks = stream_of(client, **given, stream_options=options)
        *chunks, last = chunks
        usage = last.usage
        assert last.choices == []
        assert all(chunk.usage is None for chunk in chunks)
        for chunk in chunks:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    else:
        answer = complete(client, **given)
        usage = answer.usage
        texts |= {choice.index: choice.text for choice in answer.choices}
    assert texts == {0: "abababab" + "a", 1: "abababab" + "a", 2: "cdecdecde", 3: "cdecdecde"}
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 36)


def test_chat(served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    served.engine.reply = say(tokenizer, "It is Paris. 🙂")
    answer = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Capital of France?"}]},
        ],
    )
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert (choice.message.role, choice.message.content) == ("assistant", "It is Paris. 🙂")
    assert choice.finish_reason == "stop"
    submit = served.engine.submitted[-1]
    assert tokenizer.decode(submit.tokens, skip_special_tokens=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nCapital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert submit.params.max_tokens == MAX_MODEL_LEN - len(submit.tokens)
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens == len(tokenizer.encode("It is Paris. 🙂").ids) + 1


def test_chat_streams_role_text_reason_and_usage(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer
) -> None:
    served.engine.reply = say(tokenizer, "It is Paris. 🙂")
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    assert [chunk.choices[0].delta.role for chunk in chunks[:3]] == ["assistant", "assistant", None]
    for index in (0, 1):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == "It is Paris. 🙂"
        assert [choice.finish_reason for choice in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1].finish_reason == "stop"
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 2 * (len(tokenizer.encode("It is Paris. 🙂").ids) + 1)


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_end_the_text_and_the_request(
    served: ServedApp, client: openai.OpenAI, tokenizer: Tokenizer, stream: bool
) -> None:
    served.engine.reply = say(tokenizer, "one two; three END four five six")
    served.engine.step_seconds = 0.002
    given: dict[str, Any] = {"prompt": "a", "max_tokens": 100, "stop": ["e END f"]}
    if stream:
        chunks = stream_of(client, **given)
        text = "".join(chunk.choices[0].text for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = complete(client, **given).choices[0]
        text, reason = choice.text, choice.finish_reason
    assert (text, reason) == ("one two; thre", "stop")
    id_ = served.engine.submitted[-1].id
    until(lambda: id_ in served.engine.aborted)


def test_token_ids_on_request(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ab").ids
    given: dict[str, Any] = {"prompt": ids, "max_tokens": 3}
    extra = {"return_token_ids": True}
    answer = complete(client, **given, extra_body=extra)
    assert answer.choices[0].model_extra == {"token_ids": [*ids, ids[0]]}
    found: list[int] = []
    for chunk in stream_of(client, **given, extra_body=extra):
        found += (chunk.choices[0].model_extra or {})["token_ids"]
    assert found == [*ids, ids[0]]
    assert "token_ids" not in (complete(client, **given).choices[0].model_extra or {})


def test_vllm_extras_reach_the_engine(served: ServedApp, client: openai.OpenAI) -> None:
    client.completions.create(
        model="tiny",
        prompt="a",
        extra_body={"top_k": 7, "min_p": 0.5, "repetition_penalty": 1.5, "ignore_eos": True},
    )
    params = served.engine.submitted[-1].params
    assert (params.top_k, params.min_p, params.repetition_penalty) == (7, 0.5, 1.5)
    assert params.stop_token_ids == ()


def test_many_clients_at_once(served: ServedApp, client: openai.OpenAI) -> None:
    def ask(letter: str) -> str:
        chunks = client.completions.create(
            model="tiny", prompt=letter, max_tokens=50, stream=True, temperature=0
        )
        return "".join(chunk.choices[0].text for chunk in chunks)

    served.engine.step_seconds = 0.001
    letters = "abcdefghijklmnop"
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, letters)) == [letter * 50 for letter in letters]
    assert served.frontend.live == 0


def test_a_client_that_leaves_a_stream_ends_its_request(
    served: ServedApp, client: openai.OpenAI
) -> None:
    served.engine.step_seconds = 0.01
    with client.completions.create(model="tiny", prompt="a", max_tokens=190, stream=True) as stream:
        next(iter(stream))
    id_ = served.engine.submitted[-1].id
    until(lambda: id_ in served.engine.aborted)
    assert id_ not in served.engine.finished


def test_a_client_that_leaves_without_a_stream_ends_its_request(
    served: ServedApp, client: openai.OpenAI
) -> None:
    served.engine.step_seconds = 0.01
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.2).completions.create(
            model="tiny", prompt="a", max_tokens=190
        )
    id_ = served.engine.submitted[-1].id
    until(lambda: id_ in served.engine.aborted)
    assert id_ not in served.engine.finished


def post(served: ServedApp, path: str, body: bytes | dict[str, Any]) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{served.url}{path}", content=content)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    (body,) = answer.json().values()
    assert set(body) == {"message", "type", "param", "code"}
    return body


def hello(role: str) -> list[dict[str, str]]:
    return [{"role": role, "content": "Hi"}]


BAD_COMPLETIONS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, "prompt", "prompt: Field required"),
    ({"prompt": [1] * 201}, "prompt", "has 201 tokens, but max_model_len is 200"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", "equal to 1 (got 0)"),
    ({"prompt": "a", "max_tokens": 200}, "max_tokens", "200, but the largest for this prompt of 1"),
    ({"prompt": "a", "logprobs": 6}, "logprobs", "less than or equal to 5 (got 6)"),
    ({"prompt": "a", "logit_bias": {"400": 1}}, "logit_bias", "400, outside the vocabulary of"),
    ({"prompt": "a", "prompt_logprobs": 1}, "prompt_logprobs", "is not supported"),
)
BAD_CHATS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"messages": hello("user"), "tools": [1]}, "tools", "tools is not supported"),
    ({"messages": hello("developer")}, "messages", "refused the messages: no developer here"),
    ({"messages": hello("user"), "max_tokens": 0}, "max_tokens", "equal to 1 (got 0)"),
)


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        *(("completions", *bad) for bad in BAD_COMPLETIONS),
        *(("chat/completions", *bad) for bad in BAD_CHATS),
    ],
)
def test_bad_parameters(
    served: ServedApp, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    answer = post(served, f"/v1/{path}", body)
    error = error_of(answer)
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]
    assert post(served, "/v1/completions", {"prompt": "a"}).status_code == 200  # the server lives


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("completions", b"{", 400, "the request body is no valid JSON"),
        ("chat/completions", b"nonsense", 400, "the request body is no valid JSON"),
        ("completions", b'{"prompt": "a", "model": "gpt"}', 404, "the model `gpt` does not exist"),
        ("nowhere", b"{}", 404, "Not Found: POST /v1/nowhere"),
        ("models", b"{}", 405, "Method Not Allowed: POST /v1/models"),
    ],
)
def test_bad_requests(served: ServedApp, path: str, body: bytes, status: int, message: str) -> None:
    answer = post(served, f"/v1/{path}", body)
    assert answer.status_code == status
    assert message in error_of(answer)["message"]


def test_the_client_sees_its_mistake(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt=[1] * 201, stream=True)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="a")
    assert missing.value.code == "model_not_found"


def test_get_where_post_is_meant(served: ServedApp) -> None:
    answer = httpx.get(f"{served.url}/v1/completions")
    assert answer.status_code == 405
    assert error_of(answer)["message"] == "Method Not Allowed: GET /v1/completions"
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("declared", [True, False])
def test_a_huge_body_is_refused(served: ServedApp, declared: bool) -> None:
    body = b" " * ((16 << 20) + 1)

    def parts() -> Any:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    answer = httpx.post(f"{served.url}/v1/completions", content=body if declared else parts())
    assert answer.status_code == 413
    assert "16777216 bytes" in error_of(answer)["message"]


def test_a_large_body_is_served_and_does_not_delay_others(served: ServedApp) -> None:
    body = {"prompt": "a" * 50_000}
    answer = post(served, "/v1/completions", body)
    assert answer.status_code == 400
    assert "has 50000 tokens, but max_model_len is 200" in error_of(answer)["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_is_a_bad_request(served: ServedApp, stream: bool) -> None:
    served.engine.refuse = lambda submit: "needs 9 pages, but the pool has 4"
    answer = post(served, "/v1/completions", {"prompt": "a", "stream": stream})
    assert answer.status_code == 400
    assert error_of(answer)["message"] == "needs 9 pages, but the pool has 4"


def test_a_half_sent_request_does_no_harm(served: ServedApp) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    assert post(served, "/v1/completions", {"prompt": "a"}).status_code == 200


def test_a_body_that_never_comes_is_given_up(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsruntime.server.app.BODY_SECONDS", 0.1)
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        answer = b""
        while not answer.endswith(b"}}"):
            answer += sock.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.1 seconds" in answer


def test_raw_stream_is_server_sent_events(served: ServedApp) -> None:
    answer = post(served, "/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "aaa"
    assert "usage" not in chunks[0]


def test_without_chat_template_and_tokenizer(bare_artifact: Any) -> None:
    with ServedApp(bare_artifact, FakeEngine()) as served:
        chat = {"messages": [{"role": "user", "content": "a"}]}
        answer = post(served, "/v1/chat/completions", chat)
        assert answer.status_code == 400
        assert "built without a chat template (`chat: false`)" in error_of(answer)["message"]
        answer = post(served, "/v1/completions", {"prompt": "a"})
        assert "built without a tokenizer" in error_of(answer)["message"]
        answer = post(served, "/v1/completions", {"prompt": [7, 8], "max_tokens": 3})
        assert answer.json()["choices"][0]["token_ids"] == [7, 8, 7]
        assert answer.json()["choices"][0]["text"] == ""


def test_the_engine_s_end_reaches_every_client(artifact: Any) -> None:
    with ServedApp(artifact, FakeEngine(step_seconds=0.01)) as served:
        base = f"{served.url}/v1"
        with openai.OpenAI(base_url=base, api_key="none", max_retries=0) as client:
            given: dict[str, Any] = {"prompt": "a", "max_tokens": 190}
            stream = client.completions.create(
                model="tiny", prompt="a", max_tokens=190, stream=True
            )
            next(stream)
            with ThreadPoolExecutor(1) as pool:
                whole = pool.submit(complete, client, **given)
                until(lambda: served.frontend.live == 2)
                served.engine.die("rank 0 was killed by SIGKILL")
                with pytest.raises(openai.APIError, match="rank 0 was killed by SIGKILL"):
                    list(stream)
                with pytest.raises(openai.InternalServerError) as caught:
                    whole.result(10)
                assert caught.value.status_code == 503
        answer = httpx.get(f"{served.url}/health")
        assert answer.status_code == 503
        assert answer.json()["reason"] == "rank 0 was killed by SIGKILL"
        assert post(served, "/v1/completions", {"prompt": "a"}).status_code == 503


def test_a_damaged_template_is_found_at_start(tmp_path: Any, tokenizer: Tokenizer) -> None:
    path = write_artifact(tmp_path / "a", tokenizer=tokenizer, chat_template="{% if %}")
    with pytest.raises(ArtifactDamaged, match="the chat template does not parse"):
        load_intake(path, None)
