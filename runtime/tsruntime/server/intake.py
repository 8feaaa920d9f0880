"""From checked request bodies to what the engine is asked, within the artifact's limits."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from tsruntime.artifact.chat_template import ChatTemplate, TemplateRefused
from tsruntime.artifact.serving import Serving
from tsruntime.sampling.params import SamplingParams
from tsruntime.server.errors import ApiError
from tsruntime.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    Prompt,
    SamplingRequest,
)
from tsruntime.server.tokenizer import TextTokenizer

COMPLETION_TOKENS: Final = 16
"""OpenAI's `max_tokens` for completions that name none; chat goes on to the end of the context."""

MAX_CHOICES: Final = 1024
"""Prompts times `n` that one request may ask for."""


_DRAWN: Final = random.Random()
"""Seeds of requests that give none: no secrets, so the system is asked for randomness once."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate. `stop` strings are the front end's affair.

    A `fork` is one more answer to the prompt of the nearest request before it that is none.
    """

    tokens: tuple[int, ...]
    params: SamplingParams
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    fork: bool = False


@dataclass(frozen=True, slots=True)
class Intake:
    """The served model as requests see it, under the name `name`."""

    name: str
    serving: Serving
    tokenizer: TextTokenizer | None
    template: ChatTemplate | None

    def completion(
        self, request: CompletionRequest, default_tokens: int | None = COMPLETION_TOKENS
    ) -> list[GenerationRequest]:
        """`n` sequences of each prompt, prompts outermost. Raises ApiError.

        `default_tokens` is for requests without `max_tokens`; None goes on to the context's end.
        """
        self.check_model(request.model)
        if len(request.prompt) * (request.n or 1) > MAX_CHOICES:
            raise ApiError(
                f"{len(request.prompt)} prompts times n={request.n or 1} exceed the "
                f"{MAX_CHOICES} sequences that one request may ask for",
                param="prompt",
            )
        prompts = [
            self._tokens(prompt, add_special_tokens=request.add_special_tokens)
            for prompt in request.prompt
        ]
        return self._expand(request, prompts, default_tokens)

    def chat(self, request: ChatCompletionRequest) -> list[GenerationRequest]:
        """`n` answers to the conversation. Raises ApiError."""
        self.check_model(request.model)
        if self.template is None:
            raise ApiError(
                f"the model {self.name} was built without a chat template (`chat: false`); "
                "use /v1/completions",
                param="messages",
            )
        try:
            text = self.template.render(
                [message.model_dump(exclude_none=True) for message in request.messages],
                add_generation_prompt=request.add_generation_prompt,
                variables=request.chat_template_kwargs,
            )
        except TemplateRefused as error:
            message = f"the model's chat template refused the messages: {error}"
            raise ApiError(message, param="messages") from error
        prompt = self._tokens(text, add_special_tokens=request.add_special_tokens)
        return self._expand(request, [prompt], None)

    def check_model(self, model: str | None) -> None:
        """Raise ApiError (404) unless `model` is this one; None is whatever is served."""
        if model is not None and model != self.name:
            raise ApiError(
                f"the model `{model}` does not exist; this server has `{self.name}`",
                status=HTTPStatus.NOT_FOUND,
                param="model",
                code="model_not_found",
            )

    def _tokens(self, prompt: Prompt, *, add_special_tokens: bool) -> tuple[int, ...]:
        if not isinstance(prompt, str):
            self._check_ids(prompt, "prompt")
            return prompt
        if self.tokenizer is None:
            raise ApiError(
                f"the model {self.name} was built without a tokenizer; "
                "give the prompt as a list of token ids",
                param="prompt",
            )
        return tuple(self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens))

    def _check_ids(self, ids: Collection[int], param: str) -> None:
        size = self.serving.vocab_size
        if not ids or (min(ids) >= 0 and max(ids) < size):
            return
        wrong = next(id_ for id_ in ids if not 0 <= id_ < size)
        raise ApiError(
            f"{param} has the token id {wrong}, outside the vocabulary of {size}", param=param
        )

    def _expand(
        self,
        request: SamplingRequest,
        prompts: Sequence[tuple[int, ...]],
        default_tokens: int | None,
    ) -> list[GenerationRequest]:
        stop = request.stop or ()
        if stop and self.tokenizer is None:
            raise ApiError("stop strings need a tokenizer; use stop_token_ids", param="stop")
        self._check_ids(request.stop_token_ids or (), "stop_token_ids")
        self._check_ids(request.logit_bias or (), "logit_bias")
        expanded: list[GenerationRequest] = []
        for prompt in prompts:
            params = self._params(request, self._limit(request, len(prompt), default_tokens))
            for choice in range(request.n or 1):
                own = replace(params, seed=_seed(request.seed, choice))
                expanded.append(
                    GenerationRequest(
                        prompt, own, stop, request.include_stop_str_in_output, fork=choice > 0
                    )
                )
        return expanded

    def _limit(self, request: SamplingRequest, length: int, default_tokens: int | None) -> int:
        """Tokens to generate at most after a prompt of `length` tokens."""
        longest = self.serving.max_model_len
        if length == 0:
            raise ApiError("the prompt is empty: it has no token", param="prompt")
        room = longest - length
        if room < 1:
            raise ApiError(
                f"the prompt has {length} tokens, but max_model_len is {longest}; shorten it to at "
                f"most {longest - 1}, since at least one token is generated",
                param="messages" if isinstance(request, ChatCompletionRequest) else "prompt",
                code="context_length_exceeded",
            )
        name, given = request.limit
        if given is not None and given > room:
            raise ApiError(
                f"{name} is {given}, but the largest for this prompt of {length} tokens is {room} "
                f"(max_model_len is {longest})",
                param=name,
            )
        limit = given or min(default_tokens or room, room)
        if request.min_tokens > limit:
            raise ApiError(
                f"min_tokens is {request.min_tokens}, above the limit of {limit} tokens",
                param="min_tokens",
            )
        return limit

    def _params(self, request: SamplingRequest, limit: int) -> SamplingParams:
        defaults = self.serving.generation
        ends = () if request.ignore_eos else defaults.eos_token_ids
        stop_token_ids = tuple(dict.fromkeys((*ends, *(request.stop_token_ids or ()))))
        if request.min_tokens and len(stop_token_ids) >= self.serving.vocab_size:
            raise ApiError(
                "min_tokens needs a token that is none of stop_token_ids", param="stop_token_ids"
            )
        return SamplingParams(
            max_tokens=limit,
            temperature=_first(request.temperature, defaults.temperature, 1.0),
            top_p=_first(request.top_p, defaults.top_p, 1.0),
            top_k=max(int(_first(request.top_k, defaults.top_k, 0)), 0),
            min_p=_first(request.min_p, 0.0),
            repetition_penalty=_first(request.repetition_penalty, 1.0),
            presence_penalty=_first(request.presence_penalty, 0.0),
            frequency_penalty=_first(request.frequency_penalty, 0.0),
            stop_token_ids=stop_token_ids,
            min_tokens=request.min_tokens,
            logit_bias=tuple((request.logit_bias or {}).items()),
            logprobs=request.likeliest,
        )


def _seed(given: int | None, choice: int) -> int:
    """Seed of one of the `n` choices, which would all be the same with one seed, as in vLLM."""
    return _DRAWN.getrandbits(63) if given is None else given + choice


def _first(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)
