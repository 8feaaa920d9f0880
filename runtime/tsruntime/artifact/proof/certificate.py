"""The certificate: the traced, unsharded program that every program of a plan must compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from tskernels.schema import AttributeValue, DType
from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.proof.errors import CertificateInvalid
from tsruntime.artifact.schema import Phase, Program

CERTIFICATE_VERSION = 1

Rows: TypeAlias = Literal["all", "selected"]
"""Which rows a graph gives logits for: all of them, or the ones that `logit_rows` selects."""


@dataclass(frozen=True, slots=True)
class TracedOp:
    """One op of the unsharded program: schema name, values by name, attributes."""

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    module: str


@dataclass(frozen=True, slots=True)
class TracedParameter:
    """A whole weight by its checkpoint name, in the dtype in which it is computed with."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class TracedConstant:
    """A one-dimensional value that follows from the config alone."""

    name: str
    dtype: DType
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TracedCache:
    """The KV cache of one layer, all heads; `window` is the sliding window in tokens, or None.

    `planes` is 2 for keys and values, 1 for latents.
    """

    name: str
    layer: int
    group: str
    kv_heads: int
    head_dim: int
    window: int | None
    dtype: DType
    planes: int = 2


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """A forward without any size: `inputs` are named as in `schema.Program`."""

    inputs: tuple[str, ...]
    ops: tuple[TracedOp, ...]
    output: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is to be computed. `graphs` holds one forward for each `Rows` that programs need."""

    version: int
    vocab_size: int
    parameters: tuple[TracedParameter, ...]
    constants: tuple[TracedConstant, ...]
    caches: tuple[TracedCache, ...]
    graphs: Mapping[Rows, TracedGraph]


_CERTIFICATE = TypeAdapter(Certificate)


def rows_of(program: Program) -> Rows:
    """The forward that `program` must compute: decode rows are one a sequence, none selected."""
    selected = program.phase is Phase.EXTEND and program.logits == "last"
    return "selected" if selected else "all"


def certificate_bytes(certificate: Certificate) -> bytes:
    """The canonical bytes of `certificate.json`."""
    return canonical_json(_CERTIFICATE.dump_python(certificate, mode="json"))


def parse_certificate(data: bytes, where: Path) -> Certificate:
    """A certificate from the bytes of `certificate.json`. Raises CertificateInvalid."""
    try:
        certificate = _CERTIFICATE.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CertificateInvalid(str(where), f"certificate.json: {place}: {first['msg']}") from None
    if certificate.version != CERTIFICATE_VERSION:
        raise CertificateInvalid(
            str(where),
            f"certificate version {certificate.version}, this runtime reads {CERTIFICATE_VERSION}",
        )
    return certificate
