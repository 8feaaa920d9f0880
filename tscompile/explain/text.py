"""The choices of a program as text: what each op does, its price, and what the next best costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tscompile.cost.model import Price
from tscompile.explain.runners_up import Choice
from tscompile.ir.placement import Placements, label
from tscompile.search.drafts import Solved
from tscompile.search.solution import Option
from tsruntime.artifact.schema import Mesh


def explained(mesh: Mesh, name: str, best: Solved, found: Sequence[Choice]) -> Iterator[str]:
    """Lines: the program's price, then for each choice its op, placements, price and runner-up."""
    price = best.solution.price
    yield (
        f"{name}: {microseconds(price)} predicted, {price.launches} launches, "
        f"{price.wire_bytes:,} bytes on the wire of a rank"
    )
    for layers, choices in groupby(found, key=lambda choice: choice.layers):
        yield ""
        yield _layers(layers)
        for choice in choices:
            yield f"  {choice.module}: {option_text(mesh, choice.run.option)}  " + microseconds(
                choice.run.price
            )
            yield f"    {_otherwise(mesh, choice, price)}"


def _otherwise(mesh: Mesh, choice: Choice, price: Price) -> str:
    if choice.runner_up is None:
        return "nothing else fits its weights and annotations"
    more = choice.runner_up - price
    instead = "" if choice.instead is None else f": {option_text(mesh, choice.instead)}"
    launches = f", {more.launches:+} launches" if more.launches else ""
    wire = f", {more.wire_bytes:+,} bytes" if more.wire_bytes else ""
    return f"else +{microseconds(more)} in all{launches}{wire}{instead}"


def option_text(mesh: Mesh, option: Option) -> str:
    """`linear (Shard(1)@a) -> Partial@a`."""
    inputs, outputs = (
        ", ".join(_placed(mesh, p) for p in side) for side in (option.requires, option.gives)
    )
    note = f" {option.note}" if option.note else ""
    return f"{option.kind}{note} ({inputs}) -> {outputs or 'nothing'}"


def _placed(mesh: Mesh, placements: Placements) -> str:
    return label(mesh, placements) or "Replicate"


def _layers(layers: Sequence[int]) -> str:
    if not layers:
        return "outside the layers"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    parts = [f"{a}..{b}" if a != b else str(a) for a, b in runs]
    return f"layers {', '.join(parts)}" if len(layers) > 1 else f"layer {parts[0]}"


def microseconds(price: Price) -> str:
    """`12.34 us`."""
    return f"{price.picoseconds / 1e6:,.2f} us"
