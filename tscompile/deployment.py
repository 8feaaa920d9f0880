"""From a recipe to a compiled plan: the checkpoint opened, every check made, no weight read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tscompile.checkpoint import check_tensors, open_checkpoint
from tscompile.checkpoint.base import Checkpoint
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import (
    Buckets,
    CompileRequest,
    KvCacheRequest,
    LimitsRequest,
    PolicyName,
)
from tscompile.models import cache_layers
from tscompile.models.config import ModelConfig, from_hf
from tscompile.models.sizes import size_problems, token_bytes
from tscompile.packs import GivenPack, open_packs
from tscompile.passes.pipeline import CompileResult, compile_plan
from tscompile.recipe import Recipe, check_model_length, check_parallel, kv_pages
from tskernels.registry import REGISTRY
from tskernels.schema import DType
from tsruntime.artifact.schema import Plan, Target, part_tensors


@dataclass(frozen=True, slots=True)
class Deployment:
    """A recipe with its checkpoint and packs, what was asked of the compiler, and its plan."""

    recipe: Recipe
    checkpoint: Checkpoint
    packs: tuple[GivenPack, ...]
    request: CompileRequest
    result: CompileResult


def requested(recipe: Recipe, checkpoint: Checkpoint | None = None) -> CompileRequest:
    """What a recipe asks of the compiler, checked against its model's config."""
    REGISTRY.load_plugins()  # their kernels decide which fusions there are
    model = from_hf((checkpoint or open_checkpoint(recipe)).config)
    check_parallel(recipe, size_problems(model, _sizes(recipe)))
    check_model_length(recipe, model.max_positions)
    return _request(recipe, model)


def compile_recipe(
    recipe: Recipe, dump_dir: Path | None = None, policy: PolicyName = PolicyName.OURS
) -> Deployment:
    """Compile `recipe`; its checkpoint's headers are checked against the plan's weights."""
    checkpoint, packs = open_checkpoint(recipe), open_packs(recipe)
    names = tuple(given.pack.name for given in packs)
    request = replace(requested(recipe, checkpoint), dump_dir=dump_dir, policy=policy, packs=names)
    model = request.model
    result = compile_plan(request)
    if not recipe.model.is_dummy:
        check_tensors(
            checkpoint,
            source_shapes(result.plan),
            tied=model.tied_embeddings,
            drafts=model.drafts,
            where=recipe.where("model"),
            quantized=quantized_tensors(result.plan),
        )
    return Deployment(recipe, checkpoint, packs, request, result)


def source_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Every checkpoint tensor that the plan's weights are cut from, with its whole shape."""
    return {
        tensor: part.shape
        for weight in plan.weights
        for part in weight.parts
        for tensor in part_tensors(part)
    }


def quantized_tensors(plan: Plan) -> frozenset[str]:
    """Those of them that the plan's float8 weights are cut from."""
    return frozenset(
        tensor
        for weight in plan.weights
        for part in weight.parts
        for tensor in part_tensors(part)
        if weight.dtype is DType.FLOAT8_E4M3
    )


def _sizes(recipe: Recipe) -> ParallelSizes:
    sizes = recipe.parallel
    return ParallelSizes(sizes.world, sizes.attn_tp, sizes.dense_tp, sizes.moe_tp, sizes.moe_ep)


def _request(recipe: Recipe, model: ModelConfig) -> CompileRequest:
    sizes, target = _sizes(recipe), recipe.target
    page_size, dtype = recipe.kv_cache.page_size, DType(recipe.kv_cache.dtype)
    page_bytes = page_size * token_bytes(cache_layers(model), sizes.attn_tp, dtype.itemsize)
    return CompileRequest(
        name=recipe.name,
        model=model,
        dtype=DType(recipe.dtype),
        target=Target(target.device, target.arch, target.topology),
        parallel=sizes,
        buckets=Buckets(recipe.buckets.decode, recipe.buckets.extend, recipe.buckets.all_logits),
        kv=KvCacheRequest(
            page_size,
            dtype,
            kv_pages(recipe, page_bytes),
            host_pages=recipe.kv_cache.host_pages or 0,
            host_memory=recipe.kv_cache.host_memory_bytes,
        ),
        limits=LimitsRequest(
            recipe.limits.max_model_len,
            recipe.limits.max_batch,
            recipe.limits.token_budget,
            recipe.limits.steps_in_flight,
        ),
        dummy_seed=recipe.model.seed if recipe.model.is_dummy else None,
    )
