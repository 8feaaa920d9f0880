"""Tokens drawn on the GPU are the host sampler's: kernels alone, and whole engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from checkpoints import TinyHf
from deployments import build, recipe
from sampling_runs import LONG, RULES, Setting, differences
from torch import Tensor

from tskernels.compilers import compile_function
from tskernels.device import CudaDevice, CudaKernel
from tskernels.launch import DEPENDENT_LAUNCH, Address, Compiled, LaunchPlan
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.weights import WeightStore
from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Submit, TokenOutput
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.output import StepOutput, Wait
from tsruntime.sampling.params import SamplingParams

pytestmark = pytest.mark.gpu

ARCH = "sm_90"
CUDA = {"device": "cuda", "arch": ARCH, "topology": "h200-nvlink-8"}
LARGE = (
    Setting(21, 1, 151_936, 6, torch.bfloat16),
    Setting(22, 8, 151_936, 4, torch.bfloat16),
    Setting(23, 64, 151_936, 3, torch.bfloat16),
    Setting(24, 32, 49_152, 4, torch.float32),
)


def launcher() -> Callable[[LaunchPlan, Mapping[str, Sequence[Tensor]]], None]:
    """Runs launches on the GPU, compiled as an artifact holds them."""
    device = CudaDevice(torch.cuda.Stream())
    loaded: dict[Compiled, CudaKernel] = {}

    def run(plan: LaunchPlan, tensors: Mapping[str, Sequence[Tensor]]) -> None:
        areas = {
            "scratch": torch.full((plan.scratch_bytes + 8,), 255, dtype=torch.uint8, device="cuda"),
            "counters": torch.zeros(plan.counter_bytes + 8, dtype=torch.uint8, device="cuda"),
        }

        def pointer(address: Address) -> int:
            if address.space in areas:
                return areas[address.space].data_ptr() + address.index
            return tensors[address.space][address.index].data_ptr()

        torch.cuda.synchronize()
        for launch in plan.launches:
            if launch.function not in loaded:
                loaded[launch.function] = device.load(compile_function(launch.function, ARCH))
            pointers = [pointer(address) for address in launch.addresses]
            early = ARCH in DEPENDENT_LAUNCH
            loaded[launch.function].bind(launch.grid, pointers, early=early)()
        torch.cuda.synchronize()
        assert not areas["counters"].any()

    return run


@pytest.mark.parametrize("setting", [*LONG, *LARGE], ids=str)
def test_draws_are_the_hosts(setting: Setting) -> None:
    assert differences(setting, launcher(), "cuda") == []


class HostDraws:
    """The GPU's executor, as one that leaves drawing to the host."""

    draws_tokens = False

    def __init__(self, executor: DeviceExecutor) -> None:
        self.executor, self.plan = executor, executor.plan

    def run(self, batch: ForwardBatch) -> StepOutput:
        return self.launch(batch)()

    def launch(self, batch: ForwardBatch) -> Wait:
        waiting = self.executor.launch(batch)
        return lambda: StepOutput(waiting().logits.clone())


@pytest.fixture(scope="module")
def executor(tiny_hf: TinyHf, tmp_path_factory: pytest.TempPathFactory) -> DeviceExecutor:
    contents = recipe(tiny_hf("qwen3"), dtype="bfloat16", target=CUDA)
    contents["kv_cache"] = {"page_size": 16, "pages": 65}
    artifact = build(tmp_path_factory.mktemp("draws"), contents)
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan)
    torch.set_grad_enabled(False)
    weights = WeightStore(artifact, plan, 0, "cuda:0")
    return DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code)


def answers(
    executor: DeviceExecutor | HostDraws, asked: Sequence[SamplingParams]
) -> list[list[TokenOutput]]:
    with Engine(executor.plan, executor, NoFollowers()) as engine:
        for number, params in enumerate(asked):
            prompt = tuple((number * 37 + 11 * i) % 300 for i in range(5 + 9 * number))
            assert engine.submit(Submit(number, prompt, params)) == []
        outputs: list[list[TokenOutput]] = [[] for _ in asked]
        while engine.busy:
            for event in engine.step():
                assert isinstance(event, TokenOutput)
                outputs[event.id].append(event)
    return outputs


def test_an_engine_answers_as_where_the_host_draws(executor: DeviceExecutor) -> None:
    """Log-probabilities are of logits in bfloat16, which both sides see alike."""
    asked = [replace(rules, max_tokens=40) for rules in RULES]
    found, wanted = answers(executor, asked), answers(HostDraws(executor), asked)
    for outputs, twins, params in zip(found, wanted, asked, strict=True):
        assert [o.token for o in outputs] == [o.token for o in twins], params
        for got, want in zip(outputs, twins, strict=True):
            assert (got.logprobs is None) == (want.logprobs is None)
            if got.logprobs is not None and want.logprobs is not None:
                assert math.isclose(got.logprobs.logprob, want.logprobs.logprob, abs_tol=1e-4)
                assert [i for i, _ in got.logprobs.top] == [i for i, _ in want.logprobs.top]


def test_steps_that_draw_allocate_nothing_and_wait_for_their_tokens_alone(
    executor: DeviceExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    event, stream, device = (
        torch.cuda.Event.synchronize,
        torch.cuda.Stream.synchronize,
        torch.cuda.synchronize,
    )

    def wait_for_event(self: torch.cuda.Event) -> None:
        waits.append("event")
        event(self)

    def wait_for_stream(self: torch.cuda.Stream) -> None:
        waits.append("stream")
        stream(self)

    def wait_for_device() -> None:
        waits.append("device")
        device()

    monkeypatch.setattr(torch.cuda.Event, "synchronize", wait_for_event)
    monkeypatch.setattr(torch.cuda.Stream, "synchronize", wait_for_stream)
    monkeypatch.setattr(torch.cuda, "synchronize", wait_for_device)
    launched = executor.launch
    allocated: list[int] = []

    def launch(batch: ForwardBatch) -> Wait:
        before, counted = len(waits), torch.cuda.memory_stats()["allocation.all.allocated"]
        waiting = launched(batch)
        assert waits[before:] == ["event"]  # that the step before last has ended
        if not any(len(group.table_deltas) for group in batch.groups):
            after = torch.cuda.memory_stats()["allocation.all.allocated"]
            allocated.append(after - counted)
        return waiting

    monkeypatch.setattr(executor, "launch", launch)
    answers(executor, [replace(rules, max_tokens=30) for rules in RULES[:4]])
    assert set(waits) == {"event"}
    assert len(allocated) > 20
    assert not any(allocated)
