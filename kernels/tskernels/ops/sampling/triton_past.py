# pyright: basic
"""What a slot's request has seen, from lists of ids: rebuilt when the slot is given to it."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import start_dependents, wait_for_inputs
from tskernels.ops.sampling import words as layout

HEADER = tl.constexpr(layout.PAST_HEADER)
IN_PROMPT, IS_STOP = tl.constexpr(layout.IN_PROMPT), tl.constexpr(layout.IS_STOP)


@triton.jit
def clear(past, counts, biases, columns: tl.constexpr, block: tl.constexpr, early: tl.constexpr):
    """Forget the slot's earlier request."""
    start_dependents(early)
    wait_for_inputs(early)
    slot = tl.load(past).to(tl.int64)
    column = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(counts + slot * columns + column, tl.zeros((block,), tl.int32), column < columns)
    tl.store(biases + slot * columns + column, tl.zeros((block,), tl.float32), column < columns)


@triton.jit
def refill(past, counts, biases, columns: tl.constexpr, block: tl.constexpr, early: tl.constexpr):
    """Count the output, and mark the prompt's tokens, the stop tokens and the biases."""
    start_dependents(early)
    wait_for_inputs(early)
    slot = tl.load(past).to(tl.int64)
    counts += slot * columns
    biases += slot * columns
    prompts, outputs = tl.load(past + 1), tl.load(past + 2)
    stops, biased = tl.load(past + 3), tl.load(past + 4)
    ends = prompts + outputs
    lane = tl.program_id(0) * block + tl.arange(0, block)
    ids = past + HEADER
    for first in tl.range(0, ends + stops + biased, tl.num_programs(0) * block):
        place = first + lane
        inside = place < ends + stops + biased
        token = tl.load(ids + place, inside, 0)
        tl.atomic_or(counts + token, IN_PROMPT, mask=place < prompts)
        tl.atomic_add(counts + token, 1, mask=(place >= prompts) & (place < ends))
        tl.atomic_or(counts + token, IS_STOP, mask=(place >= ends) & (place < ends + stops))
        adds = inside & (place >= ends + stops)
        value = tl.load(ids + place + biased, adds, 0).to(tl.float32, bitcast=True)
        tl.store(biases + token, value, adds)
