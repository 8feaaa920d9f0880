"""The HTTP application: routes, errors in OpenAI's shape, limits on what a client may send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tsruntime.server.answers import Answer
from tsruntime.server.errors import ApiError
from tsruntime.server.frontend import Frontend
from tsruntime.server.intake import GenerationRequest, Intake
from tsruntime.server.metrics import CONTENT_TYPE, exposition
from tsruntime.server.pieces import Pieces
from tsruntime.server.protocol import SamplingRequest, parse_chat, parse_completion
from tsruntime.server.wire import ChatWire, CompletionWire, Identity, Wire

MAX_BODY_BYTES: Final = 16 << 20
BODY_SECONDS: Final = 60.0
INLINE_BYTES: Final = 8 << 10
"""Bodies up to this size are parsed and tokenized at once, larger ones in a thread."""

RequestT = TypeVar("RequestT", bound=SamplingRequest)


@dataclass(frozen=True, slots=True)
class Api:
    """The endpoints over one frontend; `draining` says whether the server is about to end."""

    frontend: Frontend
    intake: Intake
    draining: Callable[[], bool]
    created: int
    pieces: Pieces

    async def health(self, request: Request) -> Response:
        """200 while requests are served, else 503."""
        reason = self.frontend.failure
        if reason is None and self.draining():
            reason = "the server is shutting down"
        if reason is not None:
            return JSONResponse({"status": "unavailable", "reason": reason}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Gauges and counters for Prometheus."""
        stats = await self.frontend.stats()
        text = exposition(self.intake.name, stats, self.frontend.counts)
        return Response(text, media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """The one model, in OpenAI's list."""
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        """The one model, by its name."""
        name: str = request.path_params["name"]
        self.intake.check_model(name)
        return JSONResponse(self._card())

    async def completions(self, request: Request) -> Response:
        """`/v1/completions`."""
        body = await read_body(request)
        parsed, sequences = await _prepare(body, parse_completion, self.intake.completion)
        wire = CompletionWire(self._identity("cmpl", parsed), self.pieces)
        return self._answer(parsed, sequences, wire)

    async def chat(self, request: Request) -> Response:
        """`/v1/chat/completions`."""
        body = await read_body(request)
        parsed, sequences = await _prepare(body, parse_chat, self.intake.chat)
        wire = ChatWire(self._identity("chatcmpl", parsed), self.pieces)
        return self._answer(parsed, sequences, wire)

    def _answer(
        self, parsed: SamplingRequest, sequences: list[GenerationRequest], wire: Wire
    ) -> Response:
        return Answer(
            self.frontend.open(sequences),
            wire,
            sequences=len(sequences),
            n=parsed.n or 1,
            events=bool(parsed.stream),
            usage=_wants_usage(parsed),
        )

    def _identity(self, prefix: str, parsed: SamplingRequest) -> Identity:
        return Identity.new(
            prefix,
            self.intake.name,
            usage_in_stream=_wants_usage(parsed),
            token_ids=bool(parsed.return_token_ids) or self.intake.tokenizer is None,
            likeliest=parsed.likeliest,
        )

    def _card(self) -> dict[str, object]:
        return {
            "id": self.intake.name,
            "object": "model",
            "created": self.created,
            "owned_by": "tscompile",
            "max_model_len": self.intake.serving.max_model_len,
        }


def build_app(frontend: Frontend, intake: Intake, draining: Callable[[], bool]) -> Starlette:
    """The application. It answers once the server listens, which is when the engine is ready."""
    tokenizer = intake.tokenizer
    pieces = tokenizer.pieces if tokenizer else Pieces(None)
    api = Api(frontend, intake, draining, int(time.time()), pieces)
    return Starlette(
        routes=[
            Route("/health", api.health),
            Route("/metrics", api.metrics),
            Route("/v1/models", api.models),
            Route("/v1/models/{name:path}", api.model),
            Route("/v1/completions", api.completions, methods=["POST"]),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
        ],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_gone,
            Exception: _internal_error,
        },
    )


async def read_body(request: Request) -> bytes:
    """The whole body. Raises ApiError: 413 beyond MAX_BODY_BYTES, 408 after BODY_SECONDS.

    A client that stops sending must not hold up the server's end for ever.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_limited(request)
    except TimeoutError:
        raise ApiError(
            f"the request body did not arrive within {BODY_SECONDS:g} seconds",
            status=HTTPStatus.REQUEST_TIMEOUT,
        ) from None


async def _read_limited(request: Request) -> bytes:
    """The body, or ApiError (413) as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "")
    parts: list[bytes] = []
    size = int(declared) if declared.isdecimal() else 0
    if size <= MAX_BODY_BYTES:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > MAX_BODY_BYTES:
                break
            parts.append(part)
    if size > MAX_BODY_BYTES:
        raise ApiError(
            f"the request body has over {MAX_BODY_BYTES} bytes, the most that is accepted",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return b"".join(parts)


async def _prepare(
    body: bytes,
    parse: Callable[[bytes], RequestT],
    intake: Callable[[RequestT], list[GenerationRequest]],
) -> tuple[RequestT, list[GenerationRequest]]:
    def work() -> tuple[RequestT, list[GenerationRequest]]:
        parsed = parse(body)
        return parsed, intake(parsed)

    return work() if len(body) <= INLINE_BYTES else await asyncio.to_thread(work)


def _wants_usage(parsed: SamplingRequest) -> bool:
    return parsed.stream_options is not None and bool(parsed.stream_options.include_usage)


def _error_answer(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(error.body(), error.status, headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error_answer(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path (404), wrong method (405)."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    return _error_answer(ApiError(message, status=error.status_code), error.headers)


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it


async def _internal_error(request: Request, error: Exception) -> Response:
    """A bug here; uvicorn logs its traceback."""
    return _error_answer(ApiError("internal server error", status=500))
