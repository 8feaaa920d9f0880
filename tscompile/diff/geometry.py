"""Groups of ranks as they lie, whatever the axes of a mesh are called or how it is cut."""

from __future__ import annotations

from collections.abc import Sequence

from tsruntime.artifact.schema import Mesh


def geometry(mesh: Mesh, axes: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """(stride, size) of a group's axes, neighbours joined: equal for the same partition of ranks.

    The digits keep their order, since members are ordered by them.
    """
    strides: dict[str, tuple[int, int]] = {}
    stride = 1
    for axis in mesh.axes:
        strides[axis.name] = (stride, axis.size)
        stride *= axis.size
    joined: list[tuple[int, int]] = []
    for start, size in (strides[name] for name in axes):
        if joined and joined[-1][0] * joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] * size)
        elif size > 1:
            joined.append((start, size))
    return tuple(joined)


def group_label(mesh: Mesh, axes: Sequence[str]) -> str:
    """`16 ranks`, or `4 ranks 4 apart` where they are no neighbours."""
    return " x ".join(
        f"{size} ranks" + (f" {stride} apart" if stride > 1 else "")
        for stride, size in geometry(mesh, axes)
    )
