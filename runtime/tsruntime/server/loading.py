"""What a served artifact needs besides its engine, and the wait for that engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from tsruntime.artifact.chat_template import ChatTemplate, TemplateRefused
from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.serving import load_serving
from tsruntime.server.frontend import Engine, Frontend
from tsruntime.server.intake import Intake
from tsruntime.server.tokenizer import TextTokenizer

_QUIET_SECONDS: Final = 2.0


def load_intake(artifact: Path, served_name: str | None) -> Intake:
    """Limits, tokenizer and chat template of `artifact`, served as `served_name` or its own name.

    Raises TsError for an artifact that is missing or damaged.
    """
    serving = load_serving(artifact)
    special = serving.generation
    tokenizer = None
    if serving.tokenizer_json is not None:
        bos_token_id = special.bos_token_id if special.add_bos else None
        tokenizer = TextTokenizer(serving.tokenizer_json, bos_token_id)
    template = None
    if serving.chat_template is not None:
        try:
            template = ChatTemplate(
                serving.chat_template, bos_token=special.bos_token, eos_token=special.eos_token
            )
        except TemplateRefused as error:
            raise ArtifactDamaged(artifact, f"the chat template does not parse: {error}") from error
    return Intake(served_name or serving.name, serving, tokenizer, template)


@asynccontextmanager
async def ready_frontend(engine: Engine, intake: Intake) -> AsyncGenerator[Frontend]:
    """A frontend whose engine is ready; a terminal that waits for long is told for what.

    Raises EngineFailed where it never becomes ready.
    """
    async with Frontend(engine, intake.tokenizer) as frontend:
        notice = asyncio.create_task(_show_progress(f"loading {intake.serving.name}"))
        try:
            await frontend.ready()
        finally:
            notice.cancel()
            with suppress(asyncio.CancelledError):
                await notice
        yield frontend


async def _show_progress(text: str) -> None:
    if not sys.stderr.isatty():
        return
    await asyncio.sleep(_QUIET_SECONDS)
    with Console(stderr=True).status(text):
        await asyncio.Event().wait()
