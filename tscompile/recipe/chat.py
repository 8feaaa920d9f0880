"""The recipe's `chat`: the template and the parsers of the chat API."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from .section import Default, RefusalError, Section, Vllm

TOOL_PARSERS: Final[tuple[str, ...]] = ()
REASONING_PARSERS: Final[tuple[str, ...]] = ()


def _known(name: str | None, kind: str, known: tuple[str, ...]) -> str | None:
    if name is not None and name not in known:
        raise RefusalError(
            f"{name!r} is not a known {kind} parser (known: {', '.join(known) or 'none yet'})",
            f"leave {kind}_parser out",
        )
    return name


class Chat(Section):
    """Chat settings. `chat: false` serves completions only."""

    template: Annotated[
        str | None, Field(min_length=1), Default("the checkpoint's"), Vllm("--chat-template")
    ] = None
    """A jinja2 chat template file, relative to the recipe. Without it the checkpoint must have
    one."""

    tool_parser: Annotated[
        str | None,
        AfterValidator(lambda name: _known(name, "tool", TOOL_PARSERS)),
        Vllm("--tool-call-parser"),
    ] = None
    """Parser of the model's tool calls. None is known yet."""

    reasoning_parser: Annotated[
        str | None,
        AfterValidator(lambda name: _known(name, "reasoning", REASONING_PARSERS)),
        Vllm("--reasoning-parser"),
    ] = None
    """Parser of the model's reasoning. None is known yet."""
