"""Incremental detokenization against decoding all at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_engine import EOS, token_id
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from tsruntime.server.detokenizer import Detokenizer
from tsruntime.server.pieces import Pieces
from tsruntime.server.tokenizer import TextTokenizer

TEXTS = (
    "The capital of France is Paris.",
    "emoji 🙂🚀👩‍👩‍👧‍👦 and flags 🇫🇷, then text",
    "東京は日本の首都です。 Ελληνικά, русский, العربية",
    "  leading and   inner spaces\n\n\ttabs",
    "é as e\u0301, and a lone \u0301",
    "x",
)


def byte_fallback_tokenizer() -> Tokenizer:
    """As Llama 2's: words begin with ▁, unknown characters fall back to bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyzTFP.", "▁t", "he", "▁the"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    model = models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = [AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")]
    tokenizer.add_special_tokens(special)  # pyright: ignore[reportUnknownMemberType]
    return tokenizer


@pytest.fixture(scope="session", params=["byte-level", "byte-fallback"])
def text_tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer
) -> TextTokenizer:
    chosen = tokenizer if request.param == "byte-level" else byte_fallback_tokenizer()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    chosen.save(str(path))
    return TextTokenizer(path)


def pieces(tokenizer: TextTokenizer, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.push(id_) for id_ in ids), detokenizer.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text_in_whole_characters(
    text_tokenizer: TextTokenizer, text: str
) -> None:
    ids = text_tokenizer.encode(text, add_special_tokens=False)
    found = pieces(text_tokenizer, ids)
    assert "".join(found) == text_tokenizer.decode(ids)
    assert not [piece for piece in found if "\ufffd" in piece]
    assert found[-1] == ""


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_of_tokens_join_to_the_text(text_tokenizer: TextTokenizer, text: str) -> None:
    ids = text_tokenizer.encode("the " + text, add_special_tokens=False)
    found = [text_tokenizer.pieces[id_] for id_ in ids]
    assert b"".join(piece.data or b"" for piece in found).decode().lstrip(" ") == "the " + text
    whole = [piece for piece in found if "\\x" not in piece.name]
    assert all(piece.name.encode() == piece.data for piece in whole)
    assert all(piece.legacy_name == piece.name for piece in whole)
    parts = [piece for piece in found if "\\x" in piece.name]
    assert bool(parts) == ("🙂" in text or "東" in text or "\u0301" in text)
    for piece in parts:
        assert piece.data is not None
        assert piece.legacy_name == "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece.data)


def test_tokens_that_show_in_no_text_have_a_name_and_no_bytes(
    tokenizer: Tokenizer, text_tokenizer: TextTokenizer
) -> None:
    special = text_tokenizer.encode("<s>", add_special_tokens=False)
    if len(special) == 1:
        piece = text_tokenizer.pieces[special[0]]
        assert (piece.name, piece.legacy_name, piece.data) == ("<s>", "<s>", None)
    unknown = text_tokenizer.pieces[100_000]
    assert (unknown.name, unknown.data) == ("token_id:100000", None)


@pytest.mark.parametrize("added", ["<think>", "<é think>", "é", "東"])
def test_added_tokens_that_are_not_special_have_the_bytes_of_their_text(
    tokenizer: Tokenizer, added: str
) -> None:
    """Also where the decoder takes their characters for bytes: é alone is 0xE9, which is none."""
    own = Tokenizer.from_str(tokenizer.to_str())
    own.add_tokens([AddedToken(added)])  # pyright: ignore[reportUnknownMemberType]
    ids = own.encode(f"a{added}b").ids
    pieces = Pieces(own)
    assert len(ids) == 3
    joined = b"".join(pieces[id_].data or b"" for id_ in ids)
    assert joined.decode(errors="replace") == own.decode(ids)
    assert (pieces[ids[1]].name == added) == (added != "é")


@given(ids=st.lists(st.integers(3, 399), max_size=40))
def test_any_bytes_join_to_what_decoding_gives(tokenizer: Tokenizer, ids: list[int]) -> None:
    pieces = Pieces(tokenizer)
    joined = b"".join(pieces[id_].data or b"" for id_ in ids)
    assert joined.decode(errors="replace") == tokenizer.decode(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_text_goes_on_where_the_prompt_ended(text_tokenizer: TextTokenizer, text: str) -> None:
    """A leading space of the output is kept, wherever prompt and output are parted."""
    ids = text_tokenizer.encode("the the " + text, add_special_tokens=False)
    whole = text_tokenizer.decode(ids)
    for cut in range(1, len(ids)):
        before = text_tokenizer.decode(ids[:cut])
        if before.endswith("\ufffd"):
            continue
        assert before + "".join(pieces(text_tokenizer, ids[cut:], ids[:cut])) == whole


def test_a_character_that_the_prompt_began_is_finished(
    tokenizer: Tokenizer, artifact: Path
) -> None:
    text_tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    ids = tokenizer.encode("ab🙂c").ids
    for cut in range(2, 6):
        assert "".join(pieces(text_tokenizer, ids[cut:], ids[:cut])) == "🙂c"


def test_tokens_beyond_the_vocabulary_have_no_text(artifact: Path) -> None:
    text_tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    assert pieces(text_tokenizer, [100_000, 100_001]) == ["", "", ""]


def test_an_unfinished_character_is_never_shown(tokenizer: Tokenizer, artifact: Path) -> None:
    text_tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    ids = tokenizer.encode("ab🙂").ids
    assert len(ids) == 6  # a, b and four bytes
    for cut in range(2, 6):
        assert "".join(pieces(text_tokenizer, ids[:cut])) == "ab"
    assert pieces(text_tokenizer, ids) == ["a", "b", "", "", "", "🙂", ""]


def test_special_tokens_have_no_text(tokenizer: Tokenizer, artifact: Path) -> None:
    text_tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    end = token_id(tokenizer, EOS)
    ids = tokenizer.encode("ab").ids
    assert pieces(text_tokenizer, [end, ids[0], end, end, ids[1], end]) == [
        "", "a", "", "", "b", "", "",
    ]  # fmt: skip


@given(ids=st.lists(st.integers(0, 399), max_size=40))
def test_any_tokens_join_to_what_decoding_them_gives(
    tokenizer: Tokenizer, artifact: Path, ids: list[int]
) -> None:
    """Invalid bytes too, other than those at the very end."""
    text_tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert "".join(pieces(text_tokenizer, ids)) == whole.rstrip("\ufffd")
