"""Opens the checkpoint that a recipe names: finds it, verifies it, settles its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tscompile.checkpoint.base import Checkpoint
from tscompile.checkpoint.chat_template import check_chat_template
from tscompile.checkpoint.digest import verify_digests
from tscompile.checkpoint.dummy import DummyCheckpoint
from tscompile.checkpoint.gguf import GgufCheckpoint
from tscompile.checkpoint.gguf_file import GgufFile
from tscompile.checkpoint.gguf_tokenizer import tokenizer_from_gguf
from tscompile.checkpoint.gpt_oss import ARCHITECTURE, GptOssCheckpoint
from tscompile.checkpoint.huggingface import HuggingFaceCheckpoint
from tscompile.checkpoint.huggingface_tokenizer import read_tokenizer
from tscompile.checkpoint.package import locate_package_source
from tscompile.checkpoint.tokenizer import TokenizerBundle, check_vocabulary
from tscompile.errors import ChatTemplateError, CheckpointNotFoundError, ConfigError
from tscompile.recipe import Recipe
from tscompile.recipe.model import PACKAGE_PREFIX


def open_checkpoint(recipe: Recipe) -> Checkpoint:
    """The checkpoint of a recipe; reads headers, config and tokenizer, no weight.

    Its tokenizer carries the chat template that the recipe settles on, checked here so that no
    request is the first to find out: None only with `chat: false`.
    """
    if recipe.model.source is None:
        assert recipe.model.config is not None  # validated: a source or a config
        checkpoint: Checkpoint = DummyCheckpoint(
            recipe.locate(recipe.model.config), _settle(recipe, None)
        )
    else:
        checkpoint = _open_source(recipe, locate_source(recipe))
    if checkpoint.tokenizer is not None:
        where = recipe.where("tokenizer" if recipe.tokenizer else "model")
        check_vocabulary(checkpoint.tokenizer, _vocab_size(checkpoint.config, where), where)
    return checkpoint


def locate_source(recipe: Recipe) -> Path:
    """The path of `model.source`. A file of a package is verified against the package's RECORD."""
    source = recipe.model.source
    assert source is not None
    return _locate(source, recipe.locate(source), recipe.where("model", "source"))


def open_weights(source: str) -> Checkpoint:
    """The checkpoint at `source`, written as in `model.source`, for its weights alone."""
    path = _locate(source, Path(source), source)
    if path.is_file():
        return GgufCheckpoint(GgufFile(path), None)
    return _adapted(HuggingFaceCheckpoint(path, None))


def _locate(source: str, path: Path, where: str) -> Path:
    if source.startswith(PACKAGE_PREFIX):
        return locate_package_source(source.removeprefix(PACKAGE_PREFIX), where)
    if not path.exists():
        raise CheckpointNotFoundError(
            f"there is no {path}",
            remedy="name a checkpoint directory or a .gguf file",
            where=where,
        )
    return path


def _open_source(recipe: Recipe, path: Path) -> Checkpoint:
    expected = recipe.model.sha256 or {}
    where = recipe.where("model", "sha256")
    if path.is_file():
        verify_digests({path.name: path}, expected, where)
        file = GgufFile(path)
        own = None if recipe.tokenizer else tokenizer_from_gguf(file)
        return GgufCheckpoint(file, _settle(recipe, own))
    verify_digests({p.name: p for p in path.iterdir() if p.is_file()}, expected, where)
    own = None if recipe.tokenizer else read_tokenizer(path)
    return _adapted(HuggingFaceCheckpoint(path, _settle(recipe, own)))


def _adapted(checkpoint: HuggingFaceCheckpoint) -> Checkpoint:
    """The checkpoint with the tensors that our module of its architecture names."""
    names = checkpoint.config.get("architectures")
    return GptOssCheckpoint(checkpoint) if names == [ARCHITECTURE] else checkpoint


def _settle(recipe: Recipe, own: TokenizerBundle | None) -> TokenizerBundle | None:
    """The tokenizer, the recipe's before the checkpoint's, with the chat template in force."""
    if recipe.tokenizer is not None:
        own = read_tokenizer(recipe.locate(recipe.tokenizer))
    if recipe.chat is False:
        return None if own is None else replace(own, chat_template=None)
    if own is None:
        raise ChatTemplateError(
            "chat needs a tokenizer, and dummy weights have none",
            remedy="write `chat: false`, or name a tokenizer with `tokenizer`",
            where=recipe.where("chat"),
        )
    template = _template(recipe) or own.chat_template
    if template is None:
        raise ChatTemplateError(
            "the checkpoint has no chat template",
            remedy="name one with chat.template, or write `chat: false` to serve completions only",
            where=recipe.where("chat"),
        )
    check_chat_template(
        template, bos_token=own.bos_token, eos_token=own.eos_token, where=recipe.where("chat")
    )
    return replace(own, chat_template=template)


def _template(recipe: Recipe) -> str | None:
    """The text of `chat.template`, None where the recipe names none."""
    if recipe.chat is False or recipe.chat.template is None:
        return None
    path = recipe.locate(recipe.chat.template)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ChatTemplateError(
            f"cannot read {path}: {reason}",
            remedy="name a jinja2 template, relative to the recipe",
            where=recipe.where("chat", "template"),
        ) from error


def _vocab_size(config: Mapping[str, object], where: str) -> int:
    size = config.get("vocab_size")
    if type(size) is not int or size <= 0:
        raise ConfigError(
            f"vocab_size is {size!r}, a positive whole number is needed",
            remedy="correct the model's config.json",
            where=where,
        )
    return size
