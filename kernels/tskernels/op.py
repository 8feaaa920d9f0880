"""The callable operator: one object that traces, infers on meta tensors, and computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_origin, get_type_hints

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from tskernels.schema import (
    Argument,
    Attribute,
    AttributeValue,
    DType,
    Infer,
    OpKind,
    OpSchema,
    TensorType,
)

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Op(Generic[P, R_co]):
    """An operator of the closed table `tskernels.ops.OPS`.

    Called with an argument that overrides `__torch_function__` (an fx Proxy) it dispatches there,
    with every input by position (None where an optional one is absent) and every attribute by
    keyword, defaults spelled out: a traced node is canonical. Called with a meta tensor it returns
    what `schema.infer` says, on meta. Otherwise it computes `schema.reference`.
    """

    def __init__(self, schema: OpSchema) -> None:
        self.schema = schema
        self.__name__ = schema.name
        self.__qualname__ = schema.name
        self.__module__ = "tskernels.ops"
        self.__doc__ = schema.reference.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Trace, infer or compute, as the class says; ShapeError where the inputs do not fit."""
        inputs, attributes = bind_arguments(self.schema, args, kwargs)
        if has_torch_function(inputs):
            itself = cast("Callable[..., R_co]", self)
            return handle_torch_function(itself, inputs, *inputs, **attributes)
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if self.schema.kind is not OpKind.VIEW and any(x.is_meta for x in tensors):
            return cast("R_co", _on_meta(self.schema, inputs, attributes))
        self.schema.infer([_type(x) for x in inputs], attributes)
        return cast("R_co", self.schema.reference(*inputs, **attributes))

    def __repr__(self) -> str:
        return f"tskernels.ops.{self.schema.name}"

    def __reduce__(self) -> str:
        return self.schema.name  # copied and pickled by reference, as a function is


def tensor_type(x: Tensor) -> TensorType:
    """The schema type of a tensor."""
    return TensorType(DType(str(x.dtype).removeprefix("torch.")), tuple(x.shape))


def _type(x: object) -> TensorType | None:
    return tensor_type(x) if isinstance(x, Tensor) else None


def bind_arguments(
    schema: OpSchema, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, AttributeValue]]:
    """Sort a call's arguments into inputs by position and attributes with defaults filled in.

    Raises TypeError as Python does for a missing, unknown or doubly given argument.
    """
    names = [argument.name for argument in schema.inputs]
    if len(args) > len(names):
        raise TypeError(f"{schema.name}() takes {len(names)} inputs, {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    if twice := given.keys() & kwargs.keys():
        raise TypeError(f"{schema.name}() got {', '.join(sorted(twice))} twice")
    given.update({name: value for name, value in kwargs.items() if name in names})
    for argument in schema.inputs:
        if given.setdefault(argument.name, None) is None and not argument.optional:
            raise TypeError(f"{schema.name}() needs its input {argument.name!r}")
    rest = {name: value for name, value in kwargs.items() if name not in names}
    return tuple(given[name] for name in names), resolve_attributes(schema, rest)


def resolve_attributes(schema: OpSchema, given: Mapping[str, object]) -> dict[str, AttributeValue]:
    """All attributes of `schema`, typed and with defaults filled in; TypeError if one is off."""
    if unknown := given.keys() - {attribute.name for attribute in schema.attributes}:
        raise TypeError(f"{schema.name}() has no attribute {', '.join(sorted(unknown))}")
    return {a.name: _typed(schema, a, given.get(a.name, a.default)) for a in schema.attributes}


def _typed(schema: OpSchema, attribute: Attribute, value: object) -> AttributeValue:
    if value is None:
        raise TypeError(f"{schema.name}() needs its attribute {attribute.name!r}")
    if attribute.type is float and type(value) is int:
        value = float(value)
    if attribute.type is tuple and isinstance(value, list):
        value = tuple(cast("list[int]", value))
    if type(value) is not attribute.type:
        wanted, got = attribute.type.__name__, type(value).__name__
        raise TypeError(f"{schema.name}() wants {attribute.name} as {wanted}, not {got}")
    return cast("AttributeValue", value)


def _on_meta(
    schema: OpSchema, inputs: Sequence[object], attributes: Mapping[str, AttributeValue]
) -> Tensor | tuple[Tensor, ...]:
    types = schema.infer([_type(x) for x in inputs], attributes)
    outputs = tuple(
        cast("Tensor", inputs[schema.mutates[position]])
        if schema.mutates is not None and position in schema.mutates
        else torch.empty(t.shape, dtype=t.dtype.torch, device="meta")
        for position, t in enumerate(types)
    )
    return outputs[0] if len(outputs) == 1 else outputs


def define(
    reference: Callable[P, R_co],
    infer: Infer,
    *,
    outputs: tuple[str, ...] = ("y",),
    kind: OpKind = OpKind.COMPUTE,
    mutates: Mapping[int, int] | None = None,
) -> Op[P, R_co]:
    """Make an Op whose typed signature is the reference's own.

    Its positional parameters are the inputs (optional where they default to None), its
    keyword-only ones the attributes.
    """
    hints = get_type_hints(reference)
    inputs: list[Argument] = []
    attributes: list[Attribute] = []
    for name, parameter in inspect.signature(reference).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default: AttributeValue | None = (
                None if parameter.default is inspect.Parameter.empty else parameter.default
            )
            attributes.append(Attribute(name, get_origin(hints[name]) or hints[name], default))
        else:
            inputs.append(Argument(name, optional=parameter.default is None))
    return Op(
        OpSchema(
            name=reference.__name__.removesuffix("_"),
            inputs=tuple(inputs),
            outputs=outputs,
            attributes=tuple(attributes),
            infer=infer,
            reference=cast("Callable[..., Any]", reference),
            kind=kind,
            mutates=mutates,
        )
    )
