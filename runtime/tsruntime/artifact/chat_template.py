"""Chat templates, rendered as transformers renders them, in jinja2's immutable sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_FAILURES = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What a template can raise on values that it did not expect."""


class TemplateRefused(Exception):
    """The template does not parse, or fails on what it was given; the message says how."""


class _GenerationBlocks(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its body stays."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled chat template with the special tokens that it may print."""

    def __init__(self, source: str, *, bos_token: str | None, eos_token: str | None) -> None:
        """Raises TemplateRefused for a template that does not parse, naming the line."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlocks, "jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _tojson
        names = cast("dict[str, object]", environment.globals)
        names["raise_exception"] = _raise_exception
        names["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateRefused(f"line {error.lineno}: {error.message}") from error
        named = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: text for name, text in named.items() if text is not None}

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt for `messages`. Raises TemplateRefused where it fails on them."""
        values: dict[str, object] = {
            **self._tokens,
            **(variables or {}),
            "messages": list(messages),
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(values)
        except _FAILURES as error:
            raise TemplateRefused(str(error)) from error


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter, this does not escape HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # local time, as in transformers
