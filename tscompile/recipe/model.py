"""The recipe's `model`: a checkpoint, or a config with dummy weights."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from .section import Default, RefusalError, Section, Vllm

PACKAGE_PREFIX = "package:"


def _check_digest(digest: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise RefusalError(
            f"{digest!r} is not a SHA-256: 64 lower-case hexadecimal digits",
            "copy the digest that `sha256sum FILE` prints",
        )
    return digest


Sha256 = Annotated[str, AfterValidator(_check_digest)]


class Model(Section):
    """Exactly one of `source`, or `config` with `weights: dummy`."""

    source: Annotated[str | None, Field(min_length=1), Vllm("model (positional)")] = None
    """A directory in Hugging Face layout (config.json, safetensors, tokenizer), a `.gguf` file, or
    `package:<distribution>/<path>` for a file that an installed package ships. Relative to the
    recipe."""

    sha256: Annotated[dict[str, Sha256] | None, Vllm("")] = None
    """Expected SHA-256 of the source's files by file name. One text stands for the one file of a
    GGUF source. A file that differs is refused."""

    config: Annotated[str | None, Field(min_length=1), Vllm("--hf-config-path")] = None
    """A `config.json` in Hugging Face form, for `weights: dummy`. Relative to the recipe."""

    weights: Annotated[Literal["dummy"] | None, Vllm("--load-format dummy")] = None
    """`dummy` with `config`: weights drawn from a counter-based generator, never written."""

    seed: Annotated[
        int | None, Field(ge=0, lt=2**63, strict=True), Default("0 for dummy weights"), Vllm("")
    ] = None
    """Seed of the dummy weights."""

    @property
    def is_dummy(self) -> bool:
        """Whether the weights are generated instead of read."""
        return self.weights == "dummy"
