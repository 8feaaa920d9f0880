"""Artifacts for a GPU, built here and run there: text, graphs, weights, and what is refused."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bfloat16_oracle import DENSE, assert_nearly_likeliest, prompts, rounded_reference
from checkpoints import Family, TinyHf
from decode_batches import CUDA, batch_of
from deployments import EngineClient, build, command, greedy, recipe, start
from sealing import reseal

from tskernels.device import cuda_arch
from tsruntime.artifact.dummy import generate
from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor import loading
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.loading import DeviceWeights

pytestmark = pytest.mark.gpu

PROMPTS = [[5, 9, 200, 3], [7] * 33, [i * 31 % 384 for i in range(70)], [1]]


def tiny(folder: Path, source: Path, dtype: str, target: dict[str, str]) -> Path:
    """A tiny checkpoint's artifact; some chunks of a prompt are shorter than it."""
    folder.mkdir()
    contents: dict[str, Any] = recipe(source, dtype=dtype, target=target)
    contents["kv_cache"] = {"page_size": 16, "pages": 65}
    return build(folder, contents)


def answers(artifact: Path, new_tokens: int = 24) -> list[list[int]]:
    with start(artifact) as workers:
        client = EngineClient(workers)
        alone = [client.generate([p], greedy(new_tokens))[0].tokens for p in PROMPTS[:1]]
        together = [a.tokens for a in client.generate(PROMPTS, greedy(new_tokens))]
    assert together[0] == alone[0]
    return together


@pytest.mark.parametrize("family", DENSE)
def test_float32_gives_the_text_of_the_cpu(family: Family, tiny_hf: TinyHf, tmp_path: Path) -> None:
    source = tiny_hf(family)
    there = answers(tiny(tmp_path / "cuda", source, "float32", CUDA))
    assert there == answers(tiny(tmp_path / "cpu", source, "float32", {"device": "cpu"}))


@pytest.mark.parametrize("family", DENSE)
def test_bfloat16_gives_what_transformers_finds_likeliest(
    family: Family, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    source = tiny_hf(family)
    with start(tiny(tmp_path / "a", source, "bfloat16", CUDA)) as workers:
        found = EngineClient(workers).generate(prompts(), greedy(24))
    assert_nearly_likeliest(rounded_reference(source), prompts(), [a.tokens for a in found])


def executor_of(artifact: Path) -> DeviceExecutor:
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan)
    weights = WeightStore(artifact, plan, 0, "cuda:0")
    torch.set_grad_enabled(False)
    return DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_graph_gives_the_bits_of_its_launches_one_by_one(
    dtype: str, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    executor = executor_of(tiny(tmp_path / "a", tiny_hf("qwen3"), dtype, CUDA))
    for pool in (executor.pools.group("full"),):
        pool.normal_()
    torch.cuda.synchronize()
    for program, planned in enumerate(executor.plan.programs):
        if planned.phase == "decode":
            count = planned.sequences
            batch = batch_of(executor, program, [30 + 17 * i for i in range(count)])
            replayed = executor.run(batch)
            logits, tokens = replayed.logits.clone(), replayed.tokens
            assert tokens is not None
            tokens = tokens.copy()
            torch.cuda.synchronize()
            executor.run(batch)
            eager = executor.eagerly(batch)
            assert torch.equal(logits[:count], eager.logits[:count])
            assert eager.tokens is not None
            assert (tokens[:count] == eager.tokens[:count]).all()
            assert (logits[:count].float().argmax(-1).cpu().numpy() == tokens[:count]).all()


def test_steps_allocate_nothing_and_a_row_takes_its_slots_last_token(
    tiny_hf: TinyHf, tmp_path: Path
) -> None:
    executor = executor_of(tiny(tmp_path / "a", tiny_hf("qwen3"), "bfloat16", CUDA))
    gc.collect()
    torch.cuda.empty_cache()  # what graphs read is held by the executor
    program = next(i for i, p in enumerate(executor.plan.programs) if p.name == "decode_4")
    batch = batch_of(executor, program, [30, 47, 64, 81])
    first = executor.run(batch).tokens
    assert first is not None
    known = replace(batch, token_ids=first[:4].copy())
    told = executor.run(known)
    logits = told.logits.clone()
    torch.cuda.synchronize()
    executor.run(batch)
    fed = executor.launch(replace(batch, token_ids=np.full(4, -1, np.int32)))()
    assert torch.equal(fed.logits[:4], logits[:4])
    counts = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(10):
        executor.run(known)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == counts


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_weights_are_read_into_the_device_as_the_files_hold_them(
    dtype: str, tiny_hf: TinyHf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "BLOCK_BYTES", 1_001)  # of which each thread reads many
    artifact = reseal(tiny(tmp_path / "a", tiny_hf("qwen3"), dtype, CUDA), 3_000)
    plan, told = load_plan(artifact), list[tuple[int, int]]()

    def tell(done: int, total: int, seconds: float) -> None:
        told.append((done, total))

    there = DeviceWeights(artifact, plan, 0, "cuda:0", tell)
    here = WeightStore(artifact, plan, 0)
    for weight in plan.weights:
        found, wanted = there.tensor(weight.name), here.tensor(weight.name)
        assert found.device == torch.device("cuda:0")
        assert torch.equal(found.cpu(), wanted)
    assert told[-1][0] == told[-1][1]
    (file,) = (artifact / "weights").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-4_000] + bytes([data[-4_000] ^ 1]) + data[-3_999:])
    with pytest.raises(ArtifactDamaged, match=f"weights/{file.name} was altered between bytes"):
        DeviceWeights(artifact, plan, 0, "cuda:0", tell).tensor(plan.weights[0].name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dummy_weights_have_the_same_bits_as_on_the_cpu(dtype: torch.dtype) -> None:
    for name, shape in (("a.weight", (700, 1300)), ("b.norm.weight", (4096,))):
        here = generate(3, name, shape, dtype, start=5)
        there = generate(3, name, shape, dtype, start=5, device="cuda").cpu()
        assert torch.equal(here.view(torch.uint8), there.view(torch.uint8))


def test_an_artifact_for_another_gpu_is_refused_by_name(tiny_hf: TinyHf, tmp_path: Path) -> None:
    other = {**CUDA, "arch": "sm_100", "topology": "b200-nvlink-8"}
    artifact = tiny(tmp_path / "a", tiny_hf("llama"), "bfloat16", other)
    done = command("tsrun", artifact, "--bench")
    assert done.returncode == 1
    assert f"built for cuda sm_100, but this machine offers cuda {cuda_arch(0)}" in done.stderr
