"""Record a model's forward with torch.fx, ops as leaves, and convert it to our own graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import getitem
from typing import Any, Literal, cast

from torch import Tensor, fx, nn

from tscompile.ir.errors import AnnotationError, TraceError
from tscompile.ir.graph import Constant, Graph, ModuleEdges, Parameter, cache_name
from tscompile.models.annotations import (
    Boundary,
    CausalLM,
    ForwardInputs,
    boundary_of,
    checkpoint_names,
    placements_of,
    quantized_of,
    stacks_of,
    wide_of,
)
from tscompile.trace.convert import convert
from tskernels.ops import Op

_PLAIN_INPUTS = ("token_ids", "positions", "query_starts", "seq_lens")


def trace(model: CausalLM, rows: Literal["all", "selected"]) -> Graph:
    """The graph of `model`'s forward, for all rows of a batch or the selected ones only.

    The model is on meta: nothing is computed, no weight is read. Raises TraceError where forward
    does anything but call modules and ops.
    """
    assert isinstance(model, nn.Module)
    modules, names = _modules(model), _tensor_names(model)
    tracer = _Tracer(model, rows, modules, names)
    recorded = tracer.trace(model)
    converted = convert(recorded, tracer.module_of, tracer.leaves)
    used = set(converted.inputs)
    edges = tuple(
        ModuleEdges(path, converted.name(source), converted.name(result), boundary)
        for path, (source, result, boundary) in tracer.crossings.items()
    )
    return Graph(
        inputs=tuple(i for i in tracer.inputs if i in used),
        parameters=tuple(_parameters(modules, names, used)),
        constants=tuple(_constants(model, used)),
        caches=model.cache_layers,
        nodes=converted.nodes,
        edges=edges,
        output=converted.output,
    )


def _parameters(
    modules: Mapping[str, nn.Module], names: Mapping[int, str], used: set[str]
) -> list[Parameter]:
    """Parameters that the graph reads, once each; modules that share one annotate it alike."""
    found: dict[str, Parameter] = {}
    for path, module in modules.items():
        placements, stacks = placements_of(module), stacks_of(module)
        for attribute, tensor in module.named_parameters(recurse=False):
            name = names[id(tensor)]
            if name not in used:
                continue
            placement, stacked = placements.get(attribute), attribute in stacks
            wide, quantized = (attribute in of(module) for of in (wide_of, quantized_of))
            shape = tuple(tensor.shape)
            parameter = Parameter(name, shape, placement, stacked, wide, quantized)
            first = found.setdefault(name, parameter)
            if first != parameter:
                raise AnnotationError(
                    f"module {path} places its {attribute} as {parameter.annotation}, but it is "
                    f"tied to {name}, which is placed as {first.annotation}",
                    remedy="annotate tied weights alike",
                    where=path,
                )
    return list(found.values())


def _constants(model: nn.Module, used: set[str]) -> list[Constant]:
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in used}
    return [
        Constant(name, tuple(float(buffer[i]) for i in range(len(buffer))))
        for name, buffer in buffers.items()
    ]


def _modules(model: nn.Module) -> dict[str, nn.Module]:
    return dict(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))


def _tensor_names(model: nn.Module) -> dict[int, str]:
    """Names of a model's tensors by identity, parameters' as in checkpoints."""
    buffers = {id(tensor): name for name, tensor in model.named_buffers()}
    return {**checkpoint_names(model), **buffers}


class _Value(fx.Proxy):
    """A value of the traced forward; calls of our ops are recorded straight away.

    They are canonical (see `Op`), so that nothing need be looked for in their arguments.
    """

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> fx.Proxy:
        if not isinstance(orig_method, Op):
            return super().__torch_function__(orig_method, types, args, kwargs)
        op, given = cast("Op[..., Any]", orig_method), args or ()
        tracer = next(value.tracer for value in given if isinstance(value, _Value))
        assert isinstance(tracer, _Tracer)
        return tracer.record(op, given, kwargs or {})


class _Tracer(fx.Tracer):
    """Traces through every module; remembers each node's module and each boundary's values."""

    def __init__(
        self,
        model: CausalLM,
        rows: Literal["all", "selected"],
        modules: Mapping[str, nn.Module],
        names: Mapping[int, str],
    ) -> None:
        super().__init__()
        self._model, self._rows = cast("nn.Module", model), rows
        self._layers = model.cache_layers
        self._paths = {id(module): path for path, module in modules.items()}
        self._names = names
        self._open: list[str] = [""]
        self.leaves = {path for path, module in modules.items() if not any(module.children())}
        self.inputs: list[str] = []
        self.module_of: dict[fx.Node, str] = {}
        self.crossings: dict[str, tuple[fx.Node, fx.Node, Boundary]] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False

    def path_of_module(self, mod: nn.Module) -> str:
        return self._paths[id(mod)]

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        groups = dict.fromkeys(layer.group for layer in self._layers)
        plain = {name: self._input(name) for name in _PLAIN_INPUTS}
        inputs = ForwardInputs(
            **plain,
            logit_rows=self._input("logit_rows") if self._rows == "selected" else None,
            slot_mapping={group: self._input(f"slot_mapping.{group}") for group in groups},
            block_table={group: self._input(f"block_table.{group}") for group in groups},
        )
        caches = tuple(self._placeholder(cache_name(i)) for i in range(len(self._layers)))
        return root_fn, [self._model, inputs, caches]

    def _input(self, name: str) -> Tensor:
        self.inputs.append(name)
        return self._placeholder(name)

    def _placeholder(self, name: str) -> Tensor:
        proxy = self.create_proxy("placeholder", name.replace(".", "_"), (), {})
        proxy.node.meta["value"] = name
        return cast("Tensor", proxy)

    def getattr(
        self, attr: str, attr_val: object, parameter_proxy_cache: dict[str, fx.Proxy]
    ) -> object:
        name = self._names.get(id(attr_val)) if isinstance(attr_val, Tensor) else None
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            proxy = self.create_proxy("get_attr", name, (), {})
            proxy.node.meta["value"] = name
            parameter_proxy_cache[name] = proxy
        return parameter_proxy_cache[name]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    def record(self, op: Op[..., Any], inputs: tuple[Any, ...], given: dict[str, Any]) -> fx.Proxy:
        """What an op gives of `inputs`, with all its attributes `given`."""
        nodes = tuple(
            x.node if isinstance(x, fx.Proxy) else None if x is None else self.create_arg(x)
            for x in inputs
        )
        return self.proxy(self.create_node("call_function", op, nodes, given, op.schema.name))

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> object:
        path = self.path_of_module(m)
        self._open.append(path)
        result = forward(*args, **kwargs)
        self._open.pop()
        boundary = boundary_of(m)
        if boundary is not None:
            self.crossings[path] = (self._node(path, args[0]), self._node(path, result), boundary)
        return result

    def _node(self, path: str, value: object) -> fx.Node:
        if not isinstance(value, fx.Proxy):
            raise TraceError(
                f"module {path} annotates its boundary, but {type(value).__name__} crosses it",
                remedy="its first argument and its result must be single tensors",
                where=path,
            )
        return value.node

    def create_node(
        self,
        kind: str,
        target: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: object = None,
    ) -> fx.Node:
        module = self._open[-1]
        if kind == "call_method" or (kind == "call_function" and not _is_traced(target, args)):
            called = getattr(target, "__name__", target)
            raise TraceError(
                f"module {module or 'root'} calls {called!r}, which is no op",
                remedy="use the operators of tskernels.ops in model code",
                where=module,
            )
        node = super().create_node(
            cast("Any", kind), cast("Any", target), args, kwargs, name, type_expr
        )
        self.module_of[node] = module
        return node


def _is_traced(target: object, args: tuple[Any, ...]) -> bool:
    """Whether a call is of an op, or takes one of the outputs of an op that has several."""
    if target is not getitem:
        return isinstance(target, Op)
    source = args[0].target if isinstance(args[0], fx.Node) else None
    return isinstance(source, Op) and len(source.schema.outputs) > 1
