"""What the HTTP process needs of an artifact; read without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.manifest import Manifest, read_manifest, verify_files


@dataclass(frozen=True, slots=True)
class Generation:
    """Special tokens and the checkpoint's sampling defaults (None: it gives none)."""

    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    add_bos: bool = False
    bos_token: str | None = None
    eos_token: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class ServingFile:
    """The contents of `serving.json`."""

    name: str
    max_model_len: int
    max_batch: int
    vocab_size: int
    world: int
    chat: bool
    has_tokenizer: bool


@dataclass(frozen=True, slots=True)
class Serving:
    """Limits, tokenizer and chat template. Without a tokenizer, prompts are token ids only."""

    name: str
    max_model_len: int
    max_batch: int
    vocab_size: int
    world: int
    chat: bool
    tokenizer_json: Path | None
    chat_template: str | None
    generation: Generation
    manifest: Manifest


_FILE = TypeAdapter(ServingFile)
_GENERATION = TypeAdapter(Generation)


def load_serving(path: Path) -> Serving:
    """Verify every file but the weights, and read what serving needs."""
    manifest = read_manifest(path)
    verify_files(path, manifest, lambda name: not name.startswith("weights/"))
    try:
        served = _FILE.validate_json((path / "serving.json").read_bytes())
        generation = _generation(path, served)
    except ValueError as error:
        raise ArtifactDamaged(path, f"serving data does not fit its schema: {error}") from None
    template = path / "tokenizer" / "chat_template.jinja"
    return Serving(
        name=served.name,
        max_model_len=served.max_model_len,
        max_batch=served.max_batch,
        vocab_size=served.vocab_size,
        world=served.world,
        chat=served.chat,
        tokenizer_json=path / "tokenizer" / "tokenizer.json" if served.has_tokenizer else None,
        chat_template=template.read_text(encoding="utf-8") if served.chat else None,
        generation=generation,
        manifest=manifest,
    )


def _generation(path: Path, served: ServingFile) -> Generation:
    if not served.has_tokenizer:
        return Generation()
    return _GENERATION.validate_python(
        json.loads((path / "tokenizer" / "generation.json").read_bytes())
    )
