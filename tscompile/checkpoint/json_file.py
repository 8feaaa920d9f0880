"""JSON files of a checkpoint, read with bounds and one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from tscompile.errors import CheckpointNotFoundError, ConfigError

MAX_JSON_BYTES = 256 << 20
"""The largest tokenizer.json are about 35 MB, the largest safetensors headers about 10 MB."""


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ConfigError(
                f"{size} bytes is no JSON file of a checkpoint (at most {MAX_JSON_BYTES})",
                remedy="fetch the file again",
                where=str(path),
            )
        document: object = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointNotFoundError(
            f"cannot read {path.name}: {error.strerror}",
            remedy="name a complete checkpoint",
            where=str(path),
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"not JSON: {error}", remedy="fetch the file again", where=str(path)
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"a JSON object is expected, this is {type(document).__name__}",
            remedy="fetch the file again",
            where=str(path),
        )
    return cast("dict[str, object]", document)


def read_optional_json(path: Path) -> dict[str, object]:
    """The object in a JSON file, empty where there is no such file."""
    return read_json(path) if path.exists() else {}
