"""The API's request bodies: OpenAI's schema with vLLM's sampling extras, checked strictly.

A parameter that this server does not act on is refused by name unless its value asks for nothing
(`harmless.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from tsruntime.sampling.params import LOGIT_BIAS_MOST, TOP_LOGPROBS_MOST
from tsruntime.server.errors import ApiError
from tsruntime.server.harmless import CHAT, COMPLETION, SAMPLING, Harmless, refuse_extras

Prompt: TypeAlias = str | tuple[int, ...]
Bias: TypeAlias = Annotated[float, Field(ge=-100, le=100)]
Biases: TypeAlias = Annotated[dict[int, Bias], Field(max_length=LOGIT_BIAS_MOST)]

LEGACY_LOGPROBS_MOST: Final = 5
"""The most `logprobs` that OpenAI's completions take; `top_logprobs` of chat goes further."""


def _list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _prompts(value: object) -> tuple[Prompt, ...]:
    """One or several prompts, each a text or token ids."""
    if isinstance(value, str):
        return (value,)
    items = _list(value)
    if items and _are_ids(items):
        return (tuple(cast("list[int]", items)),)
    if not items:
        raise _prompt_error()
    return tuple(_prompt(item) for item in items)


def _prompt(value: object) -> Prompt:
    if isinstance(value, str):
        return value
    items = _list(value)
    if items is None or not _are_ids(items):
        raise _prompt_error()
    return tuple(cast("list[int]", items))


def _are_ids(items: Collection[object]) -> bool:
    """Whether all are integers, true and false not counted; a prompt may have very many."""
    return set(map(type, items)) <= {int}


def _prompt_error() -> PydanticCustomError:
    return PydanticCustomError(
        "prompt", "must be a string, a list of strings, a list of token ids or a list of those"
    )


def _stops(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else _list(value)
    if items is None or not all(isinstance(item, str) and item for item in items):
        raise PydanticCustomError("stop", "must be a string or a list of strings, none empty")
    return tuple(cast("list[str]", items))


def _biases(value: object) -> dict[int, object]:
    """Keys of JSON are strings: token ids, each spelled in the one way that numbers are."""
    given = cast("dict[str, object]", value) if isinstance(value, dict) else None
    if given is None or not all(key.isdecimal() and key == str(int(key)) for key in given):
        raise PydanticCustomError("biases", "must be an object from token ids to numbers")
    return {int(key): bias for key, bias in given.items()}


def _content(value: object) -> str:
    """Text of a message: a string, or text parts, which are joined by line ends as in vLLM."""
    if isinstance(value, str):
        return value
    parts = _list(value)
    if parts is None:
        raise PydanticCustomError("content", "must be a string or a list of text parts")
    return "\n".join(_part(part, place) for place, part in enumerate(parts))


def _part(value: object, place: int) -> str:
    part = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    kind, text = part.get("type"), part.get("text")
    if kind != "text":
        raise PydanticCustomError(
            "part",
            "part {place} has type {kind}, but only `text` parts are supported",
            {"place": place, "kind": repr(kind)},
        )
    if not isinstance(text, str):
        raise PydanticCustomError("part", "part {place} has no `text`", {"place": place})
    return text


class ApiModel(BaseModel):
    """A JSON object whose fields are checked without coercion; others go to `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(ApiModel):
    """What a stream reports beyond text."""

    include_usage: bool | None = None


class SamplingRequest(ApiModel):
    """What both endpoints share. None means the checkpoint's default, or else OpenAI's."""

    harmless: ClassVar[Harmless] = SAMPLING

    model: str | None = None
    n: int | None = Field(None, ge=1, le=128)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int = Field(0, ge=0)
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops), Field(max_length=64)] | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=64)
    logit_bias: Annotated[Biases, BeforeValidator(_biases)] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    return_token_ids: bool | None = None

    @property
    def limit(self) -> tuple[str, int | None]:
        """The parameter that limits the output, and its value if it was given."""
        return "max_tokens", self.max_tokens

    @property
    def likeliest(self) -> int | None:
        """How many likeliest tokens to show beside each token; None without log-probabilities."""
        return None


class CompletionRequest(SamplingRequest):
    """Body of `/v1/completions`."""

    harmless: ClassVar[Harmless] = SAMPLING | COMPLETION

    prompt: Annotated[tuple[Prompt, ...], BeforeValidator(_prompts)]
    add_special_tokens: bool = True
    logprobs: int | None = Field(None, ge=0, le=LEGACY_LOGPROBS_MOST)

    @property
    def likeliest(self) -> int | None:
        """`logprobs`."""
        return self.logprobs


class ChatMessage(ApiModel):
    """One message; fields beyond these are refused unless they are empty."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_content)]
    name: str | None = None


class ChatCompletionRequest(SamplingRequest):
    """Body of `/v1/chat/completions`."""

    harmless: ClassVar[Harmless] = SAMPLING | CHAT

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, object] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=TOP_LOGPROBS_MOST)

    @property
    def limit(self) -> tuple[str, int | None]:
        """`max_completion_tokens`, or its older name."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return super().limit

    @property
    def likeliest(self) -> int | None:
        """`top_logprobs`, where `logprobs` asks for any."""
        return (self.top_logprobs or 0) if self.logprobs else None


RequestT = TypeVar("RequestT", bound=SamplingRequest)


def parse_completion(body: bytes) -> CompletionRequest:
    """Raises ApiError with everything that is wrong with `body`."""
    return _checked(_parse(CompletionRequest, body))


def parse_chat(body: bytes) -> ChatCompletionRequest:
    """Raises ApiError with everything that is wrong with `body`."""
    request = _checked(_parse(ChatCompletionRequest, body))
    if request.top_logprobs and not request.logprobs:
        raise ApiError("top_logprobs needs `logprobs` to be true", param="top_logprobs")
    for place, message in enumerate(request.messages):
        refuse_extras(message.model_extra, {}, where=f"messages[{place}].")
    return request


def _parse(model: type[RequestT], body: bytes) -> RequestT:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
    if details[0]["type"] == "json_invalid":
        raise ApiError(f"the request body is no valid JSON: {details[0]['msg']}")
    found = [(_path(d["loc"]), d["msg"], d["type"], d["input"]) for d in details]
    lines = [
        f"{path or 'request body'}: {message}" + ("" if kind == "missing" else _given(value))
        for path, message, kind, value in found
    ]
    raise ApiError("; ".join(lines), param=found[0][0] or None)


def _checked(request: RequestT) -> RequestT:
    refuse_extras(request.model_extra, request.harmless)
    options = request.stream_options
    if options is not None:
        if not request.stream:
            raise ApiError("stream_options needs `stream` to be true", param="stream_options")
        refuse_extras(
            options.model_extra,
            {"continuous_usage_stats": (False,), "include_obfuscation": (False,)},
            where="stream_options.",
        )
    return request


def _path(loc: tuple[int | str, ...]) -> str:
    """`messages[1].content` for ("messages", 1, "content")."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in loc).lstrip(".")


def _given(value: object) -> str:
    text = repr(value)
    return f" (got {text if len(text) <= 60 else text[:57] + '...'})"
