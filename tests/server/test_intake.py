"""Requests against the artifact's limits, and defaults from API and checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import EOS, MAX_MODEL_LEN, token_id
from tokenizers import Tokenizer

from tsruntime.sampling.params import SamplingParams
from tsruntime.server.errors import ApiError
from tsruntime.server.intake import GenerationRequest, Intake
from tsruntime.server.loading import load_intake
from tsruntime.server.protocol import parse_chat, parse_completion
from tsruntime.server.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def intake(artifact: Path) -> Intake:
    return load_intake(artifact, None)


def completion(intake: Intake, **fields: object) -> list[GenerationRequest]:
    return intake.completion(parse_completion(json.dumps({"prompt": "ab", **fields}).encode()))


def chat(intake: Intake, **fields: object) -> list[GenerationRequest]:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return intake.chat(parse_chat(json.dumps(body).encode()))


def refusal(intake: Intake, **fields: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        completion(intake, **fields)
    assert caught.value.status == 400
    return caught.value


def test_defaults_are_openai_s(intake: Intake, tokenizer: Tokenizer) -> None:
    end = token_id(tokenizer, EOS)
    (request,) = completion(intake)
    assert request.tokens == tuple(tokenizer.encode("ab").ids)
    expected = SamplingParams(16, seed=request.params.seed, stop_token_ids=(end,))
    assert request.params == expected
    (answer,) = chat(intake)
    assert answer.params.max_tokens == MAX_MODEL_LEN - len(answer.tokens)
    assert answer.params.seed != request.params.seed


def test_checkpoint_defaults_yield_to_the_request(intake: Intake) -> None:
    generation = replace(
        intake.serving.generation, temperature=0.6, top_p=0.95, top_k=20, eos_token_ids=(2, 5)
    )
    tuned = replace(intake, serving=replace(intake.serving, generation=generation))
    (request,) = completion(tuned)
    assert (request.params.temperature, request.params.top_p) == (0.6, 0.95)
    assert (request.params.top_k, request.params.stop_token_ids) == (20, (2, 5))
    (request,) = completion(tuned, temperature=0, top_p=1, top_k=-1, stop_token_ids=[7, 5])
    assert (request.params.temperature, request.params.top_p) == (0, 1)
    assert (request.params.top_k, request.params.stop_token_ids) == (0, (2, 5, 7))
    (request,) = completion(tuned, ignore_eos=True, stop_token_ids=[7])
    assert request.params.stop_token_ids == (7,)


def test_every_sampling_parameter_arrives(intake: Intake, tokenizer: Tokenizer) -> None:
    (request,) = completion(
        intake,
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        min_p=0.125,
        seed=-4,
        repetition_penalty=1.5,
        presence_penalty=-1,
        frequency_penalty=2,
        min_tokens=2,
        stop=["x", "yz"],
        include_stop_str_in_output=True,
    )
    assert request.params == SamplingParams(
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        min_p=0.125,
        seed=-4,
        repetition_penalty=1.5,
        presence_penalty=-1,
        frequency_penalty=2,
        min_tokens=2,
        stop_token_ids=(token_id(tokenizer, EOS),),
    )
    assert (request.stop, request.include_stop) == (("x", "yz"), True)


def test_choices_and_prompts_have_seeds_of_their_own(intake: Intake) -> None:
    fixed = completion(intake, prompt=["a", "b"], n=3, seed=10)
    assert [r.params.seed for r in fixed] == [10, 11, 12, 10, 11, 12]
    assert [r.fork for r in fixed] == [False, True, True] * 2
    assert [r.tokens for r in fixed[:3]] == [fixed[0].tokens] * 3
    drawn = completion(intake, prompt=["a", "a"], n=3)
    assert len({r.params.seed for r in drawn}) == 6


@pytest.mark.parametrize(
    ("prompt", "count"), [("ab", 1), (["ab", "c"], 2), ([5, 6, 7], 1), ([[5], [6, 7]], 2)]
)
def test_every_form_of_prompt(intake: Intake, prompt: object, count: int) -> None:
    requests = completion(intake, prompt=prompt)
    assert len(requests) == count
    if isinstance(prompt, list) and prompt[0] in (5, [5]):
        assert requests[-1].tokens[-1] == 7


def test_special_tokens_spelled_out_count(intake: Intake, tokenizer: Tokenizer) -> None:
    (request,) = completion(intake, prompt="a<|im_end|>")
    assert request.tokens[-1] == token_id(tokenizer, EOS)


def test_bos_is_added_once_where_the_checkpoint_asks(artifact: Path, intake: Intake) -> None:
    text = TextTokenizer(artifact / "tokenizer" / "tokenizer.json", bos_token_id=0)
    assert text.encode("a", add_special_tokens=True)[0] == 0
    assert text.encode("<|endoftext|>a", add_special_tokens=True).count(0) == 1
    assert 0 not in text.encode("a", add_special_tokens=False)


def test_prompt_beyond_the_context_states_both_numbers(intake: Intake) -> None:
    for length in (MAX_MODEL_LEN, MAX_MODEL_LEN + 1):
        error = refusal(intake, prompt=[1] * length)
        assert error.message == (
            f"the prompt has {length} tokens, but max_model_len is 200; shorten it to at most 199, "
            "since at least one token is generated"
        )
        assert (error.param, error.code) == ("prompt", "context_length_exceeded")
    (request,) = completion(intake, prompt=[1] * (MAX_MODEL_LEN - 1))
    assert request.params.max_tokens == 1


def test_max_tokens_beyond_the_context_states_the_largest(intake: Intake) -> None:
    error = refusal(intake, prompt=[1] * 50, max_tokens=151)
    assert error.message == (
        "max_tokens is 151, but the largest for this prompt of 50 tokens is 150 "
        "(max_model_len is 200)"
    )
    assert error.param == "max_tokens"
    (request,) = completion(intake, prompt=[1] * 50, max_tokens=150)
    assert request.params.max_tokens == 150
    with pytest.raises(ApiError) as caught:
        chat(intake, max_completion_tokens=200)
    assert caught.value.param == "max_completion_tokens"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ""}, "the prompt is empty: it has no token"),
        ({"prompt": [400]}, "prompt has the token id 400, outside the vocabulary of"),
        ({"prompt": [-1]}, "prompt has the token id -1, outside the vocabulary of"),
        ({"stop_token_ids": [9999]}, "stop_token_ids has the token id 9999, outside"),
        ({"min_tokens": 17}, "min_tokens is 17, above the limit of 16 tokens"),
        ({"prompt": ["a"] * 600, "n": 2}, "600 prompts times n=2 exceed the 1024 sequences"),
    ],
)
def test_other_limits(intake: Intake, fields: dict[str, object], message: str) -> None:
    assert message in refusal(intake, **fields).message


def test_without_tokenizer_only_token_ids_are_served(bare_artifact: Path) -> None:
    bare = load_intake(bare_artifact, "other-name")
    assert bare.name == "other-name"
    assert completion(bare, prompt=[1, 2])[0].tokens == (1, 2)
    assert "built without a tokenizer" in refusal(bare, prompt="ab").message
    assert "stop strings need a tokenizer" in refusal(bare, prompt=[1], stop="x").message
    with pytest.raises(ApiError, match=r"without a chat template \(`chat: false`\)") as caught:
        chat(bare)
    assert caught.value.status == 400


def test_min_tokens_need_a_token_that_does_not_stop(intake: Intake) -> None:
    tiny = replace(intake, serving=replace(intake.serving, vocab_size=3))
    every = {"prompt": [1], "stop_token_ids": [0, 1, 2]}
    assert completion(tiny, **every)
    assert refusal(tiny, **every, min_tokens=1).param == "stop_token_ids"


def test_chat_renders_the_template_with_its_variables(intake: Intake, tokenizer: Tokenizer) -> None:
    (request,) = chat(intake)
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert request.tokens == tuple(tokenizer.encode(text).ids)
    (request,) = chat(intake, add_generation_prompt=False)
    assert request.tokens == tuple(tokenizer.encode(text[: text.index("<|im_start|>a")]).ids)
