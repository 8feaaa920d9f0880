"""A rank works on the GPU that it is given, and on no other; CUDA_VISIBLE_DEVICES chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import TinyHf
from decode_batches import CUDA, batch_of
from deployments import EngineClient, build, greedy, recipe, start

from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.loading import DeviceWeights

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]


@pytest.fixture(scope="module")
def artifact(tiny_hf: TinyHf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    contents = recipe(tiny_hf("qwen3"), dtype="float32", target=CUDA)
    contents["kv_cache"] = {"page_size": 16, "pages": 65}
    return build(tmp_path_factory.mktemp("ordinals"), contents)


def executor_on(artifact: Path, index: int) -> DeviceExecutor:
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan)
    weights = DeviceWeights(artifact, plan, 0, f"cuda:{index}")
    torch.set_grad_enabled(False)
    return DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code, index)


def test_the_second_gpu_gives_the_bits_of_the_first(artifact: Path) -> None:
    logits: list[torch.Tensor] = []
    for index in (0, 1):
        executor = executor_on(artifact, index)
        program = next(i for i, p in enumerate(executor.plan.programs) if p.name == "decode_4")
        output = executor.run(batch_of(executor, program, [1, 1, 1, 1]))
        assert output.logits.device == torch.device(f"cuda:{index}")
        assert output.tokens is not None
        logits.append(output.logits.cpu())
        assert (np.argmax(logits[-1].numpy(), -1) == output.tokens).all()
    assert torch.equal(*logits)


def test_a_visible_gpu_is_the_only_one_used(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in (0, 1):
        torch.zeros(1, device=f"cuda:{index}")  # our own contexts
    prompt = [5, 9, 200, 3]
    with start(artifact) as workers:
        unset = EngineClient(workers).generate([prompt], greedy(16))[0].tokens
        first_free = [torch.cuda.mem_get_info(index)[0] for index in (0, 1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with start(artifact) as workers:
        chosen = EngineClient(workers).generate([prompt], greedy(16))[0].tokens
        second_free = [torch.cuda.mem_get_info(index)[0] for index in (0, 1)]
    assert chosen == unset
    assert first_free[0] < second_free[0]  # the first run had GPU 0, the second one GPU 1
    assert second_free[1] < first_free[1]
