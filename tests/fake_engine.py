"""An engine without a model, and an artifact without a plan, for tests of the front end.

It speaks `tsruntime.engine.messages` over a real pipe, from a thread: one token a step for every
live request, by a rule that the test chooses. By default it echoes the prompt, over and over.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeAlias

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tsruntime.artifact.manifest import FileEntry, manifest_bytes, seal
from tsruntime.artifact.serving import Generation, ServingFile
from tsruntime.engine.messages import (
    Abort,
    AskStats,
    Command,
    EngineStats,
    Event,
    Failed,
    FinishReason,
    Fork,
    PagePool,
    Ready,
    Refused,
    Shutdown,
    Submit,
    TokenOutput,
)
from tsruntime.sampling.params import TokenLogprobs

CommandPipe: TypeAlias = "Connection[list[Command], list[Event]]"
EventPipe: TypeAlias = "Connection[list[Event], list[Command]]"
Reply: TypeAlias = Callable[[Submit], Sequence[int]]
Score: TypeAlias = Callable[[int, int], TokenLogprobs]

EOS: Final = "<|im_end|>"
MAX_MODEL_LEN: Final = 200

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message['role'] == 'developer' %}{{ raise_exception('no developer here') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS: Final = (
    "The capital of France is Paris. What is the capital of Germany? It is Berlin.",
    "Once upon a time there was a compiler, and the compiler placed every tensor in time.",
    "Grüße aus Köln! 0123456789",
)


@dataclass(slots=True)
class _Live:
    submit: Submit
    tokens: list[int]
    generated: int = 0


def echo(submit: Submit) -> Sequence[int]:
    """The prompt as often as it fits."""
    repeats = submit.params.max_tokens // len(submit.tokens) + 1
    return submit.tokens * repeats


def score(token: int, count: int) -> TokenLogprobs:
    """Of a token by its number: likeliest of all where it is even, else behind all that are shown.

    The tokens shown beside it have the numbers after it.
    """
    behind = 0 if token % 2 == 0 else count
    others = [token + 1 + place for place in range(count)]
    ids = [token, *others[:-1]] if count and not behind else others
    top = tuple((id_, -0.125 * (place + 1)) for place, id_ in enumerate(ids))
    return TokenLogprobs(-0.125 * (behind + 1), top)


class FakeEngine:
    """What `tsruntime.server.frontend.Engine` asks for, and knobs for the test."""

    def __init__(
        self, reply: Reply = echo, *, step_seconds: float = 0.0, ready: bool = True
    ) -> None:
        self.connection: CommandPipe
        self._far: EventPipe
        self.connection, self._far = Pipe(duplex=True)
        self._lifeline, self._life = os.pipe()
        self.reply = reply
        self.score: Score = score
        self.refuse: Callable[[Submit], str | None] = lambda submit: None
        self.step_seconds = step_seconds
        self.cached_tokens = 0
        self.submitted: list[Submit] = []
        self.forked: list[Fork] = []
        self.aborted: list[int] = []
        self.finished: list[int] = []
        self._live: dict[int, _Live] = {}
        self._is_ready = ready
        self._ended = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="fake-engine")
        self._thread.start()

    @property
    def sentinels(self) -> list[int]:
        return [self._lifeline]

    def poll_failure(self) -> str | None:
        return self._failure

    def stop(self, grace: float) -> None:
        self._ended = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
        self.connection.close()
        os.close(self._lifeline)

    def die(self, message: str) -> None:
        """End as a killed rank does: no word through the pipe."""
        self._failure = message
        self._ended = True

    def become_ready(self) -> None:
        """What a loaded engine says, for one that was made with `ready=False`."""
        self._far.send([Ready(0.0)])

    def fail(self, message: str) -> None:
        """Tell of a failure through the pipe."""
        self._far.send([Failed(message)])

    def _run(self) -> None:
        try:
            if self._is_ready:
                self._far.send([Ready(0.0)])
            while not self._ended:
                events = self._commands()
                events += [self._step(live) for live in list(self._live.values())]
                if events:
                    self._far.send(events)
                if self._live and self.step_seconds:
                    time.sleep(self.step_seconds)
        except (EOFError, OSError):
            pass  # the front end is gone
        self._far.close()
        os.close(self._life)

    def _commands(self) -> list[Event]:
        events: list[Event] = []
        while self._far.poll(0 if self._live or events else 0.01):
            for command in self._far.recv():
                match command:
                    case Submit():
                        events += self._submit(command)
                    case Abort(id_):
                        self.aborted.append(id_)
                        self._live.pop(id_, None)
                    case Fork():
                        events += self._fork(command)
                    case AskStats():
                        events.append(self._stats())
                    case Shutdown():
                        self._ended = True
        return events

    def _fork(self, fork: Fork) -> list[Event]:
        self.forked.append(fork)
        parent = self._live.get(fork.parent)
        if parent is None:
            return [Refused(fork.id, f"request {fork.parent} is not live")]
        return self._submit(Submit(fork.id, parent.submit.tokens, fork.params))

    def _stats(self) -> EngineStats:
        pools = (PagePool("full", 40, 25, 5), PagePool("window", 20, 20, 0))
        hosts = (PagePool("full", 30, 20, 7), PagePool("window", 30, 30, 0))
        return EngineStats(len(self._live), 3, 4, 100, 60, 8, 6, pools, hosts)

    def _submit(self, submit: Submit) -> list[Event]:
        self.submitted.append(submit)
        message = self.refuse(submit)
        if message is not None:
            return [Refused(submit.id, message)]
        self._live[submit.id] = _Live(submit, list(self.reply(submit)))
        return []

    def _step(self, live: _Live) -> TokenOutput:
        params = live.submit.params
        token = live.tokens[live.generated]
        live.generated += 1
        finish = None
        if token in params.stop_token_ids and live.generated >= params.min_tokens:
            finish = FinishReason.STOP
        elif live.generated == params.max_tokens:
            finish = FinishReason.LENGTH
        if finish is not None:
            del self._live[live.submit.id]
            self.finished.append(live.submit.id)
        scored = None if params.logprobs is None else self.score(token, params.logprobs)
        return TokenOutput(live.submit.id, token, finish, self.cached_tokens, scored)


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer of a few hundred tokens that knows every byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Id of a token that is known to be there."""
    id_ = tokenizer.token_to_id(token)
    assert id_ is not None
    return id_


def write_artifact(
    path: Path, *, tokenizer: Tokenizer | None, chat_template: str | None = None
) -> Path:
    """Everything of an artifact that the front end reads."""
    size = tokenizer.get_vocab_size() if tokenizer else 300
    chat = chat_template is not None
    served = ServingFile(
        name="tiny",
        max_model_len=MAX_MODEL_LEN,
        max_batch=8,
        vocab_size=size,
        world=1,
        chat=chat,
        has_tokenizer=tokenizer is not None,
    )
    (path / "tokenizer").mkdir(parents=True)
    (path / "serving.json").write_text(json.dumps(asdict(served)))
    if tokenizer is not None:
        generation = Generation(eos_token_ids=(token_id(tokenizer, EOS),), eos_token=EOS)
        (path / "tokenizer" / "generation.json").write_text(json.dumps(asdict(generation)))
        tokenizer.save(str(path / "tokenizer" / "tokenizer.json"))
    if chat_template is not None:
        (path / "tokenizer" / "chat_template.jinja").write_text(chat_template)
    files = {
        str(file.relative_to(path)): FileEntry.of(file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
    (path / "manifest.json").write_bytes(manifest_bytes(seal("tiny", {}, files, {}, {})))
    return path
