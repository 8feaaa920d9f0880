"""Builds artifacts for tests and drives the real engine with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

import yaml

from tscompile.cli import main
from tsruntime.engine.messages import Event, FinishReason, Refused, Submit, TokenOutput
from tsruntime.sampling.params import SamplingParams
from tsruntime.workers.launch import Workers, launch

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Run(Protocol):
    """Runs `tscompile` in this process with the words given."""

    def __call__(self, *words: str | Path) -> Done: ...


def recipe(source: Path | str, *, world: int = 1, **sections: Any) -> dict[str, Any]:
    """A recipe for a checkpoint; `sections` replace whole top-level keys."""
    base: dict[str, Any] = {
        "name": "under-test",
        "model": {"source": str(source)},
        "parallel": {"world": world},
        "limits": {"max_model_len": 256, "max_batch": 4, "token_budget": 64},
    }
    return base | sections


def write_recipe(folder: Path, contents: dict[str, Any]) -> Path:
    """The recipe as a YAML file in `folder`."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(contents, sort_keys=False))
    return path


def command(*words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> Any:
    """Run one of our two commands; its completed process with text output."""
    bin_folder = Path(sys.executable).parent
    return subprocess.run(
        [str(bin_folder / str(words[0])), *map(str, words[1:])],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd or ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )


def build(folder: Path, contents: dict[str, Any], *options: str) -> Path:
    """Build an artifact in `folder` by the command, run in this process."""
    out = folder / "artifact"
    words = ["build", write_recipe(folder, contents), "--out", out, *options]
    with redirect_stdout(StringIO()), suppress_success():
        main([str(word) for word in words])
    return out


@contextmanager
def suppress_success() -> Generator[None]:
    """A command in this process ends by SystemExit; only a failure is passed on."""
    try:
        yield
    except SystemExit as ended:
        if ended.code not in (0, None):
            raise AssertionError(f"exit code {ended.code}") from ended


@dataclass(slots=True)
class Answer:
    """What the engine said of one request."""

    tokens: list[int] = field(default_factory=list[int])
    finish: FinishReason | None = None
    refused: str | None = None

    @property
    def done(self) -> bool:
        return self.finish is not None or self.refused is not None


def greedy(max_tokens: int, **options: Any) -> SamplingParams:
    """Greedy sampling that no stop token ends."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, **options)


class EngineClient:
    """A synchronous front end over the real rank processes, for tests."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._next = 0

    def generate(
        self, prompts: Iterable[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Answer]:
        """Submit every prompt at once; the answers in their order."""
        asked = [tuple(prompt) for prompt in prompts]
        each = [params] * len(asked) if isinstance(params, SamplingParams) else list(params)
        first, self._next = self._next, self._next + len(asked)
        answers = [Answer() for _ in asked]
        self._workers.connection.send(
            [Submit(first + i, p, s) for i, (p, s) in enumerate(zip(asked, each, strict=True))]
        )
        while not all(answer.done for answer in answers):
            for event in self._receive():
                _note(answers, first, event)
        return answers

    def _receive(self) -> list[Event]:
        if not self._workers.connection.poll(60):
            raise TimeoutError(self._workers.poll_failure() or "no event within 60 s")
        return self._workers.connection.recv()


def _note(answers: list[Answer], first: int, event: Event) -> None:
    match event:
        case TokenOutput(id=number, token=token, finish=finish):
            answers[number - first].tokens.append(token)
            answers[number - first].finish = finish
        case Refused(id=number, message=message):
            answers[number - first].refused = message
        case other:
            raise AssertionError(f"the engine said {other}")


def start(artifact: Path) -> Workers:
    """The artifact's ranks, ready."""
    workers = launch(artifact)
    try:
        workers.wait_ready(60)
    except BaseException:
        workers.stop(1)
        raise
    return workers


def manifest(artifact: Path) -> dict[str, Any]:
    """The artifact's manifest as plain JSON."""
    return json.loads((artifact / "manifest.json").read_bytes())
