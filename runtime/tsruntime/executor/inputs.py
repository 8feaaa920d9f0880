"""Program inputs: persistent int32 buffers that every program shares, written once a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from tsruntime.artifact.schema import NULL_SLOT, Plan, Program
from tsruntime.executor.batch import ForwardBatch, Ints
from tsruntime.kv_cache.table import PageTable

SLOTS = "slots"
"""What executors that keep the last token of each slot ask for beside the plan's own inputs."""


def input_shape(name: str, program: Program, max_pages: int) -> tuple[int, ...]:
    """Shape of the input `name` of `program`; KeyError if no program has such an input."""
    kind = name.partition(".")[0]
    return {
        "token_ids": (program.tokens,),
        "positions": (program.tokens,),
        "slot_mapping": (program.tokens,),
        "query_starts": (program.sequences + 1,),
        "seq_lens": (program.sequences,),
        "logit_rows": (program.sequences,),
        "block_table": (program.sequences, max_pages),
        SLOTS: (program.sequences,),
    }[kind]


_ALIGNMENT = 64
"""Bytes that the place of every input is a multiple of."""


class InputBuffers:
    """One buffer an input name, as large as the largest program needs, all in one allocation.

    A program's input is the front of the buffer, so a step that changes program moves nothing.
    `flat` holds all of them, in the same places for every plan's buffers: those of the host,
    `pinned`, are copied to a device's in one go. `beside` names inputs that no program reads.
    """

    def __init__(
        self,
        plan: Plan,
        device: str = "cpu",
        *,
        pinned: bool = False,
        beside: tuple[str, ...] = (),
    ) -> None:
        self._max_pages = plan.limits.max_pages
        sizes: dict[str, int] = {}
        for program in plan.programs:
            for name in (*program.inputs, *beside):
                size = int(np.prod(input_shape(name, program, self._max_pages)))
                sizes[name] = max(size, sizes.get(name, 0))
        step = _ALIGNMENT // torch.int32.itemsize
        ends = list(accumulate(-(-size // step) * step for size in sizes.values()))
        starts = [0, *ends]
        self.flat = torch.zeros(starts[-1], dtype=torch.int32, device=device, pin_memory=pinned)
        self._buffers: Mapping[str, Tensor] = {
            name: self.flat[start : start + size]
            for start, (name, size) in zip(starts, sizes.items(), strict=False)
        }

    def has(self, name: str, program: Program) -> bool:
        """Whether there is an input `name` that `program` reads, or no program does."""
        return name in program.inputs or (name == SLOTS and name in self._buffers)

    def tensor(self, name: str, program: Program) -> Tensor:
        """The int32 input `name` of `program`, contiguous."""
        shape = input_shape(name, program, self._max_pages)
        return self._buffers[name][: int(np.prod(shape))].view(shape)


@dataclass(frozen=True, slots=True)
class GroupInputs:
    """One cache group's inputs of one program; None where the program does not read one."""

    slot_mapping: Ints | None
    block_table: Ints | None


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """The inputs of one program as numpy views of the buffers that its kernels read."""

    token_ids: Ints | None
    positions: Ints | None
    query_starts: Ints | None
    seq_lens: Ints | None
    logit_rows: Ints | None
    slots: Ints | None
    groups: tuple[GroupInputs, ...]

    def write(self, batch: ForwardBatch, tables: tuple[PageTable, ...]) -> None:
        """Fill every input, padding last: token 0 at position 0, sequences of length 0.

        Padding rows write to slot 0, the first of the null page, which no valid row has.
        """
        tokens, sequences = batch.num_tokens, batch.num_sequences
        _fill(self.token_ids, batch.token_ids, 0)
        _fill(self.positions, batch.positions, 0)
        _fill(self.query_starts, batch.query_starts, tokens)
        _fill(self.seq_lens, batch.seq_lens, 0)
        _fill(self.slots, batch.slots, -1)
        if self.logit_rows is not None:
            np.subtract(batch.query_starts[1:], 1, out=self.logit_rows[:sequences])
            self.logit_rows[sequences:] = 0
        for inputs, group, table in zip(self.groups, batch.groups, tables, strict=True):
            if inputs.slot_mapping is not None:
                _fill(inputs.slot_mapping, group.slot_mapping, NULL_SLOT)
            if inputs.block_table is not None:
                table.gather(batch.slots, inputs.block_table)


def program_inputs(plan: Plan, program: Program, buffers: InputBuffers) -> ProgramInputs:
    """Views of `buffers` for `program`."""

    def view(name: str) -> Ints | None:
        return buffers.tensor(name, program).numpy() if buffers.has(name, program) else None

    groups = tuple(
        GroupInputs(view(f"slot_mapping.{group.name}"), view(f"block_table.{group.name}"))
        for group in plan.kv_cache.groups
    )
    return ProgramInputs(
        view("token_ids"),
        view("positions"),
        view("query_starts"),
        view("seq_lens"),
        view("logit_rows"),
        view(SLOTS),
        groups,
    )


def _fill(buffer: Ints | None, values: Ints, padding: int) -> None:
    if buffer is not None:
        buffer[: len(values)] = values
        buffer[len(values) :] = padding
