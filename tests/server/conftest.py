"""A tiny artifact, and a server over it with a fake engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from fake_engine import CHAT_TEMPLATE, FakeEngine, echo, score, train_tokenizer, write_artifact
from served_app import ServedApp
from tokenizers import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer()


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """With tokenizer and chat template."""
    path = tmp_path_factory.mktemp("artifacts") / "tiny"
    return write_artifact(path, tokenizer=tokenizer, chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="session")
def bare_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token ids only: neither tokenizer nor chat template."""
    return write_artifact(tmp_path_factory.mktemp("artifacts") / "bare", tokenizer=None)


@pytest.fixture(scope="module")
def served_for_module(artifact: Path) -> Iterator[ServedApp]:
    before = set(threading.enumerate())
    with ServedApp(artifact, FakeEngine()) as served:
        yield served
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name in ("served", "fake-engine", "engine-writer")]


@pytest.fixture
def served(served_for_module: ServedApp) -> ServedApp:
    """The module's server, its engine echoing prompts at full speed again."""
    engine = served_for_module.engine
    engine.reply, engine.step_seconds, engine.cached_tokens = echo, 0.0, 0
    engine.score = score
    engine.refuse = lambda submit: None
    return served_for_module


@pytest.fixture
def client(served: ServedApp) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client
