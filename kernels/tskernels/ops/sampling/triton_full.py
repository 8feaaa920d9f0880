# pyright: basic
"""One token of each row by its own rules: adjust the logits, find the filters' edges, draw.

Logits are ordered by keys: whole numbers from 0 to 2**32 - 1 that rise with the float32. The lowest
key that a filter keeps is found digit by digit, from the highest: each `select` measures what lies
at or above eight keys, sharing a row among blocks, and the last of them to end adds up what the
others saw. All sums are of whole numbers, so no order matters.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, start_dependents, wait_for_inputs
from tskernels.ops.sampling import words as layout

ROW_WORDS = tl.constexpr(layout.ROW_WORDS)
FLAGS, TOP_K = tl.constexpr(layout.FLAGS), tl.constexpr(layout.TOP_K)
TEMPERATURE, LOG_MIN_P = tl.constexpr(layout.TEMPERATURE), tl.constexpr(layout.LOG_MIN_P)
TOP_P, STREAM = tl.constexpr(layout.TOP_P), tl.constexpr(layout.STREAM)
REPETITION, FREQUENCY = tl.constexpr(layout.REPETITION), tl.constexpr(layout.FREQUENCY)
PRESENCE = tl.constexpr(layout.PRESENCE)
COUNTED, PENALIZED = tl.constexpr(layout.COUNTED), tl.constexpr(layout.PENALIZED)
STOPS_BANNED, BIASED = tl.constexpr(layout.STOPS_BANNED), tl.constexpr(layout.BIASED)
MASKED = tl.constexpr(layout.MASKED)
IN_PROMPT, IS_STOP = tl.constexpr(layout.IN_PROMPT), tl.constexpr(layout.IS_STOP)
TIMES = tl.constexpr(layout.TIMES)

STATE_WORDS = tl.constexpr(16)
"""int64 words of a row between launches, by their places:"""
FINITE = tl.constexpr(0)  # whether the row's largest logit is a finite number
LARGEST = tl.constexpr(1)  # the largest adjusted logit, bits of a float32
FLOOR = tl.constexpr(2)  # the lowest key that temperature and min-p keep
K_SHIFT = tl.constexpr(3)  # of top-k's descent: the next digit's place, below 0 when it is done
K_EDGE = tl.constexpr(4)  # the digits that it has found; when it is done, the lowest key kept
K_TARGET = tl.constexpr(5)  # how many tokens to keep
K_ABOVE = tl.constexpr(6)  # tokens above the edge
P_SHIFT = tl.constexpr(7)  # the same four of top-p's, whose measure is mass
P_EDGE = tl.constexpr(8)
P_TARGET = tl.constexpr(9)
P_ABOVE = tl.constexpr(10)

DIGIT = tl.constexpr(3)
DIGITS = tl.constexpr(1 << 3)
FIRST_SHIFT = tl.constexpr(30)
MASS = tl.constexpr(float(1 << 40))
"""Mass of the most likely token: probabilities are whole numbers of this, relative to it."""


@triton.jit
def double(words, place: tl.constexpr):
    """The float64 of two words."""
    return whole(words, place).to(tl.float64, bitcast=True)


@triton.jit
def whole(words, place: tl.constexpr):
    """The int64 of two words."""
    low = tl.load(words + place).to(tl.int64) & 0xFFFFFFFF
    return (tl.load(words + place + 1).to(tl.int64) << 32) | low


@triton.jit
def single(words, place: tl.constexpr):
    """The float32 of a word."""
    return tl.load(words + place).to(tl.float32, bitcast=True)


@triton.jit
def key_of(x):
    """The key of float32 `x`, int64; both zeros have one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    flipped = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return flipped.to(tl.int64) + 2147483648


@triton.jit
def of_key(key):
    """The float32 whose key is int64 `key`."""
    flipped = (key - 2147483648).to(tl.int32)
    return (flipped ^ ((flipped >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def score_of(x, largest, temperature):
    """log(p) - log(largest p) of logits, in float64."""
    return (x.to(tl.float64) - largest.to(tl.float64)) / temperature


@triton.jit
def mass_of(x, largest, temperature):
    """Probability relative to the largest, in `MASS`ths."""
    score = (x - largest) / temperature.to(tl.float32)
    score = tl.where(x == largest, 0.0, score)  # also where no float32 is as low a temperature
    return (tl.exp(score) * MASS).to(tl.int64)


@triton.jit
def adjust(
    logits,
    slots,
    rows,
    masks,
    counts,
    biases,
    adjusted,
    tops,
    states,
    counters,
    columns: tl.constexpr,
    logits_row: tl.constexpr,
    mask_words: tl.constexpr,
    splits: tl.constexpr,
    share: tl.constexpr,
    block: tl.constexpr,
    block_s: tl.constexpr,
    early: tl.constexpr,
):
    """Adjusted = logits + bias, less what may not be drawn, less penalties; then begin a state."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    words = rows + row * ROW_WORDS
    slot = tl.load(slots + row).to(tl.int64)
    flags = tl.load(words + FLAGS)
    flags = tl.where(slot >= 0, flags, 0)
    begin = split * share
    raw_top = tl.full((block,), float("-inf"), tl.float32)
    top = tl.full((block,), float("-inf"), tl.float32)
    for first in tl.range(begin, tl.minimum(begin + share, columns), block):
        column = first + tl.arange(0, block)
        inside = column < columns
        x = tl.load(logits + row * logits_row + column, inside, float("-inf")).to(tl.float32)
        raw_top = tl.maximum(raw_top, tl.where(x == x, x, float("inf")))
        if (flags & MASKED) != 0:
            word = tl.load(masks + row * mask_words + column // 32, inside, 0)
            x = tl.where(((word >> (column % 32)) & 1) != 0, x, float("-inf"))
        if (flags & BIASED) != 0:
            x += tl.load(biases + slot * columns + column, inside, 0.0)
        if (flags & (PENALIZED | STOPS_BANNED)) != 0:
            count = tl.load(counts + slot * columns + column, inside, 0)
            if (flags & STOPS_BANNED) != 0:
                x = tl.where((count & IS_STOP) != 0, float("-inf"), x)
            if (flags & PENALIZED) != 0:
                x = penalized(x, count, words)
        tl.store(adjusted + row * columns + column, x, inside)
        top = tl.maximum(top, x)
    place = (row * splits + split) * 2
    tl.store(tops + place, tl.max(raw_top, 0))
    tl.store(tops + place + 1, tl.max(top, 0))
    if is_last(counters + row, splits):
        s = tl.arange(0, block_s)
        places = (row * splits + s) * 2
        raw = tl.max(tl.load(tops + places, s < splits, float("-inf"), cache_modifier=".cg"), 0)
        all_tops = tl.load(tops + places + 1, s < splits, float("-inf"), cache_modifier=".cg")
        begin_state(states + row * STATE_WORDS, words, raw, tl.max(all_tops, 0), columns)


@triton.jit
def penalized(x, count, words):
    """Repetition first, then the frequency times the count, then presence."""
    times = count & TIMES
    seen = (times > 0) | ((count & IN_PROMPT) != 0)
    repetition = single(words, REPETITION)
    scaled = tl.where(x > 0, tl.div_rn(x, tl.zeros_like(x) + repetition), x * repetition)
    lower = scaled - single(words, FREQUENCY) * times.to(tl.float32)
    lower = lower - single(words, PRESENCE) * (times > 0).to(tl.float32)
    return tl.where(seen, lower, x)


@triton.jit
def begin_state(state, words, raw, largest, columns: tl.constexpr):
    """Which descents there are to do, and from where."""
    finite = (raw < float("inf")) & (raw > float("-inf")) & (largest > float("-inf"))
    temperature = double(words, TEMPERATURE)
    draws = finite & (temperature > 0.0)
    top_k = tl.load(words + TOP_K)
    lowest = tl.zeros((), tl.int64)
    if draws:
        lowest = floor_of(largest, temperature, double(words, LOG_MIN_P))
    tl.store(state + FINITE, finite.to(tl.int64))
    tl.store(state + LARGEST, largest.to(tl.int32, bitcast=True).to(tl.int64))
    tl.store(state + FLOOR, lowest)
    some = draws & (top_k > 0) & (top_k < columns)
    tl.store(state + K_SHIFT, tl.where(some, FIRST_SHIFT, -DIGIT).to(tl.int64))
    tl.store(state + K_EDGE, tl.zeros((), tl.int64))
    tl.store(state + K_TARGET, top_k.to(tl.int64))
    tl.store(state + K_ABOVE, tl.zeros((), tl.int64))
    nucleus = draws & (double(words, TOP_P) < 1.0)
    tl.store(state + P_SHIFT, tl.where(nucleus, FIRST_SHIFT, -DIGIT).to(tl.int64))
    tl.store(state + P_EDGE, tl.zeros((), tl.int64))
    tl.store(state + P_TARGET, tl.zeros((), tl.int64))
    tl.store(state + P_ABOVE, tl.zeros((), tl.int64))


@triton.jit
def floor_of(largest, temperature, log_min_p):
    """The lowest key whose score is finite and not below `log_min_p`, by bisection."""
    below = key_of(tl.full((), float("-inf"), tl.float32))
    kept = key_of(largest)
    for _ in tl.range(0, 32):  # pyright: ignore[reportGeneralTypeIssues]
        middle = (below + kept) >> 1
        score = score_of(of_key(middle), largest, temperature)
        stays = (score > float("-inf")) & (score >= log_min_p) & (middle > below)
        kept = tl.where(stays, middle, kept)
        below = tl.where(stays, below, middle)
    return kept


@triton.jit
def select(
    rows,
    adjusted,
    tops,
    sums,
    states,
    counters,
    columns: tl.constexpr,
    splits: tl.constexpr,
    share: tl.constexpr,
    block: tl.constexpr,
    block_s: tl.constexpr,
    nucleus: tl.constexpr,
    early: tl.constexpr,
):
    """One more digit of the edge of top-k or, where `nucleus`, of top-p, which comes after it."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    own: tl.constexpr = P_SHIFT if nucleus else K_SHIFT
    kind: tl.constexpr = tl.int64 if nucleus else tl.int32
    words, state = rows + row * ROW_WORDS, states + row * STATE_WORDS
    shift = tl.load(state + own)
    if shift >= 0:
        edge = tl.load(state + own + 1)
        largest = tl.load(state + LARGEST).to(tl.int32).to(tl.float32, bitcast=True)
        temperature = double(words, TEMPERATURE)
        lowest = tl.maximum(tl.load(state + FLOOR), edge)
        if nucleus:
            lowest = tl.maximum(lowest, tl.load(state + K_EDGE))
        step = tl.full((), 1, tl.int64) << shift
        part = row * splits + split
        highest = key_of(tl.load(tops + part * 2 + 1))
        m0 = tl.zeros((block,), kind)
        m1, m2, m3, m4, m5, m6, m7 = m0, m0, m0, m0, m0, m0, m0
        begin = split * share
        end = tl.where(highest < lowest, begin, tl.minimum(begin + share, columns))
        for first in tl.range(begin, end, block):
            column = first + tl.arange(0, block)
            x = tl.load(adjusted + row * columns + column, column < columns, float("-inf"))
            key = tl.where(x > float("-inf"), key_of(x), 0)
            one = tl.full((block,), 1, kind)
            measure = mass_of(x, largest, temperature) if nucleus else one
            measure = tl.where(key >= lowest, measure, 0)
            m0 += measure
            m1 += tl.where(key >= edge + step, measure, 0)
            m2 += tl.where(key >= edge + 2 * step, measure, 0)
            m3 += tl.where(key >= edge + 3 * step, measure, 0)
            m4 += tl.where(key >= edge + 4 * step, measure, 0)
            m5 += tl.where(key >= edge + 5 * step, measure, 0)
            m6 += tl.where(key >= edge + 6 * step, measure, 0)
            m7 += tl.where(key >= edge + 7 * step, measure, 0)
        place = sums + part * DIGITS
        tl.store(place, tl.sum(m0, 0).to(tl.int64))
        tl.store(place + 1, tl.sum(m1, 0).to(tl.int64))
        tl.store(place + 2, tl.sum(m2, 0).to(tl.int64))
        tl.store(place + 3, tl.sum(m3, 0).to(tl.int64))
        tl.store(place + 4, tl.sum(m4, 0).to(tl.int64))
        tl.store(place + 5, tl.sum(m5, 0).to(tl.int64))
        tl.store(place + 6, tl.sum(m6, 0).to(tl.int64))
        tl.store(place + 7, tl.sum(m7, 0).to(tl.int64))
        if is_last(counters + row, splits):
            s, digit = tl.arange(0, block_s), tl.arange(0, DIGITS)
            places = (row * splits + s[:, None]) * DIGITS + digit[None, :]
            every = tl.load(sums + places, s[:, None] < splits, 0, cache_modifier=".cg")
            descend(state + own, words, tl.sum(every, 0), shift, edge, nucleus)


@triton.jit
def descend(state, words, reached, shift, edge, nucleus: tl.constexpr):
    """Take the highest digit down to which as much is found as is sought.

    `reached` [DIGITS] is what was measured from each digit up; whatever lies higher than the
    digits do was too little.
    """
    digit = tl.arange(0, DIGITS)
    all_kept = tl.sum(tl.where(digit == 0, reached, 0), 0)
    target, above = tl.load(state + 2), tl.load(state + 3)
    keeps_all = False
    if shift == FIRST_SHIFT:
        if nucleus:
            part = double(words, TOP_P) * all_kept.to(tl.float64)
            target = tl.maximum(tl.ceil(part).to(tl.int64), 1)
            tl.store(state + 2, target)
        else:
            keeps_all = all_kept <= target
    if keeps_all:
        tl.store(state, shift * 0 - DIGIT)
    else:
        enough = (digit == 0) | (reached >= target)
        chosen = tl.max(tl.where(enough, digit, 0), 0)
        next_up = tl.sum(tl.where(digit == chosen + 1, reached, 0), 0)
        tl.store(state, shift - DIGIT)
        tl.store(state + 1, edge + (chosen.to(tl.int64) << shift))
        tl.store(state + 3, tl.where(chosen == DIGITS - 1, above, next_up))


@triton.jit
def ties(
    adjusted,
    tied,
    states,
    columns: tl.constexpr,
    splits: tl.constexpr,
    share: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    """How many tokens of each split lie on the edge of top-p."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    edge = tl.load(states + row * STATE_WORDS + P_EDGE)
    found = tl.zeros((block,), tl.int32)
    begin = split * share
    end = tl.where(edge == 0, begin, tl.minimum(begin + share, columns))
    for first in tl.range(begin, end, block):
        column = first + tl.arange(0, block)
        x = tl.load(adjusted + row * columns + column, column < columns, float("-inf"))
        found += (key_of(x) == edge).to(tl.int32)
    tl.store(tied + row * splits + split, tl.sum(found, 0))


@triton.jit
def gumbel(key, column):
    """Standard Gumbel noise of token `column` in the stream that begins at `key`, in float64.

    As `tsruntime.sampling.noise`.
    """
    word = (column.to(tl.uint64) + 1) * 0x9E3779B97F4A7C15 + key.to(tl.uint64, bitcast=True)
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    word = word ^ (word >> 31)
    uniform = ((word >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16
    return -tl.log(-tl.log(uniform))


@triton.jit
def draw(
    slots,
    rows,
    tokens,
    sampled,
    counts,
    adjusted,
    tied_counts,
    states,
    values,
    places,
    counters,
    columns: tl.constexpr,
    splits: tl.constexpr,
    share: tl.constexpr,
    block: tl.constexpr,
    block_s: tl.constexpr,
    early: tl.constexpr,
):
    """The kept token of the largest score plus noise; at temperature 0 of the largest logit.

    Goes to tokens[row] and sampled[slots[row]], and is counted where the row says so. -1 where
    the logits had no finite maximum, or no token may be drawn.
    """
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    words, state = rows + row * ROW_WORDS, states + row * STATE_WORDS
    largest = tl.load(state + LARGEST).to(tl.int32).to(tl.float32, bitcast=True)
    temperature = double(words, TEMPERATURE)
    greedy = temperature == 0.0
    nucleus = (tl.load(state + FINITE) != 0) & (~greedy) & (double(words, TOP_P) < 1.0)
    edge = tl.load(state + P_EDGE)
    least = tl.maximum(tl.load(state + FLOOR), tl.maximum(tl.load(state + K_EDGE), edge))
    tied_kept, tied_before = tl.zeros((), tl.int64), tl.zeros((), tl.int64)
    if nucleus:
        each = tl.maximum(mass_of(of_key(edge), largest, temperature), 1)
        left = tl.load(state + P_TARGET) - tl.load(state + P_ABOVE)
        tied_kept = (left + each - 1) // each
        s = tl.arange(0, block_s)
        counts_before = tl.load(tied_counts + row * splits + s, s < split, 0)
        tied_before = tl.sum(counts_before, 0).to(tl.int64)
    stream = whole(words, STREAM)
    best = tl.full((block,), float("-inf"), tl.float64)
    place = tl.full((block,), columns, tl.int32)
    begin = split * share
    for first in tl.range(begin, tl.minimum(begin + share, columns), block):
        column = first + tl.arange(0, block)
        x = tl.load(adjusted + row * columns + column, column < columns, float("-inf"))
        value = x.to(tl.float64)
        if ~greedy:
            key = key_of(x)
            kept = (key >= least) & (x > float("-inf"))
            value = tl.full((block,), float("-inf"), tl.float64)
            if tl.max(kept.to(tl.int32), 0) > 0:
                if nucleus:
                    tied = (key == edge).to(tl.int64)
                    nth = tied_before + tl.cumsum(tied, 0)
                    kept &= (key > edge) | (nth <= tied_kept)
                    tied_before += tl.sum(tied, 0)
                score = score_of(x, largest, temperature)
                value = tl.where(kept, score + gumbel(stream, column), float("-inf"))
        larger = value > best
        best = tl.where(larger, value, best)
        place = tl.where(larger, column, place)
    top = tl.max(best, 0)
    tl.store(values + row * splits + split, top)
    tl.store(places + row * splits + split, tl.min(tl.where(best == top, place, columns), 0))
    if is_last(counters + row, splits):
        s = tl.arange(0, block_s)
        part = row * splits + s
        tops = tl.load(values + part, s < splits, float("-inf"), cache_modifier=".cg")
        lows = tl.load(places + part, s < splits, columns, cache_modifier=".cg")
        top = tl.max(tops, 0)
        token = tl.min(tl.where(tops == top, lows, columns), 0)
        finite = (tl.load(state + FINITE) != 0) & (top > float("-inf"))
        token = tl.where(finite, token, -1)
        tl.store(tokens + row, token)
        slot = tl.load(slots + row).to(tl.int64)
        tl.store(sampled + slot, token, mask=slot >= 0)
        counted = (slot >= 0) & (token >= 0) & ((tl.load(words + FLAGS) & COUNTED) != 0)
        count = counts + slot * columns + token
        tl.store(count, tl.load(count, counted, 0) + 1, mask=counted)
