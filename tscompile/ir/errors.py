"""Errors of placement and planning: TS03xx."""

from __future__ import annotations

from tskernels.errors import TsError


class MeshError(TsError):
    """Group sizes that have no common refinement, or that do not fill the world."""

    code = "TS0301"
    summary = "The parallel sizes do not nest: no mesh has every group as a set of axes."


class ShardSizeError(TsError):
    """A dimension that the ranks of its group do not divide."""

    code = "TS0302"
    summary = "A dimension is sharded over a number of ranks that does not divide it."


class AnnotationError(TsError):
    """A placement annotation that the module's body contradicts."""

    code = "TS0303"
    summary = "A module's placement annotation contradicts what its body computes."


class NoStrategyError(TsError):
    """An op for which no strategy fits its weights' placements and its annotations."""

    code = "TS0304"
    summary = "No strategy of an operator fits the placements that are bound around it."


class ModelConfigError(TsError):
    """A model configuration that cannot be compiled."""

    code = "TS0305"
    summary = "The model's configuration asks for something that is not supported."


class BucketError(TsError):
    """Buckets that cannot hold what the limits admit."""

    code = "TS0306"
    summary = "The buckets do not cover the limits."


class KvCacheError(TsError):
    """A KV cache that cannot hold one sequence of the maximum length."""

    code = "TS0307"
    summary = "The KV cache is too small for the limits."


class TraceError(TsError):
    """Model code that does something which the tracer cannot record as an operator."""

    code = "TS0308"
    summary = "The model's forward uses something other than the operators."


class VerifyError(TsError):
    """A plan that breaks an invariant of its stage."""

    code = "TS0309"
    summary = "The plan breaks an invariant; a pass, or a hand that edited it, is wrong."


class PlanTextError(TsError):
    """Plan text that does not parse."""

    code = "TS0310"
    summary = "The text of a plan does not parse."


class UnsupportedLayoutError(TsError):
    """Parallel sizes that nest, but that the compiler cannot lay out yet."""

    code = "TS0311"
    summary = "The combination of parallel sizes is not supported."


class FusionError(TsError):
    """Nodes marked as one fused op that cannot be written as it."""

    code = "TS0313"
    summary = "Nodes that the search took as one kernel do not make up the fused operator."


class UnsupportedQuantizationError(TsError):
    """Quantized weights that no kernel takes."""

    code = "TS0314"
    summary = "The checkpoint's quantization is not supported."


class DeviceMemoryError(TsError):
    """Weights, KV cache and all else of a rank that one device cannot hold."""

    code = "TS0315"
    summary = "What one rank takes of memory does not fit its device."


class PolicyError(TsError):
    """Parallel sizes that the peer whose policy is asked for does not have."""

    code = "TS0316"
    summary = "The policy of a peer cannot express the parallel sizes."


class LostWorkerError(TsError):
    """One of the compiler's own processes that ended before it was done."""

    code = "TS0317"
    summary = "A process that compiled some of the programs was killed."
