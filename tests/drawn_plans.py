"""What hypothesis draws for equivalence tests: tiny models of every family, however spread.

Dims are made from the sizes, so that what has to divide does: heads by ATTN_TP, widths by DENSE_TP
and MOE_TP, experts by MOE_EP. The vocabulary and the hidden width divide by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from random import Random
from typing import Any, Final, TypeAlias

from checkpoints import FAMILIES, Family
from compile_requests import tiny_model_config, tiny_request
from fp8_checkpoints import quantization
from hypothesis import strategies as st

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes, divisors
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.session import Session
from tscompile.simulate.simulate import Simulation
from tskernels.schema import DType
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.schema import Phase, Plan
from tsruntime.executor.batch import ForwardBatch

SPARSE: Final[frozenset[Family]] = frozenset({"qwen3_moe", "deepseek", "gpt_oss"})
"""Families with experts."""

Counts: TypeAlias = tuple[tuple[int, int], ...]
"""(sequence, tokens) of a replica's step."""

PAGE_SIZE, MAX_LENGTH = 4, 40

WORLDS: Final = (4, 2, 6, 3, 4, 8, 2, 4, 12, 2, 4, 3, 6, 16, 1)
"""Ranks of the setups that CI draws from; at night all of 1 to 16."""

CHUNK: Final = 99
"""Instead of how many sequences go on: all of them, the first one by two tokens."""


def legal_sizes(world: int, *, sparse: bool) -> list[ParallelSizes]:
    """Every nesting of the groups' sizes in `world` ranks."""
    sizes = divisors(world)
    experts = list(product(sizes, repeat=2)) if sparse else [(1, 1)]
    return [
        ParallelSizes(world, attn, dense, tp, ep)
        for attn, dense, (tp, ep) in product(sizes, sizes, experts)
        if world % (tp * ep) == 0 and _nest((attn, dense, tp, tp * ep))
    ]


def _nest(sizes: tuple[int, ...]) -> bool:
    return all(a % b == 0 or b % a == 0 for a, b in product(sizes, repeat=2))


@dataclass(frozen=True, slots=True)
class Dims:
    """Multiples of the least dims that divide, and options; `tokens` and `batch` are a replica's.

    `shared`: ranks that have one KV head together, where ATTN_TP is a multiple.
    """

    layers: int = 1
    kv_heads: int = 1
    shared: int = 1
    queries: int = 1
    head_dim: int = 4
    hidden: int = 1
    width: int = 1
    experts: int = 1
    vocabulary: int = 24
    bias: bool = False
    batch: int = 2
    tokens: int = 8
    decodes: bool = False
    """Whether there is a decode bucket of one row, too."""
    block: int = 0
    """Width and height of the blocks that share a scale of e4m3 weights; 0: plain weights."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A tiny model, spread."""

    family: Family
    sizes: ParallelSizes
    dims: Dims

    def changes(self) -> dict[str, Any]:
        """The HF fields of the model."""
        sizes, dims = self.sizes, self.dims
        shared = self._shared()
        kv_heads = sizes.attn_tp // shared if shared > 1 else sizes.attn_tp * dims.kv_heads
        heads = math.lcm(kv_heads, sizes.attn_tp) * dims.queries
        fields: dict[str, Any] = {
            "num_hidden_layers": dims.layers,
            "vocab_size": dims.vocabulary,
            "hidden_size": heads * 2 * dims.hidden,
            "intermediate_size": sizes.dense_tp * dims.width * max(1, dims.block),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": dims.head_dim,
            "attention_bias": dims.bias,
            "mlp_bias": dims.bias,
            "max_position_embeddings": 512,
        }
        return fields | self._quantized() | self._of_family(heads)

    def _quantized(self) -> dict[str, Any]:
        """Block-scaled weights, which experts cannot have."""
        block = self.dims.block
        if not block or self.family in SPARSE:
            return {}
        return {"quantization_config": quantization((block, block))}

    def _shared(self) -> int:
        """Ranks that have one KV head together; 1 where so many would not nest with the groups."""
        sizes = self.sizes
        shared = math.gcd(self.dims.shared, sizes.attn_tp)
        experts = (sizes.moe_tp, sizes.moe_tp * sizes.moe_ep)
        return shared if _nest((shared, sizes.attn_tp, sizes.dense_tp, *experts)) else 1

    def _of_family(self, heads: int) -> dict[str, Any]:
        sizes, dims = self.sizes, self.dims
        experts = sizes.moe_ep * dims.experts * 2
        width = math.lcm(sizes.moe_tp, sizes.dense_tp) * dims.width
        match self.family:
            case "mistral":
                return {"sliding_window": 6}
            case "qwen3_moe":
                return {
                    "num_experts": experts,
                    "num_experts_per_tok": 2,
                    "moe_intermediate_size": width,
                    "mlp_only_layers": [1],
                }
            case "deepseek":
                return {
                    "num_key_value_heads": heads,
                    "head_dim": None,
                    "q_lora_rank": 12 if dims.bias else None,
                    "kv_lora_rank": 10,
                    "qk_rope_head_dim": 4,
                    "n_routed_experts": experts,
                    "n_group": 2,
                    "topk_group": 1,
                    "num_experts_per_tok": min(2, experts // 2),
                    "n_shared_experts": 1,
                    "moe_intermediate_size": width,
                    "first_k_dense_replace": dims.layers - 1,
                }
            case "gpt_oss":
                return {
                    "num_local_experts": experts,
                    "num_experts_per_tok": 2,
                    "intermediate_size": width,
                    "sliding_window": 6,
                    "attention_bias": True,
                }
            case _:
                return {}

    def request(self) -> CompileRequest:
        """What the compiler is asked for: one extend bucket, one or two decode buckets."""
        dims = self.dims
        decode = (1, dims.batch) if dims.decodes and dims.batch > 1 else (dims.batch,)
        pages = dims.batch * (MAX_LENGTH // PAGE_SIZE) + 1
        fields = {k: v for k, v in self.changes().items() if v is not None}
        return tiny_request(
            tiny_model_config(self.family, **fields),
            self.sizes,
            buckets=Buckets(decode, ((dims.tokens, dims.batch),)),
            limits=LimitsRequest(MAX_LENGTH, dims.batch, dims.tokens),
            kv=KvCacheRequest(PAGE_SIZE, DType.FLOAT64, pages=pages),
        )

    @property
    def replicas(self) -> int:
        """Attention replicas."""
        return self.sizes.world // self.sizes.attn_tp


@lru_cache(maxsize=256)
def proven(setup: Setup) -> tuple[Plan, Certificate]:
    """The setup's plan, which the checker has accepted, and its certificate."""
    request = setup.request()
    plan, certificate = compile_plan(request).plan, certify(request)
    check_proof(plan, certificate)
    return plan, certificate


@dataclass(frozen=True, slots=True)
class Case:
    """A setup and its work: each replica's prompt lengths (none: it idles), steps that follow.

    A step is for each replica how many of its sequences go on, or `CHUNK`.
    """

    setup: Setup
    seed: int
    prompts: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[int, ...], ...]

    def batches(
        self, plan: Plan, sessions: Sequence[Session]
    ) -> Iterator[tuple[ForwardBatch, ...]]:
        """Step by step what each replica runs, all of them the same program."""
        everyone = [tuple(enumerate(lengths)) for lengths in self.prompts]
        yield _batches(plan, sessions, 1, everyone)
        for number, goes in enumerate(self.steps, 2):
            everyone = [
                tuple((slot, _more(slot, go)) for slot in range(len(lengths)) if slot < go)
                for lengths, go in zip(self.prompts, goes, strict=True)
            ]
            yield _batches(plan, sessions, number, everyone)

    def worst(self) -> float:
        """The largest difference of any value of any step from the unsharded one."""
        simulation = Simulation(*proven(self.setup), self.seed)
        steps = self.batches(simulation.plan, simulation.sessions)
        return max(simulation.step(batches).worst.error for batches in steps)


def _more(slot: int, go: int) -> int:
    return 2 if go == CHUNK and slot == 0 else 1


def _batches(
    plan: Plan, sessions: Sequence[Session], step: int, everyone: Sequence[Counts]
) -> tuple[ForwardBatch, ...]:
    program = _program(plan, everyone)
    pairs = zip(sessions, everyone, strict=True)
    return tuple(session.batch(program, step, counts) for session, counts in pairs)


def _program(plan: Plan, everyone: Sequence[Counts]) -> int:
    """The smallest program of the phase that fits what each replica does."""
    rows = max(sum(n for _, n in counts) for counts in everyone)
    decoding = all(n == 1 for counts in everyone for _, n in counts)
    phase = Phase.DECODE if decoding else Phase.EXTEND
    fitting = [
        (p.tokens, i) for i, p in enumerate(plan.programs) if p.phase is phase and p.tokens >= rows
    ]
    return min(fitting)[1]


def setups(worlds: Sequence[int]) -> st.SearchStrategy[Setup]:
    """A family, a nesting of the sizes of one of the worlds, and dims that they divide."""
    flags, small = st.booleans(), st.integers(1, 2)
    dims = st.builds(
        Dims,
        layers=small,
        kv_heads=small,
        shared=st.sampled_from((1, 1, 2, 3, 4)),
        queries=small,
        head_dim=st.sampled_from((2, 4, 6)),
        hidden=st.integers(1, 3),
        width=st.integers(1, 3),
        experts=small,
        vocabulary=st.integers(20, 40),
        bias=flags,
        batch=st.integers(1, 4),
        tokens=st.integers(5, 16),
        decodes=flags,
        block=st.sampled_from((0, 0, 2)),
    )

    def of(family: Family, world: int) -> st.SearchStrategy[Setup]:
        sizes = legal_sizes(world, sparse=family in SPARSE)
        return st.builds(Setup, st.just(family), st.sampled_from(sizes), dims)

    pairs = st.tuples(st.sampled_from(FAMILIES), st.sampled_from(worlds))
    return pairs.flatmap(lambda pair: of(*pair))


def fixed_setups(count: int) -> tuple[Setup, ...]:
    """As many setups, the same ones each time: all families in turn, worlds of 1 to 16 ranks."""
    random = Random(0)

    def dims() -> Dims:
        flag, small = partial(random.choice, (False, True)), partial(random.randint, 1)
        return Dims(
            layers=small(2),
            kv_heads=small(2),
            shared=random.choice((1, 1, 2, 3)),
            queries=small(2),
            head_dim=random.choice((2, 4, 6)),
            hidden=small(3),
            width=small(3),
            experts=small(2),
            vocabulary=random.randint(20, 40),
            bias=flag(),
            batch=small(4),
            tokens=random.randint(5, 12),
            decodes=flag(),
        )

    def setup(number: int) -> Setup:
        family = FAMILIES[number % len(FAMILIES)]
        world = WORLDS[number % len(WORLDS)]
        return Setup(family, random.choice(legal_sizes(world, sparse=family in SPARSE)), dims())

    return tuple(setup(number) for number in range(count))


@st.composite
def cases(draw: st.DrawFn, setups: st.SearchStrategy[Setup]) -> Case:
    """A setup and its work: prompts that fit the extend bucket, then two to four steps."""
    setup = draw(setups)
    dims, replicas = setup.dims, setup.replicas

    def prompts(least: int) -> st.SearchStrategy[tuple[int, ...]]:
        longest = dims.tokens - dims.batch + 1
        lengths = st.lists(st.integers(1, longest), min_size=least, max_size=dims.batch)
        return lengths.map(lambda drawn: tuple(_fitting(drawn, dims.tokens)))

    everyone = [draw(prompts(int(replica == 0))) for replica in range(replicas)]
    go = st.sampled_from((*range(dims.batch + 1), CHUNK))
    others = st.lists(go, min_size=replicas - 1, max_size=replicas - 1)
    first = st.sampled_from((*range(1, dims.batch + 1), CHUNK))
    step = st.tuples(first, others).map(lambda drawn: (drawn[0], *drawn[1]))
    steps = draw(st.lists(step, min_size=2, max_size=4))
    return Case(setup, draw(st.integers(0, 1000)), tuple(everyone), tuple(steps))


def _fitting(lengths: Sequence[int], tokens: int) -> Iterator[int]:
    """Each at least one token, all together no more than the bucket holds."""
    left = tokens
    for number, length in enumerate(lengths):
        given = min(length, left - (len(lengths) - number - 1))
        left -= given
        yield given
