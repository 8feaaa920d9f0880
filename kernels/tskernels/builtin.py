"""Every kernel that ships: the solutions of each family, listed once."""

from __future__ import annotations

from tskernels import reference
from tskernels.kernel import KernelSpec
from tskernels.ops.attention import cuda as attention_cuda
from tskernels.ops.attention import flashinfer as attention_flashinfer
from tskernels.ops.attention import native as attention_native
from tskernels.ops.attention import torch as attention_torch
from tskernels.ops.collectives import communicator as collectives_communicator
from tskernels.ops.elementwise import cuda as elementwise_cuda
from tskernels.ops.elementwise import native as elementwise_native
from tskernels.ops.elementwise import torch as elementwise_torch
from tskernels.ops.embedding import cuda as embedding_cuda
from tskernels.ops.embedding import native as embedding_native
from tskernels.ops.embedding import torch as embedding_torch
from tskernels.ops.exchange import torch as exchange_torch
from tskernels.ops.fused import cuda as fused_cuda
from tskernels.ops.fused import native as fused_native
from tskernels.ops.fused import torch as fused_torch
from tskernels.ops.fused_collectives import communicator as fused_communicator
from tskernels.ops.indexing import cuda as indexing_cuda
from tskernels.ops.indexing import torch as indexing_torch
from tskernels.ops.linear import cublas as linear_cublas
from tskernels.ops.linear import cuda as linear_cuda
from tskernels.ops.linear import native as linear_native
from tskernels.ops.linear import scaled_cuda, scaled_torch
from tskernels.ops.linear import torch as linear_torch
from tskernels.ops.mla import torch as mla_torch
from tskernels.ops.moe import torch as moe_torch
from tskernels.ops.norm import cuda as norm_cuda
from tskernels.ops.norm import native as norm_native
from tskernels.ops.norm import torch as norm_torch
from tskernels.ops.rotary import cuda as rotary_cuda
from tskernels.ops.rotary import native as rotary_native
from tskernels.ops.rotary import torch as rotary_torch

SPECS: tuple[KernelSpec, ...] = (
    *reference.SPECS,
    *attention_cuda.SPECS,
    *attention_flashinfer.SPECS,
    *attention_native.SPECS,
    *attention_torch.SPECS,
    *collectives_communicator.SPECS,
    *elementwise_cuda.SPECS,
    *elementwise_native.SPECS,
    *elementwise_torch.SPECS,
    *embedding_cuda.SPECS,
    *embedding_native.SPECS,
    *embedding_torch.SPECS,
    *fused_cuda.SPECS,
    *fused_communicator.SPECS,
    *fused_native.SPECS,
    *fused_torch.SPECS,
    *exchange_torch.SPECS,
    *indexing_cuda.SPECS,
    *indexing_torch.SPECS,
    *linear_cublas.SPECS,
    *linear_cuda.SPECS,
    *linear_native.SPECS,
    *linear_torch.SPECS,
    *mla_torch.SPECS,
    *moe_torch.SPECS,
    *norm_cuda.SPECS,
    *norm_native.SPECS,
    *norm_torch.SPECS,
    *rotary_cuda.SPECS,
    *rotary_native.SPECS,
    *rotary_torch.SPECS,
    *scaled_cuda.SPECS,
    *scaled_torch.SPECS,
)
