"""SmolLM2, built and run, against transformers on the same dequantized weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deployments import ROOT, EngineClient, build, greedy, recipe, start
from teacher_forcing import measure
from tokenizers import Tokenizer

LIMIT = 1e-4
"""fp32 against transformers, max|a - b| / max|b| of a position (DESIGN.md, Oracles)."""

SHORT = (1, 17, 130, 300)
LENGTHS = (1, 2, 3, 5, 8, 13, 16, 17, 31, 47, 64, 100, 128, 150, 255, 256, 257, 400, 640, 900)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is compared: in CI a few prompts, at night all of the issue's."""

    lengths: tuple[int, ...]
    new_tokens: int


CI = pytest.param(Scale(SHORT, 16), id="short")
NIGHT = pytest.param(Scale(LENGTHS, 64), id="full", marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=[1, 3], ids=["world1", "world3"])
def artifact(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, smollm2_gguf: Path
) -> Path:
    contents = recipe(
        smollm2_gguf,
        world=request.param,
        limits={"max_model_len": 1024, "max_batch": 8, "token_budget": 256},
        buckets={"all_logits": [[256, 8]]},
    )
    return build(tmp_path_factory.mktemp(f"smollm2-w{request.param}"), contents)


@pytest.fixture(scope="module")
def client(artifact: Path) -> Iterator[EngineClient]:
    with start(artifact) as workers:
        yield EngineClient(workers)


def prompts(artifact: Path, lengths: Sequence[int]) -> list[list[int]]:
    """Stretches of English text, each of another length and from another place."""
    tokenizer = Tokenizer.from_file(str(artifact / "tokenizer" / "tokenizer.json"))
    ids: list[int] = tokenizer.encode((ROOT / "LICENSE").read_text()).ids
    assert len(ids) > 2 * max(lengths)
    return [ids[37 * i : 37 * i + n] for i, n in enumerate(lengths)]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory, smollm2_reference: Any) -> Oracle:
    return Oracle(tmp_path_factory.mktemp("reference"), smollm2_reference)


class Oracle:
    """Transformers on the same weights; what it has said once is kept."""

    def __init__(self, folder: Path, model: Any) -> None:
        self._folder, self._model = folder, model
        self._texts: dict[tuple[int, ...], list[int]] = {}

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """[tokens, vocab] in float32."""
        with torch.no_grad():
            return self._model(torch.tensor([list(tokens)])).logits[0].float()

    def folder(self, batch: Sequence[Sequence[int]]) -> Path:
        """A folder whose `<i>.npy` holds the logits of prompt i, for the ranks to map."""
        folder = self._folder / hashlib.sha256(repr(batch).encode()).hexdigest()
        folder.mkdir(exist_ok=True)
        for index, prompt in enumerate(batch):
            whole = self._folder / f"{hashlib.sha256(repr(prompt).encode()).hexdigest()}.npy"
            if not whole.exists():
                np.save(whole, self.logits(prompt).numpy())
            link = folder / f"{index}.npy"
            if not link.exists():
                link.symlink_to(whole)
        return folder

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` tokens that follow, whatever they are."""
        known = self._texts.setdefault(tuple(prompt), [])
        if len(known) < count:
            known[:] = self._generate(prompt, count)
        return known[:count]

    def is_tie(self, context: Sequence[int], ours: int) -> bool:
        """Whether `ours` lies within the limit of the first choice after `context`."""
        logits = self.logits(context)[-1]
        return bool((logits.max() - logits[ours]) / logits.abs().max() < LIMIT)

    def _generate(self, prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.no_grad():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=None,
                pad_token_id=0,
            )
        return [int(token) for token in out[0, len(prompt) :]]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scale", [CI, NIGHT])
def test_every_position_agrees_alone_and_in_chunked_batches(
    artifact: Path, oracle: Oracle, scale: Scale
) -> None:
    """Alone: one prompt at a time. Together: up to 8 sequences share steps of 256 tokens."""
    asked = prompts(artifact, scale.lengths)
    batches = [*([prompt] for prompt in asked), asked]
    found = measure(artifact, batches, [oracle.folder(batch) for batch in batches])
    for batch, by_prompt in zip(batches, found, strict=True):
        assert [len(by_prompt[i]) for i in range(len(batch))] == [len(p) for p in batch]
        assert max(max(errors) for errors in by_prompt.values()) < LIMIT


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scale", [CI, NIGHT])
def test_greedy_text_agrees_alone_and_in_a_batch_of_eight(
    artifact: Path, client: EngineClient, oracle: Oracle, scale: Scale
) -> None:
    """A token may differ only at a tie of the oracle; then the oracle's text is fed and goes on."""
    asked = prompts(artifact, scale.lengths)
    together: list[list[int]] = []
    for first in range(0, len(asked), 8):
        answers = client.generate(asked[first : first + 8], greedy(scale.new_tokens))
        together += [answer.tokens for answer in answers]
    ties = 0
    for prompt, batched in zip(asked, together, strict=True):
        text = oracle.greedy(prompt, scale.new_tokens)
        alone = client.generate([prompt], greedy(scale.new_tokens))[0].tokens
        ties += sum(count_ties(client, oracle, prompt, text, ours) for ours in (alone, batched))
    print(f"{ties} ties in {2 * len(asked) * scale.new_tokens} tokens")
    assert ties <= len(asked), "ties are rare; this many are an error"


def count_ties(
    client: EngineClient,
    oracle: Oracle,
    prompt: Sequence[int],
    text: Sequence[int],
    ours: Sequence[int],
) -> int:
    """How often `ours` leaves `text`, each time at a tie, resuming from the oracle's text."""
    assert len(ours) == len(text)
    at = next((i for i, (a, b) in enumerate(zip(ours, text, strict=True)) if a != b), None)
    if at is None:
        return 0
    assert oracle.is_tie([*prompt, *text[:at]], ours[at])
    rest = text[at + 1 :]
    if not rest:
        return 1
    known = [*prompt, *text[: at + 1]]
    resumed = client.generate([known], greedy(len(rest)))[0].tokens
    return 1 + count_ties(client, oracle, known, rest, resumed)
