"""Record a model's forward with torch.fx, ops as leaves, and convert it to our own graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import getitem
from typing import Any, Literal, cast

from torch import Tensor, fx, nn

from tscompile.ir.errors import AnnotationError, TraceError
from tscompile.ir.graph import Constant, Graph, ModuleEdges, Parameter, cache_name
from tscompile.models.annotations import (
    CausalLM,
    ForwardInputs,
    boundary_of,
    placements_of,
    quantized_of,
    stacks_of,
    wide_of,
)
from tscompile.trace.convert import Converted, convert
from tscompile.trace.copies import Call, Copy, Crossing, Recorded, copied, is_layer
from tscompile.trace.modules import BUFFERS, PARAMETERS, held, modules_of, tensor_names
from tskernels.ops import Op

_PLAIN_INPUTS = ("token_ids", "positions", "query_starts", "seq_lens")


def trace(model: CausalLM, rows: Literal["all", "selected"], *, copying: bool = False) -> Graph:
    """The graph of `model`'s forward, for all rows of a batch or the selected ones only.

    The model is on meta: nothing is computed, no weight is read. With `copying`, of layers that are
    equal modules but the first is run. Raises TraceError where forward does anything but call
    modules and ops.
    """
    assert isinstance(model, nn.Module)
    modules = modules_of(model)
    names = tensor_names(modules)
    tracer = _Tracer(model, rows, modules, names, copying=copying)
    recorded = tracer.trace(type(model).forward)  # of a function: tensors it knows by `names`
    converted = convert(recorded, tracer.module_of, tracer.copies, tracer.leaves)
    used = set(converted.inputs)
    return Graph(
        inputs=tuple(i for i in tracer.inputs if i in used),
        parameters=tuple(_parameters(modules, names, used)),
        constants=tuple(_constants(modules, names, used)),
        caches=model.cache_layers,
        nodes=tuple(converted.nodes),
        edges=tuple(_edges(converted, tracer)),
        output=converted.output,
    )


def _edges(converted: Converted, tracer: _Tracer) -> Iterator[ModuleEdges]:
    for path, (crossing, copy) in tracer.crossings.items():
        source, result = (converted.name(end, copy) for end in crossing.ends)
        yield ModuleEdges(path, source, result, crossing.boundary)


def _parameters(
    modules: Mapping[str, nn.Module], names: Mapping[int, str], used: set[str]
) -> list[Parameter]:
    """Parameters that the graph reads, once each; modules that share one annotate it alike."""
    found: dict[str, Parameter] = {}
    for path, module in modules.items():
        for attribute, tensor in held(module, PARAMETERS):
            name = names[id(tensor)]
            if name not in used:
                continue
            parameter = _parameter(name, module, attribute, tensor)
            first = found.setdefault(name, parameter)
            if first != parameter:
                raise AnnotationError(
                    f"module {path} places its {attribute} as {parameter.annotation}, but it is "
                    f"tied to {name}, which is placed as {first.annotation}",
                    remedy="annotate tied weights alike",
                    where=path,
                )
    return list(found.values())


def _parameter(name: str, module: nn.Module, attribute: str, tensor: Tensor) -> Parameter:
    return Parameter(
        name,
        tuple(tensor.shape),
        placements_of(module).get(attribute),
        stacked=attribute in stacks_of(module),
        wide=attribute in wide_of(module),
        quantized=attribute in quantized_of(module),
    )


def _constants(
    modules: Mapping[str, nn.Module], names: Mapping[int, str], used: set[str]
) -> list[Constant]:
    buffers = (buffer for module in modules.values() for _, buffer in held(module, BUFFERS))
    read = {name: buffer for buffer in buffers if (name := names[id(buffer)]) in used}
    return [
        Constant(name, tuple(float(buffer[i]) for i in range(len(buffer))))
        for name, buffer in read.items()
    ]


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
        *,
        copying: bool,
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
        self.crossings: dict[str, tuple[Crossing, fx.Node | None]] = {}
        self.copies: dict[fx.Node, Copy] = {}
        self._copying = copying
        self._recorded: list[Recorded] = []

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
        outermost = self._copying and is_layer(path) and not any(map(is_layer, self._open))
        run = self._layer if outermost else self._run
        result = run(Call(m, path, args, kwargs), forward)
        boundary = boundary_of(m)
        if boundary is not None:
            ends = self._node(path, args[0]), self._node(path, result)
            self.crossings[path] = Crossing(ends, boundary), None
        return result

    def _run(self, call: Call, forward: Callable[..., Any]) -> object:
        self._open.append(call.path)
        result = forward(*call.args, **call.kwargs)
        self._open.pop()
        return result

    def _layer(self, call: Call, forward: Callable[..., Any]) -> object:
        """What a layer gives: run, unless one that was run stands for it."""
        for recorded in self._recorded:
            copy = copied(call, recorded, self._names)
            if copy is not None:
                return self._copy(copy)
        before = len(self.module_of)
        result = self._run(call, forward)
        if isinstance(result, fx.Proxy):
            nodes = tuple(islice(self.module_of, before, None))
            inner = f"{call.path}."
            crossings = tuple((p, c) for p, (c, _) in self.crossings.items() if p.startswith(inner))
            self._recorded.append(Recorded(call, nodes, crossings, result.node))
        return result

    def _copy(self, copy: Copy) -> fx.Proxy:
        inputs = tuple(copy.inputs.values())
        node = super().create_node("call_module", copy.path, inputs, {})
        self.copies[node] = copy
        for path, crossing in copy.of.crossings:
            self.crossings[copy.moved(path)] = crossing, node
        return self.proxy(node)

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
