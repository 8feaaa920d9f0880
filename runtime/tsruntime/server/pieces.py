"""How a single token is spelled: its bytes, and a name where they are no whole characters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from tokenizers import Tokenizer

_Bytes: TypeAlias = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """One token. `data` joins with its neighbours' to the text; None where it shows in no text."""

    name: str
    data: bytes | None

    @property
    def legacy_name(self) -> str:
        """As `/v1/completions` names it, so that parts of characters differ from one another."""
        if self.data is None or _is_text(self.data):
            return self.name
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.data)


class Pieces:
    """The tokens of a tokenizer, or of none: then they have numbers for names."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_tokens_decoder() if tokenizer else {}
        self._bytes = _bytes_of(tokenizer) if tokenizer else None
        self._known: dict[int, Piece] = {}

    def __getitem__(self, token: int) -> Piece:
        piece = self._known.get(token)
        if piece is None:
            piece = self._known[token] = self._spell(token)
        return piece

    def _spell(self, token: int) -> Piece:
        added = self._added.get(token)
        if added is not None and added.special:
            return Piece(added.content, None)
        word = self._tokenizer.id_to_token(token) if self._tokenizer else None
        if self._tokenizer is None or self._bytes is None or word is None:
            return Piece(f"token_id:{token}", None)
        data = self._bytes(word)
        if data is None:
            data = self._tokenizer.decode([token], skip_special_tokens=False).encode()
        return Piece(data.decode(errors="backslashreplace"), data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes_of(tokenizer: Tokenizer) -> _Bytes:
    """From a word of the vocabulary to its bytes, as the tokenizer's decoder has it."""
    steps = _steps(json.loads(tokenizer.to_str()).get("decoder"))
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return _byte_level
    space = next((s["replacement"] for s in steps if s["type"] == "Metaspace"), None)
    replaced = {space: " "} if space else {}
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            replaced[step["pattern"]["String"]] = step["content"]
    return lambda word: _plain(word, replaced, fallback="ByteFallback" in kinds)


def _steps(decoder: object) -> list[dict[str, Any]]:
    """A decoder's parts in order, or the decoder as its only part."""
    if not isinstance(decoder, dict):
        return []
    step = cast("dict[str, Any]", decoder)
    if step["type"] != "Sequence":
        return [step]
    return [part for inner in step["decoders"] for part in _steps(inner)]


def _plain(word: str, replaced: Mapping[str, str], *, fallback: bool) -> bytes:
    if fallback and len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes.fromhex(word[3:5])
    for old, new in replaced.items():
        word = word.replace(old, new)
    return word.encode()


def _byte_level(word: str) -> bytes | None:
    """None for a word with a character that stands for no byte."""
    try:
        return bytes(_BYTES[character] for character in word)
    except KeyError:
        return None


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable Latin-1 stands for itself, the other bytes take characters from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES: Final = _byte_alphabet()
