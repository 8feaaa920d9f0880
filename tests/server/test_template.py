"""Chat templates against transformers' renderer, and the sandbox around them."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from transformers.utils.chat_template_utils import (
    render_jinja_template,  # pyright: ignore[reportUnknownVariableType]
)

from tsruntime.artifact.chat_template import ChatTemplate, TemplateRefused

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- "Today: " + date_string + "\\n" + (system_message or "") }}
{%- for message in messages %}
    {{- '<|start|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + eos_token }}
{%- endfor %}
{%- if tools is not none %}{{- tools | tojson(indent=4) }}{%- endif %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\n\n' }}{%- endif %}
"""
QWEN3 = """{%- set ns = namespace(last=messages|length - 1, seen=0) %}
{%- for message in messages[::-1] %}
    {%- if message.role == "assistant" %}{% continue %}{% endif %}
    {%- set ns.seen = ns.seen + 1 %}
    {%- if ns.seen > 2 %}{% break %}{% endif %}
{%- endfor %}
{% for message in messages %}
    {% if message.role == "assistant" %}
{% generation %}
[{{ message.content.split('</think>')[-1].lstrip('\n') }}]
{% endgeneration %}
    {% else %}
({{ message.role }}: {{ message.content | tojson }}, {{ ns.seen }})
    {% endif %}
{% endfor %}
{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}
<think></think>
{% endif %}
"""
STRICT = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m['content'] }}]{% endfor %}"
)
TEMPLATES = {"smollm2": SMOLLM2, "llama3": LLAMA3, "qwen3": QWEN3, "strict": STRICT}

CHATS: tuple[list[dict[str, object]], ...] = (
    [{"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "  <b>\"Grüße\" & 'x'</b> 🙂\n"},
        {"role": "assistant", "content": "<think>hm</think>\n\nanswer"},
        {"role": "user", "content": "{{ 7 * 7 }} {% raw %} <|im_end|>"},
    ],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": "\n"}],
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("chat", CHATS, ids=["one", "three", "empty"])
@pytest.mark.parametrize("generation_prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_equal_those_of_transformers(
    name: str, generation_prompt: bool, chat: list[dict[str, object]]
) -> None:
    source = TEMPLATES[name]
    variables: dict[str, object] = {"enable_thinking": False}
    expected = cast("Any", render_jinja_template)(
        conversations=[chat],
        chat_template=source,
        add_generation_prompt=generation_prompt,
        **SPECIAL,
        **variables,
    )[0][0]
    ours = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert expected == ours.render(
        chat, add_generation_prompt=generation_prompt, variables=variables
    )


def test_system_message_is_not_carried_into_the_next_rendering() -> None:
    template = ChatTemplate(SMOLLM2, bos_token=None, eos_token=None)
    first = template.render([{"role": "system", "content": "A"}, {"role": "user", "content": "B"}])
    assert first == (
        "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "You are a helpful AI assistant" in template.render([{"role": "user", "content": "B"}])


def test_the_template_s_own_refusal_is_told() -> None:
    template = ChatTemplate(STRICT, bos_token=None, eos_token=None)
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        template.render([{"role": "assistant", "content": "Hi"}])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.listdir() }}", "unsafe"),
        ("{{ messages[0].nothing.there }}", "has no attribute 'nothing'"),
        ("{{ messages[0]['content'] + 1 }}", "can only concatenate str"),
        ("{{ 1 // 0 }}", "by zero"),
    ],
)
def test_what_a_template_may_not_do_is_refused(source: str, reason: str) -> None:
    template = ChatTemplate(source, bos_token=None, eos_token=None)
    with pytest.raises(TemplateRefused, match=re.escape(reason)):
        template.render([{"role": "user", "content": "Hi"}])
