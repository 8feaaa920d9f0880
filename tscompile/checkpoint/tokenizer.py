"""The tokenizer as data: tokenizer.json, chat template, special tokens, sampling defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tokenizers import Tokenizer

from tscompile.errors import TokenizerError


@dataclass(frozen=True, slots=True)
class TokenizerBundle:
    """Everything of text that an artifact carries.

    `add_bos`: a plain prompt starts with the bos token (a chat template writes its own). Any of
    `eos_token_ids` ends an answer. The sampling defaults are generation_config.json's, None where
    it has none; they apply to requests that don't say.
    """

    tokenizer_json: str
    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    add_bos: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


def parse_tokenizer(text: str, where: str) -> Tokenizer:
    """The tokenizer of a tokenizer.json text."""
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(
            f"the tokenizer does not load: {str(error)[:200]}",
            remedy="fetch tokenizer.json again",
            where=where,
        ) from error


def largest_id(tokenizer: Tokenizer) -> int:
    """The largest token id, added tokens included; -1 of an empty vocabulary."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def starts_with(tokenizer: Tokenizer, token_id: int | None) -> bool:
    """Whether the tokenizer's own post-processor puts `token_id` before a plain prompt."""
    ids = cast("Any", tokenizer).encode("a", add_special_tokens=True).ids
    return token_id is not None and ids[:1] == [token_id]


def check_vocabulary(bundle: TokenizerBundle, vocab_size: int, where: str) -> None:
    """Refuse a tokenizer that yields ids beyond the model's embedding."""
    last = largest_id(parse_tokenizer(bundle.tokenizer_json, where))
    if last >= vocab_size:
        raise TokenizerError(
            f"the tokenizer's ids go up to {last}, but the model's vocab_size is {vocab_size}",
            remedy="use the tokenizer that the model was trained with",
            where=where,
        )
    for token_id in (bundle.bos_token_id, *bundle.eos_token_ids):
        if token_id is not None and not 0 <= token_id < vocab_size:
            raise TokenizerError(
                f"special token id {token_id} is outside the model's vocab_size {vocab_size}",
                remedy="correct bos_token_id and eos_token_id of the checkpoint",
                where=where,
            )
