"""Text to token ids and back, by the artifact's tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from tsruntime.server.pieces import Pieces


class TextTokenizer:
    """A tokenizer.json as transformers applies it: special tokens spelled out in text count."""

    def __init__(self, path: Path, bos_token_id: int | None = None) -> None:
        """Read `path`; with `bos_token_id`, that token starts every text that asks for specials."""
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._bos_token_id = bos_token_id
        added = self._tokenizer.get_added_tokens_decoder()
        self.pieces = Pieces(self._tokenizer)
        self._special = frozenset(id_ for id_, token in added.items() if token.special)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`; `add_special_tokens` adds what the tokenizer adds to a prompt."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        bos = self._bos_token_id
        if add_special_tokens and bos is not None and ids[:1] != [bos]:
            return [bos, *ids]
        return ids

    def has_text(self, id_: int) -> bool:
        """Whether `decode` makes anything of `id_`: neither special nor beyond the vocabulary."""
        return id_ not in self._special and self._tokenizer.id_to_token(id_) is not None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out; an incomplete character shows as U+FFFD."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)
