"""The tokenizer of a checkpoint in Hugging Face layout, as transformers would load it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer

from tscompile.checkpoint.json_file import read_optional_json
from tscompile.checkpoint.tokenizer import TokenizerBundle, parse_tokenizer, starts_with
from tscompile.errors import TokenizerError


def read_tokenizer(path: Path) -> TokenizerBundle:
    """The tokenizer at `path`: a tokenizer.json, or a directory with one and its companions.

    Companions: tokenizer_config.json and special_tokens_map.json (special tokens, template),
    chat_template.jinja (wins over the former's), generation_config.json and config.json (ids that
    end an answer, sampling defaults). tokenizer.json's own post-processor decides whether a prompt
    starts with bos; add_bos_token is ignored beside it, as transformers does.
    """
    directory, file = (path, path / "tokenizer.json") if path.is_dir() else (path.parent, path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise TokenizerError(
            f"cannot read {file.name}: {reason}",
            remedy="provide a tokenizer.json: transformers' save_pretrained writes it",
            where=str(file),
        ) from error
    tokenizer = parse_tokenizer(text, str(file))
    settings = read_optional_json(directory / "tokenizer_config.json")
    special = read_optional_json(directory / "special_tokens_map.json") | settings
    generation = read_optional_json(directory / "generation_config.json")
    config = read_optional_json(directory / "config.json")
    bos, eos = _token_text(special, "bos_token"), _token_text(special, "eos_token")
    bos_id = _token_id(tokenizer, bos, file)
    return TokenizerBundle(
        tokenizer_json=text,
        chat_template=_chat_template(directory, settings),
        bos_token=bos,
        eos_token=eos,
        bos_token_id=bos_id,
        eos_token_ids=_eos_ids(_token_id(tokenizer, eos, file), generation, config),
        add_bos=starts_with(tokenizer, bos_id),
        temperature=_number(generation, "temperature"),
        top_p=_number(generation, "top_p"),
        top_k=_whole(generation, "top_k"),
    )


def _token_text(settings: Mapping[str, object], name: str) -> str | None:
    """A special token, which is written as text or as a mapping with `content`."""
    token = settings.get(name)
    if isinstance(token, dict):
        token = cast("dict[str, object]", token).get("content")
    return token if isinstance(token, str) else None


def _token_id(tokenizer: Tokenizer, token: str | None, file: Path) -> int | None:
    if token is None:
        return None
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise TokenizerError(
            f"the special token {token!r} is not in the vocabulary",
            remedy="correct tokenizer_config.json",
            where=str(file),
        )
    return token_id


def _chat_template(directory: Path, settings: Mapping[str, object]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {
            str(item.get("name")): item.get("template")
            for item in cast("list[dict[str, object]]", template)
        }
        template = named.get("default")
    return template if isinstance(template, str) else None


def _eos_ids(
    token_id: int | None, generation: Mapping[str, object], config: Mapping[str, object]
) -> tuple[int, ...]:
    """The tokenizer's eos and generation_config's ids, as vLLM; else config.json's."""
    ids = [*_ids(generation), *(() if token_id is None else (token_id,))]
    return tuple(sorted(set(ids or _ids(config))))


def _ids(settings: Mapping[str, object]) -> tuple[int, ...]:
    value = settings.get("eos_token_id")
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(item for item in values if type(item) is int)


def _number(settings: Mapping[str, object], name: str) -> float | None:
    value = settings.get(name)
    return float(value) if type(value) in (int, float) else None  # pyright: ignore[reportArgumentType]


def _whole(settings: Mapping[str, object], name: str) -> int | None:
    value = settings.get(name)
    return value if type(value) is int else None
