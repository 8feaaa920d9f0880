"""Draws of the device's kernels beside the host's sampler; as a program, by Triton's interpreter.

`TRITON_INTERPRET=1 python sampling_runs.py short` prints a JSON list of what differs. Requests
with all kinds of rules share steps; their counts live on across the steps, as on a device.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from triton_runs import repair_interpreter

from tskernels.launch import Address, Function, LaunchPlan, Operand, Pointer
from tskernels.ops.sampling import words
from tskernels.ops.sampling.cuda_full import plan_draw, plan_past
from tskernels.schema import DType, TensorType
from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.sampler import Sampler
from tsruntime.sampling.table import DrawTable

ARCHES = {"cpu": "sm_80", "cuda": "sm_90"}
"""What kernels are planned for; the interpreter knows none that begin early."""

RULES: Sequence[SamplingParams] = (
    SamplingParams(9, temperature=0.0),
    SamplingParams(9, seed=1),
    SamplingParams(9, seed=2, top_k=7, logprobs=3),
    SamplingParams(9, seed=3, top_p=0.8, temperature=1.7),
    SamplingParams(9, seed=4, top_p=0.95, top_k=40, min_p=0.01, temperature=0.6, logprobs=0),
    SamplingParams(9, seed=5, min_p=0.2),
    SamplingParams(9, temperature=0.0, repetition_penalty=1.4, frequency_penalty=0.3),
    SamplingParams(9, seed=6, presence_penalty=0.9, frequency_penalty=-0.4, top_p=0.7),
    SamplingParams(9, seed=7, logit_bias=((3, 9.5), (11, -100.0), (40, 2.25)), top_k=5),
    SamplingParams(9, seed=-8, min_tokens=3, stop_token_ids=(2, 5, 9), temperature=0.3),
    SamplingParams(9, temperature=0.0, logit_bias=((8, 30.0),), min_tokens=2, stop_token_ids=(8,)),
    SamplingParams(9, seed=9, top_p=1e-6, repetition_penalty=0.8),
    SamplingParams(9, seed=10, temperature=1e-60, top_k=3, top_p=0.5),
)


@dataclass
class Device:
    """The tensors that the launches of draws work on, for one number of rows."""

    rows: int
    vocab: int
    dtype: torch.dtype
    device: str = "cpu"
    tensors: Mapping[str, Sequence[Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        single, most = torch.float32, words.TOP_LOGPROBS
        counts, biases = zeros(self.rows, self.vocab), zeros(self.rows, self.vocab, dtype=single)
        self.tensors = {
            "input": [
                zeros(self.rows, self.vocab, dtype=self.dtype),
                zeros(self.rows),
                zeros(self.rows, words.ROW_WORDS),
                zeros(self.rows, words.mask_words(self.vocab)),
                counts,
                biases,
            ],
            "output": [
                zeros(self.rows),
                zeros(self.rows),
                counts,
                zeros(self.rows, dtype=single),
                zeros(self.rows, most),
                zeros(self.rows, most, dtype=single),
            ],
        }

    def operand(self) -> Operand:
        """The logits, as a plan knows them."""
        dtype = DType(str(self.dtype).removeprefix("torch."))
        return Operand(TensorType(dtype, (self.rows, self.vocab)), (self.vocab, 1), 256)


def interpret(plan: LaunchPlan, tensors: Mapping[str, Sequence[Tensor]]) -> None:
    """Run the launches by Triton's interpreter; scratch begins as ones in every bit."""
    scratch = torch.full((plan.scratch_bytes,), 255, dtype=torch.uint8)
    counters = torch.zeros(plan.counter_bytes, dtype=torch.uint8)

    def point(address: Address, pointer: Pointer) -> Tensor:
        area = {"scratch": scratch, "counters": counters}.get(address.space)
        if area is None:
            return tensors[address.space][address.index]
        size = len(area) // pointer.dtype.itemsize * pointer.dtype.itemsize
        return area[address.index : size].view(pointer.dtype.torch)

    for launch in plan.launches:
        function = launch.function
        assert isinstance(function, Function), "only Triton's functions are interpreted"
        jitted = getattr(importlib.import_module(function.module), function.name)
        pointers = map(point, launch.addresses, function.pointers)
        jitted[launch.grid](*pointers, **dict(function.constants), num_warps=function.num_warps)
    assert not counters.any(), "a launch left its counters"


Run: TypeAlias = Callable[[LaunchPlan, Mapping[str, Sequence[Tensor]]], None]
"""Runs launches on their operands."""


def logits_of(rng: np.random.Generator, rows: int, vocab: int, dtype: torch.dtype) -> Tensor:
    """Peaked and flat rows of both signs with exact ties, some excluded tokens, and both zeros."""
    spread = rng.choice([0.5, 2.0, 8.0], size=(rows, 1))
    x = torch.as_tensor(rng.normal(size=(rows, vocab)) * spread).to(dtype)
    x[:, vocab // 2 : vocab // 2 + 60] = x[:, :60]
    x[:, 70:80] = -math.inf
    x[:, 90], x[:, 91] = 0.0, -0.0
    return x


@dataclass(frozen=True)
class Setting:
    """What is drawn: `rows` requests over `steps` steps, of logits of `vocab` tokens."""

    seed: int
    rows: int
    vocab: int
    steps: int
    dtype: torch.dtype


SHORT = (Setting(0, 13, 400, 2, torch.bfloat16), Setting(2, 2, 1100, 2, torch.float32))
LONG = tuple(
    Setting(seed, *(5, 1500) if seed % 2 else (12, 2100), 4, dtype)
    for seed, dtype in enumerate((torch.bfloat16, torch.float32, torch.float16) * 2)
)


def differences(setting: Setting, run: Run = interpret, device: str = "cpu") -> list[str]:
    """What differs between the two over the steps."""
    seed, rows, vocab, dtype = setting.seed, setting.rows, setting.vocab, setting.dtype
    rng = np.random.default_rng(seed)
    there = Device(rows, vocab, dtype, device)
    table, host = DrawTable(vocab, rows), Sampler(vocab, rows)
    rules = [RULES[(seed + i) % len(RULES)] for i in range(rows)]
    found: list[str] = []
    for slot, params in enumerate(rules):
        prompt = [int(token) for token in rng.integers(0, vocab, 30)]
        earlier = [int(token) for token in rng.integers(0, vocab, 0 if params.min_tokens else 2)]
        table.restore(slot, params, prompt, earlier)
        host.restore(slot, params, prompt, earlier)
    for step in range(setting.steps):
        logits = logits_of(rng, rows, vocab, dtype)
        slots = rng.permutation(rows).astype(np.int32)
        positions = (31 + step + slots).astype(np.int32)
        masks = {int(rng.integers(rows)): rng.random(vocab) < 0.1} if step % 2 else None
        tokens = drawn(there, table, run, logits, slots, positions, masks)
        wide = logits.float()
        twin = host.sample(wide, slots.tolist(), positions.tolist(), masks)
        for row, (got, want) in enumerate(zip(tokens, twin.tolist(), strict=True)):
            if got != want:
                found.append(f"step {step}, {rules[slots[row]]}: {got}, not {want}")
        found += wrong_logprobs(there, host, wide, slots, twin)
    return found


def drawn(
    there: Device,
    table: DrawTable,
    run: Run,
    logits: Tensor,
    slots: NDArray[np.int32],
    positions: NDArray[np.int32],
    masks: Mapping[int, NDArray[np.bool_]] | None,
) -> list[int]:
    """The device's tokens of a step."""
    draws = table.draws(slots, positions, np.ones(len(slots), np.bool_), masks)
    inputs, outputs = there.tensors["input"], there.tensors["output"]
    rebuild(there, draws.pasts, run)
    inputs[0].copy_(logits)
    inputs[1].copy_(torch.as_tensor(slots))
    inputs[2].copy_(torch.as_tensor(draws.rows))
    inputs[3].fill_(0)
    for row, mask in zip(draws.masked.tolist(), draws.masks, strict=True):
        inputs[3][row].copy_(torch.as_tensor(mask))
    run(plan_draw(there.operand(), there.rows, ARCHES[there.device], draws.kind), there.tensors)
    tokens = outputs[0].cpu().numpy()
    assert (outputs[1].cpu().numpy()[slots] == tokens).all()
    return [int(token) for token in tokens]


def rebuild(there: Device, pasts: NDArray[np.int32], run: Run) -> None:
    """Have the device know the slots' pasts."""
    inputs = there.tensors["input"]
    while len(pasts):
        seen, made, stops, biased = pasts[1:5].tolist()
        size = words.PAST_HEADER + seen + made + stops + 2 * biased
        past = torch.as_tensor(pasts[:size].copy()).to(there.device)
        plan = plan_past(there.vocab, there.rows, ARCHES[there.device])
        run(plan, {"input": [past], "output": [inputs[4], inputs[5]]})
        pasts = pasts[size + -size % words.PAST_STEP :]


def wrong_logprobs(
    there: Device,
    host: Sampler,
    logits: Tensor,
    slots: NDArray[np.int32],
    tokens: NDArray[np.int32],
) -> list[str]:
    """Log-probabilities that are not the host's within rounding."""
    chosen, ids, values = (x.cpu().numpy() for x in there.tensors["output"][3:])
    found: list[str] = []
    for row, want in enumerate(host.logprobs(logits, slots.tolist(), tokens.tolist())):
        if want is None:
            continue
        got = [(int(i), float(x)) for i, x in zip(ids[row], values[row], strict=True)]
        got = got[: len(want.top)]
        same = [i for i, _ in got] == [i for i, _ in want.top]
        pairs = [(float(chosen[row]), want.logprob)]
        pairs += [(a, b) for (_, a), (_, b) in zip(got, want.top, strict=True)]
        if not same or any(abs(a - b) > 2e-5 * max(1.0, abs(b)) for a, b in pairs):
            found.append(f"logprobs {got} and {chosen[row]}, not {want}")
    return found


def main() -> None:
    """Interpret the settings, the short ones or the long ones, by the argument."""
    repair_interpreter()
    settings = {"short": SHORT, "long": LONG}[sys.argv[1]]
    print(json.dumps([line for setting in settings for line in differences(setting)]))


if __name__ == "__main__":
    main()
