"""Builds tokenizer.json from a GGUF file's vocabulary, merges and pre-tokenizer name.

A GGUF file names its pre-tokenizer (`tokenizer.ggml.pre`) instead of describing it; here is what
the published tokenizer.json of those models has. (transformers' own GGUF conversion ignores the
name, and so splits runs of spaces before digits differently for `smollm`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tscompile.checkpoint.gguf_file import GgufFile
from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.errors import CheckpointUnsupportedError, TokenizerError

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_CONTROL: Final = 3
_USER_DEFINED: Final = 4


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A published tokenizer's splitting: `pattern` first, or `digits` one by one, or neither."""

    pattern: str | None = None
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "gpt-2": PreTokenizer(),
    "smollm": PreTokenizer(digits=True),
    "qwen2": PreTokenizer(pattern=_WORDS.format(digits=""), nfc=True),
    "llama-bpe": PreTokenizer(
        pattern=_WORDS.format(digits="{1,3}"), ignore_merges=True, add_bos=True
    ),
}
"""By `tokenizer.ggml.pre`; `add_bos` holds where the file doesn't say."""


def tokenizer_from_gguf(file: GgufFile) -> TokenizerBundle:
    """The tokenizer in `file`; one of a kind that is not known is refused by name."""
    model = file.metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        _unsupported(file, f"the tokenizer model {model!r}", "gpt2")
    pre = file.metadata.get("tokenizer.ggml.pre")
    kind = PRE_TOKENIZERS.get(pre) if isinstance(pre, str) else None
    if kind is None:
        _unsupported(file, f"the pre-tokenizer {pre!r}", ", ".join(PRE_TOKENIZERS))
    tokens = _texts(file, "tokenizer.ggml.tokens")
    tokenizer = _byte_level_bpe(file, tokens, kind)
    _add_special_tokens(file, tokenizer, tokens)
    bos, eos = _special_id(file, "bos", tokens), _special_id(file, "eos", tokens)
    add_bos = file.metadata.get("tokenizer.ggml.add_bos_token", kind.add_bos) is True
    if add_bos and bos is not None:
        _start_with(tokenizer, tokens[bos], bos)
    ends = (eos, _special_id(file, "eot", tokens), _special_id(file, "eom", tokens))
    template = file.metadata.get("tokenizer.chat_template")
    return TokenizerBundle(
        tokenizer_json=tokenizer.to_str(),
        chat_template=template if isinstance(template, str) else None,
        bos_token=None if bos is None else tokens[bos],
        eos_token=None if eos is None else tokens[eos],
        bos_token_id=bos,
        eos_token_ids=tuple(sorted({end for end in ends if end is not None})),
        add_bos=add_bos and bos is not None,
    )


def _byte_level_bpe(file: GgufFile, tokens: list[str], kind: PreTokenizer) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        _refuse(file, "a token is in the vocabulary twice")
    merges: list[tuple[str, str]] = []
    for merge in _texts(file, "tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            _refuse(file, f"the merge {merge!r} speaks of tokens that are not in the vocabulary")
        merges.append((left, right))
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, ignore_merges=kind.ignore_merges)
    )
    parts: dict[str, Any] = {
        "normalizer": normalizers.NFC() if kind.nfc else None,
        "pre_tokenizer": _splitter(kind),
        "decoder": decoders.ByteLevel(),
    }
    for name, part in parts.items():
        if part is not None:
            setattr(tokenizer, name, part)
    return tokenizer


def _splitter(kind: PreTokenizer) -> object:
    built = cast("Any", pre_tokenizers)
    level = built.ByteLevel(add_prefix_space=False, use_regex=kind.pattern is None)
    if kind.pattern is not None:
        return built.Sequence([built.Split(Regex(kind.pattern), behavior="isolated"), level])
    return built.Sequence([built.Digits(individual_digits=True), level]) if kind.digits else level


def _add_special_tokens(file: GgufFile, tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Control tokens are special; user-defined ones are found in text but are not special."""
    kinds = file.metadata.get("tokenizer.ggml.token_type", [])
    if not isinstance(kinds, list) or len(kinds) not in (0, len(tokens)):
        _refuse(file, "tokenizer.ggml.token_type does not match the tokens")
    for text, kind in zip(tokens, kinds, strict=False):
        token = AddedToken(text, normalized=False, special=kind == _CONTROL)
        if kind == _CONTROL:
            cast("Any", tokenizer).add_special_tokens([token])
        elif kind == _USER_DEFINED:
            cast("Any", tokenizer).add_tokens([token])


def _start_with(tokenizer: Tokenizer, token: str, token_id: int) -> None:
    template = cast("Any", processors).TemplateProcessing
    cast("Any", tokenizer).post_processor = template(
        single=f"{token} $A",
        pair=f"{token} $A {token} $B",
        special_tokens=[(token, token_id)],
    )


def _special_id(file: GgufFile, name: str, tokens: list[str]) -> int | None:
    value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < len(tokens):
        _refuse(file, f"{name}_token_id {value} is outside the vocabulary of {len(tokens)}")
    return value


def _texts(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        _refuse(file, f"{key} is missing or no list of texts")
    return cast("list[str]", value)


def _refuse(file: GgufFile, message: str) -> NoReturn:
    raise TokenizerError(
        message, remedy="convert the model again with a current llama.cpp", where=str(file.path)
    )


def _unsupported(file: GgufFile, what: str, known: str) -> NoReturn:
    raise CheckpointUnsupportedError(
        f"{what} in a GGUF file is not supported (known: {known})",
        remedy="name a tokenizer.json with the recipe's `tokenizer`",
        where=str(file.path),
    )
