"""Checks at build that a chat template compiles and renders, in the server's own environment."""

from __future__ import annotations

from typing import Final

from tscompile.errors import ChatTemplateError
from tsruntime.artifact.chat_template import ChatTemplate, TemplateRefused

MESSAGES: Final = ({"role": "user", "content": "Hello"},)
"""The conversation that every chat template must be able to render."""


def check_chat_template(
    source: str, *, bos_token: str | None, eos_token: str | None, where: str
) -> None:
    """Refuse a template that does not compile, or that fails on one user message."""
    try:
        template = ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)
    except TemplateRefused as error:
        raise _refusal(f"the chat template does not compile: {error}", where) from error
    try:
        template.render(MESSAGES)
    except TemplateRefused as error:
        raise _refusal(
            f"the chat template fails on a single user message: {error}", where
        ) from error


def _refusal(message: str, where: str) -> ChatTemplateError:
    return ChatTemplateError(
        message,
        remedy="correct the template, name another with chat.template, or write `chat: false`",
        where=where,
    )
