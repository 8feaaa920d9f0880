"""The recipe as a whole: one deployment, every default spelled out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Discriminator, Field, PrivateAttr, Tag

from .buckets import Buckets
from .chat import Chat
from .kernels import Kernels
from .kv_cache import Float, KvCache
from .limits import Limits
from .model import Model
from .parallel import Parallel
from .section import Default, Section, Vllm
from .source import Document
from .target import Target


class _Dumper(yaml.SafeDumper):
    """Writes lists, which are all short here, on one line."""

    def represent_sequence(
        self, tag: str, sequence: Iterable[object], flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=True)


class Recipe(Section):
    """One deployment. Made by `tscompile.recipe.load`, which knows the file it came from."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128),
        Vllm("--served-model-name"),
    ]
    """Name of the deployment: the model name of the API, and the artifact's default directory."""

    model: Model

    dtype: Annotated[Float, Default("float32 on cpu, bfloat16 on cuda"), Vllm("--dtype")]
    """Element type of weights and activations."""

    target: Target

    parallel: Parallel

    buckets: Buckets

    kv_cache: KvCache

    limits: Limits

    kernels: Kernels = Kernels()

    tokenizer: Annotated[
        str | None, Field(min_length=1), Default("the checkpoint's"), Vllm("--tokenizer")
    ] = None
    """A `tokenizer.json`, or a directory with one, relative to the recipe. Dummy weights without
    it take token ids only."""

    chat: Annotated[
        Annotated[Literal[False], Tag("off")] | Annotated[Chat, Tag("settings")],
        Discriminator(lambda chat: "off" if chat is False else "settings"),
        Default("the checkpoint's template"),
        Vllm(""),
    ]
    """`false` to serve without the chat API, or settings of it."""

    _document: Document = PrivateAttr()

    def bind(self, document: Document) -> Recipe:
        """Itself, now knowing its file and lines."""
        self._document = document
        return self

    @property
    def file(self) -> str:
        """The recipe's path as the user gave it."""
        return self._document.file

    def where(self, *key: str) -> str:
        """`recipe.yaml:12 limits.max_batch` of a key, for errors found later."""
        return self._document.where(key)

    def locate(self, path: str) -> Path:
        """A path that the recipe names, resolved against the recipe's directory."""
        return Path(self._document.file).parent / path

    def resolved(self) -> str:
        """Canonical YAML with every default spelled out; paths stay as the recipe wrote them."""
        data = self.model_dump(mode="json", exclude_none=True)
        return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
