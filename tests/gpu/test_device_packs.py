"""Kernels of packs on the GPU: FlashInfer's FA3 against the reference, in graphs, two in flight.

The pack is the folder that the variable KERNEL_PACK names, or else it is compiled here.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decode_batches import CUDA
from deployments import EngineClient, build, command, greedy, recipe, start
from kernel_cases import seed
from numpy.typing import NDArray
from torch import Tensor

from tskernels.compilers import compile_function
from tskernels.device import CudaDevice
from tskernels.launch import Address, CallLayout, Operand, PackLaunch
from tskernels.op import tensor_type
from tskernels.ops.attention.flashinfer import plan_fa3
from tskernels.ops.attention.reference import attention
from tskernels.packs.compile import compile_pack
from tskernels.packs.library import PackLibrary, Place
from tskernels.packs.manifest import read_pack, write_pack
from tskernels.packs.sources import FLASHINFER_FA3
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.output import StepOutput
from tsruntime.workers.launch import launch

pytestmark = pytest.mark.gpu

TOLERANCE = 1e-2
"""Of bfloat16 results, against the largest of the reference's."""
WIDTH = 128


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("KERNEL_PACK")
    if given is not None:
        return Path(given)
    folder = tmp_path_factory.mktemp("packs") / FLASHINFER_FA3.name
    write_pack(folder, *compile_pack(FLASHINFER_FA3, "sm_90"))
    return folder


@dataclass(frozen=True, slots=True)
class Sizes:
    """A program's rows and sequences, and the model's heads and pages."""

    rows: int
    sequences: int
    heads: int
    key_heads: int
    page_size: int


@dataclass(frozen=True, slots=True)
class Case:
    """A step: new rows of each sequence, and the keys that it then has."""

    news: tuple[int, ...]
    lengths: tuple[int, ...]


RAGGED = Case((100, 1, 129, 64, 7), (100, 33, 300, 64, 700))
PREFIXED = Case((200, 312), (5000, 313))
CASES = {
    "ragged": (Sizes(512, 8, 8, 2, 16), RAGGED),
    "pages of 64": (Sizes(512, 8, 8, 2, 64), RAGGED),
    "pages of 8": (Sizes(512, 8, 8, 8, 8), RAGGED),
    "pages beyond a tile": (Sizes(512, 8, 8, 1, 256), RAGGED),
    "behind a prefix": (Sizes(512, 64, 32, 8, 64), PREFIXED),
    "single rows among them": (
        Sizes(256, 16, 32, 8, 64),
        Case((1,) * 6 + (100, 1, 2), (700, 33, 64, 1, 65, 129, 164, 4000, 2)),
    ),
    "one row": (Sizes(33, 1, 6, 3, 16), Case((1,), (1,))),
    "full": (Sizes(256, 2, 32, 8, 64), Case((128, 128), (128, 256))),
    "nothing": (Sizes(256, 2, 4, 2, 64), Case((), ())),
}


def operand(x: Tensor) -> Operand:
    return Operand(tensor_type(x), x.stride(), 256)


class Attention:
    """One call of the kernel as a program binds it, over memory whose padding is NaN."""

    def __init__(self, sizes: Sizes, case: Case, pack: Path) -> None:
        seed(7)
        self.sizes, self.case = sizes, case
        wide = sizes.heads + 2 * sizes.key_heads
        packed = torch.randn(sizes.rows, wide, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.query = packed[:, : sizes.heads]  # a strided view, as where products are packed
        self.query[sum(case.news) :] = math.nan
        self.output = torch.full_like(packed[:, : sizes.heads], math.nan).contiguous()
        self.cache, self.table = self._pages()
        lengths = [*case.lengths, *[0] * (sizes.sequences - len(case.lengths))]
        starts = np.cumsum([0, *case.news]).tolist()
        starts += [starts[-1]] * (sizes.sequences + 1 - len(starts))
        self.lengths = torch.tensor(lengths, dtype=torch.int32).pin_memory()
        self.starts = torch.tensor(starts, dtype=torch.int32).pin_memory()
        inputs = (self.query, self.cache, self.table, self.lengths, self.starts)
        self.inputs = (*inputs, None)
        layouts = tuple(map(operand, inputs))
        call = CallLayout(
            (*layouts, None),
            (operand(self.output),),
            {"scale": WIDTH**-0.5, "window": 0},
            "sm_90",
        )
        self.plan = plan_fa3(call)
        self.areas = {
            "host": torch.zeros(self.plan.step_bytes, dtype=torch.uint8).pin_memory(),
            "step": torch.zeros(self.plan.step_bytes, dtype=torch.uint8, device="cuda"),
            "scratch": torch.full((self.plan.scratch_bytes // 4 + 1,), math.nan, device="cuda"),
            "counters": torch.zeros(self.plan.counter_bytes // 4 + 1, device="cuda").int(),
        }
        described, library = read_pack(pack)
        self.library = PackLibrary(described.name, library)

    def _pages(self) -> tuple[Tensor, Tensor]:
        """Pages in no order; what lies beyond a sequence's keys, and the null page, is NaN."""
        size, sizes = self.sizes.page_size, self.sizes
        counts = [-(-length // size) for length in self.case.lengths]
        shape = (sum(counts) + 3, 2, sizes.key_heads, size, WIDTH)
        cache = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        cache[0] = math.nan
        free = (1 + np.random.default_rng(7).permutation(sum(counts) + 2)).tolist()
        table = torch.zeros(sizes.sequences, 5120 // size, dtype=torch.int32)
        for row, (count, length) in enumerate(zip(counts, self.case.lengths, strict=True)):
            mine, free = free[:count], free[count:]
            table[row, :count] = torch.tensor(mine, dtype=torch.int32)
            if length % size:
                cache[mine[-1], :, :, length % size :] = math.nan
        cache[free] = math.nan
        return cache, table.cuda()

    def launch(self, stream: torch.cuda.Stream) -> None:
        """What comes before the pack's part."""
        device = CudaDevice(stream)
        for planned in self.plan.launches:
            kernel = device.load(compile_function(planned.function, "sm_90"))
            pointers = [self._address(address) for address in planned.addresses]
            assert not planned.maps
            kernel.bind(planned.grid, pointers, early=True)()

    def run(self, stream: torch.cuda.Stream, calls: tuple[PackLaunch, ...]) -> None:
        place = Place(0, stream.cuda_stream)
        for call in calls:
            addresses = [self._address(address) for address in call.addresses]
            self.library.bind(call.function, addresses, call.integers, call.reals, place)()

    def _address(self, address: Address) -> int:
        if address.space in self.areas:
            return self.areas[address.space].data_ptr() + address.index
        found = self.inputs[address.index] if address.space == "input" else self.output
        assert found is not None
        return found.data_ptr()  # of lengths in pinned memory, which a GPU reads too

    def expected(self) -> Tensor:
        real = self.cache.nan_to_num().float()  # what no row may see
        query = self.query.nan_to_num().float()
        device = self.lengths.cuda(), self.starts.cuda()
        return attention(query, real, self.table, *device, scale=WIDTH**-0.5)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_reference_and_touches_no_padding(name: str, pack: Path) -> None:
    sizes, case = CASES[name]
    call, stream = Attention(sizes, case, pack), torch.cuda.Stream()
    torch.cuda.synchronize()
    call.run(stream, call.plan.from_pack)  # no list yet: nothing is computed
    torch.cuda.synchronize()
    assert call.output.isnan().all()
    call.launch(stream)
    call.run(stream, (*call.plan.prepare, *call.plan.from_pack))
    torch.cuda.synchronize()
    rows = sum(case.news)
    assert call.output[rows:].isnan().all()
    if rows:
        got, want = call.output[:rows].float(), call.expected()[:rows]
        assert (got - want).abs().max() <= TOLERANCE * want.abs().max()


MODEL: dict[str, Any] = {
    **json.loads((Path(__file__).parents[2] / "recipes/configs/qwen3-8b.json").read_text()),
    "vocab_size": 384,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}


def packed(folder: Path, *packs: Path) -> Path:
    """An artifact of a small model with heads 128 wide."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    contents: dict[str, Any] = {
        "model": {"config": str(folder / "config.json"), "weights": "dummy"},
        "dtype": "bfloat16",
        "target": CUDA,
        "buckets": {"decode": [1, 4], "extend": [[64, 4], [256, 4]]},
        "limits": {"max_model_len": 1024, "max_batch": 4, "token_budget": 256},
        "kv_cache": {"page_size": 16, "pages": 257},
        "kernels": {"packs": [str(path) for path in packs]},
        "chat": False,
    }
    return build(folder, recipe("unused") | contents)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, pack: Path) -> tuple[Path, Path]:
    """With the pack's kernel, and with Triton's alone."""
    folder = tmp_path_factory.mktemp("packed")
    return packed(folder / "with", pack), packed(folder / "without")


def executor_of(artifact: Path, *trusted: str) -> DeviceExecutor:
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan, trusted)
    weights = WeightStore(artifact, plan, 0, "cuda:0")
    torch.set_grad_enabled(False)
    return DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code)


def extend(executor: DeviceExecutor, case: Case) -> ForwardBatch:
    """New rows of sequences of 1,024 tokens' pages each, in the largest program."""
    size = executor.plan.kv_cache.page_size
    most, count = 1024 // size, len(case.news)
    index = max(range(len(executor.plan.programs)), key=lambda i: executor.plan.programs[i].tokens)
    slots = np.arange(count, dtype=np.int32)
    deltas = [(s, i, 1 + s * most + i) for s in range(count) for i in range(most)]
    spans = [(n - new, n) for new, n in zip(case.news, case.lengths, strict=True)]
    positions = np.concatenate([np.arange(*span, dtype=np.int32) for span in spans])
    owners = np.repeat(slots, case.news)
    places = (1 + owners * most + positions // size) * size + positions % size
    none = np.empty(0, np.int32)
    group = GroupBatch(
        places.astype(np.int32), np.array(deltas, np.int32), none.reshape(0, 2), none
    )
    starts = np.cumsum([0, *case.news]).astype(np.int32)
    tokens = (positions * 31 + owners * 7) % executor.plan.vocab_size
    lengths = np.array(case.lengths, np.int32)
    return ForwardBatch(0, index, slots, lengths, starts, tokens, positions, (group,))


STEPS = (
    Case((100, 33, 17), (100, 33, 17)),
    Case((64, 1, 100, 50), (164, 34, 117, 50)),
    Case((1, 250), (165, 284)),
    Case((1, 1, 1), (166, 285, 118)),
)


def test_graphs_replay_any_lengths_with_the_bits_of_eager_launches(
    artifacts: tuple[Path, Path], pack: Path
) -> None:
    ours = executor_of(artifacts[0], read_pack(pack)[0].digest)
    theirs = executor_of(artifacts[1])
    for case in STEPS:
        count = len(case.news)
        replayed = ours.run(extend(ours, case)).logits[:count].clone()
        eager = ours.eagerly(extend(ours, case)).logits[:count]
        assert torch.equal(replayed, eager)
        other = theirs.run(extend(theirs, case)).logits[:count].float()
        assert (replayed.float() - other).abs().max() <= 0.05 * other.abs().max()


def test_a_step_is_prepared_while_the_one_before_it_runs(
    artifacts: tuple[Path, Path], pack: Path
) -> None:
    executor = executor_of(artifacts[0], read_pack(pack)[0].digest)
    batches = [extend(executor, case) for case in STEPS]
    alone = [drawn(executor.run(batch), batch) for batch in batches]
    counts = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(5):
        waits = [executor.launch(batch) for batch in batches]
        for batch, wait, wanted in zip(batches[-2:], waits[-2:], alone[-2:], strict=True):
            assert (drawn(wait(), batch) == wanted).all()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == counts


def drawn(output: StepOutput, batch: ForwardBatch) -> NDArray[np.int32]:
    """The step's tokens, kept beyond the next one."""
    assert output.tokens is not None
    return output.tokens[: batch.num_sequences].copy()


def test_the_engine_draws_the_tokens_that_it_draws_with_triton(
    artifacts: tuple[Path, Path], pack: Path
) -> None:
    prompts = [[i * 31 % 384 for i in range(n)] for n in (5, 300, 70, 1)]
    with launch(artifacts[0], [read_pack(pack)[0].digest]) as workers:
        workers.wait_ready(60)
        client = EngineClient(workers)
        ours = [client.generate(prompts, greedy(16)) for _ in range(2)]
    with start(artifacts[1]) as others:
        theirs = EngineClient(others).generate(prompts, greedy(16))
    assert [a.tokens for a in ours[0]] == [a.tokens for a in ours[1]]
    same = sum(a.tokens[0] == b.tokens[0] for a, b in zip(ours[0], theirs, strict=True))
    assert same >= len(prompts) - 1  # rounding may turn one


def test_an_untrusted_pack_is_refused_before_its_code_runs(
    artifacts: tuple[Path, Path], pack: Path
) -> None:
    done = command("tsrun", artifacts[0], "--bench")
    assert done.returncode == 1
    assert "TS0413" in done.stderr
    assert read_pack(pack)[0].digest in done.stderr
