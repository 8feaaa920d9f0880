"""Every kernel that ships: the solutions of each family, listed once."""

from __future__ import annotations

from tskernels import reference
from tskernels.kernel import KernelSpec
from tskernels.ops.attention import torch as attention_torch
from tskernels.ops.collectives import communicator as collectives_communicator
from tskernels.ops.elementwise import torch as elementwise_torch
from tskernels.ops.embedding import torch as embedding_torch
from tskernels.ops.indexing import torch as indexing_torch
from tskernels.ops.linear import torch as linear_torch
from tskernels.ops.norm import torch as norm_torch
from tskernels.ops.rotary import torch as rotary_torch

SPECS: tuple[KernelSpec, ...] = (
    *reference.SPECS,
    *attention_torch.SPECS,
    *collectives_communicator.SPECS,
    *elementwise_torch.SPECS,
    *embedding_torch.SPECS,
    *indexing_torch.SPECS,
    *linear_torch.SPECS,
    *norm_torch.SPECS,
    *rotary_torch.SPECS,
)
