"""The certificate as a file: one spelling, read back whole, refused when it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from proof.edits import program, with_program
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config
from proof.mini import mini_certificate

from tskernels.schema import DType
from tsruntime.artifact.proof.certificate import (
    Certificate,
    TracedOp,
    certificate_bytes,
    parse_certificate,
)
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import CertificateInvalid, PlanUnproven
from tsruntime.artifact.schema import Plan

HERE = Path("artifact")


def test_round_trip() -> None:
    certificate = certificate_of(tiny_config())
    data = certificate_bytes(certificate)
    assert parse_certificate(data, HERE) == certificate
    assert certificate_bytes(parse_certificate(data, HERE)) == data


def test_other_versions_are_refused() -> None:
    data = certificate_bytes(replace(mini_certificate(), version=99))
    with pytest.raises(CertificateInvalid, match="version 99"):
        parse_certificate(data, HERE)


def test_what_does_not_fit_is_refused_by_its_place() -> None:
    data = certificate_bytes(mini_certificate()).replace(b'"linear"', b"7", 1)
    with pytest.raises(CertificateInvalid, match=r"graphs\.all\.ops"):
        parse_certificate(data, HERE)


def small() -> tuple[Plan, Certificate]:
    config = tiny_config(num_hidden_layers=1)
    certificate = certificate_of(config)
    spread = Spread({"a": 2}, ("a",), ("a",))
    return handmade_plan(certificate, config, spread, [("decode", 2, 2)]), certificate


def with_op(certificate: Certificate, index: int, op: TracedOp) -> Certificate:
    graph = certificate.graphs["all"]
    ops = (*graph.ops[:index], op, *graph.ops[index + 1 :])
    return replace(certificate, graphs={"all": replace(graph, ops=ops)})


def test_a_certificate_of_an_unsharded_program_holds_no_collective() -> None:
    plan, certificate = small()
    op = certificate.graphs["all"].ops[0]
    wrong = TracedOp("all_reduce", op.inputs[:1], op.outputs, {"axes": ("a",), "size": 2}, "x")
    with pytest.raises(CertificateInvalid, match="no op of an unsharded program"):
        check_proof(plan, with_op(certificate, 0, wrong))


def test_a_certificate_that_does_not_type_is_refused() -> None:
    plan, certificate = small()
    op = certificate.graphs["all"].ops[0]
    wrong = replace(op, inputs=op.inputs[::-1])
    with pytest.raises(CertificateInvalid, match="does not type"):
        check_proof(plan, with_op(certificate, 0, wrong))


def test_the_dtype_policy_is_the_certificates() -> None:
    plan, certificate = small()
    narrow = replace(
        certificate,
        parameters=tuple(replace(p, dtype=DType.FLOAT32) for p in certificate.parameters),
        caches=tuple(replace(c, dtype=DType.FLOAT32) for c in certificate.caches),
    )
    with pytest.raises(PlanUnproven, match=r"is declared float64, but .* is float32"):
        check_proof(plan, narrow)


def test_a_missing_graph_is_named() -> None:
    plan, certificate = small()
    with pytest.raises(PlanUnproven, match="no graph"):
        check_proof(plan, replace(certificate, graphs={}))


def test_what_differs_is_named() -> None:
    """The message says which operand the traced program has instead."""
    plan, certificate = small()
    ops = list(program(plan).ops)
    index = next(i for i, op in enumerate(ops) if "post_attention" in op.module)
    first = next(op for op in ops if op.op == "all_reduce").outputs[0]
    ops[index] = replace(ops[index], inputs=(first, *ops[index].inputs[1:]))
    wrong = with_program(plan, replace(program(plan), ops=tuple(ops)))
    wanted = r"it computes rms_norm\(embed_tokens, .*, the traced program rms_norm\(layers.0.add"
    with pytest.raises(PlanUnproven, match=wanted):
        check_proof(wrong, certificate)
