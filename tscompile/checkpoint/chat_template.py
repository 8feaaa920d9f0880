"""Checks at build that a chat template compiles and renders, as the server will use it."""

from __future__ import annotations

import json
from typing import NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tscompile.errors import ChatTemplateError

MESSAGES = ({"role": "user", "content": "Hello"},)
"""The conversation that every chat template must be able to render."""


class _GenerationBlocks(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; its body stays."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def check_chat_template(
    source: str, *, bos_token: str | None, eos_token: str | None, where: str
) -> None:
    """Refuse a template that the sandbox cannot compile, or that fails on one user message.

    Names and filters are those that transformers gives to chat templates.
    """
    tokens = {"bos_token": bos_token, "eos_token": eos_token}
    given = {name: text for name, text in tokens.items() if text is not None}
    try:
        template = _environment().from_string(source)
        template.render(
            messages=MESSAGES, tools=None, documents=None, add_generation_prompt=True, **given
        )
    except jinja2.TemplateSyntaxError as error:
        _refuse(f"the chat template does not compile: line {error.lineno}: {error.message}", where)
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        _refuse(f"the chat template fails on a single user message: {error}", where)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlocks, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    names = cast("dict[str, object]", environment.globals)
    names["raise_exception"] = _raise_exception
    names["strftime_now"] = _strftime_now
    return environment


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return form  # a build must not depend on the clock


def _refuse(message: str, where: str) -> NoReturn:
    raise ChatTemplateError(
        message,
        remedy="correct the template, name another with chat.template, or write `chat: false`",
        where=where,
    ) from None
