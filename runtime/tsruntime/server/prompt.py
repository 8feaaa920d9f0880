"""One prompt from the command line, answered on standard output as it is generated."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from tsruntime.server.errors import ApiError, EngineFailed, PromptRefused
from tsruntime.server.frontend import Engine
from tsruntime.server.intake import GenerationRequest, Intake
from tsruntime.server.loading import ready_frontend
from tsruntime.server.protocol import parse_chat, parse_completion


def run_prompt(
    engine: Engine, intake: Intake, text: str, *, raw: bool, options: Mapping[str, object]
) -> None:
    """Print the answer to `text`: a user's message, or with `raw` a text to continue.

    `options` are the API's sampling parameters. Raises PromptRefused and EngineFailed.
    """
    try:
        requests = _requests(intake, text, raw, options)
        asyncio.run(_print(engine, intake, requests))
    except ApiError as error:
        raise PromptRefused(error) from error


def _requests(
    intake: Intake, text: str, raw: bool, options: Mapping[str, object]
) -> list[GenerationRequest]:
    if raw:
        body = {**options, "prompt": text}
        return intake.completion(parse_completion(json.dumps(body).encode()), None)
    body = {**options, "messages": [{"role": "user", "content": text}]}
    return intake.chat(parse_chat(json.dumps(body).encode()))


async def _print(engine: Engine, intake: Intake, requests: list[GenerationRequest]) -> None:
    async with ready_frontend(engine, intake) as frontend, frontend.open(requests) as stream:
        try:
            async for deltas in stream:
                for delta in deltas:
                    sys.stdout.write(delta.text)
                sys.stdout.flush()
        except ApiError:
            if frontend.failure is not None:
                raise EngineFailed(frontend.failure) from None
            raise
        finally:
            sys.stdout.write("\n")
            sys.stdout.flush()
