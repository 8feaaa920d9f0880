"""Native float32 CPU kernels, bound to raw pointers.

Addresses are `Tensor.data_ptr()`, strides count elements and leave out the last dim, which must be
contiguous; index arrays are contiguous int32. A shape is (rows, heads, width), a cache's is (pages,
heads, page_size, width). `keep` is held as long as the kernel: pass what holds the tensors. Calling
a kernel raises IndexError where a page or slot that it reads from memory lies outside.

`linear_silu_mul` has weight [2 * width, k] for shape (rows, width, k), and needs `both`, a buffer
of rows * 2 * width floats. `in_rows` makes one kernel of rms_norm, add, silu_mul, rotary and
kv_write kernels of equally many rows (ValueError otherwise): all of them for some rows, then for
the next.
"""

from __future__ import annotations

from collections.abc import Callable

Strides = tuple[int, int]
Shape = tuple[int, int, int]
CacheShape = tuple[int, int, int, int]

class Kernel:
    def __call__(self) -> None: ...

def linear(
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    bias: int,
    y: int,
    y_stride: int,
    shape: Shape,
    keep: object,
) -> Kernel: ...
def linear_silu_mul(
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    bias: int,
    both: int,
    y: int,
    y_stride: int,
    shape: Shape,
    keep: object,
) -> Kernel: ...
def attention(
    query: int,
    query_strides: Strides,
    y: int,
    y_strides: Strides,
    shape: Shape,
    cache: int,
    cache_shape: CacheShape,
    block_table: int,
    seq_lens: int,
    query_starts: int,
    table_shape: tuple[int, int],
    scale: float,
    window: int,
    keep: object,
) -> Kernel: ...
def kv_write(
    key: int,
    key_strides: Strides,
    value: int,
    value_strides: Strides,
    rows: int,
    cache: int,
    cache_shape: CacheShape,
    slots: int,
    keep: object,
) -> Kernel: ...
def embedding(
    ids: int,
    weight: int,
    weight_stride: int,
    vocab: int,
    vocab_start: int,
    y: int,
    y_stride: int,
    rows: int,
    width: int,
    keep: object,
) -> Kernel: ...
def rms_norm(
    x: int,
    x_strides: Strides,
    weight: int,
    y: int,
    y_strides: Strides,
    shape: Shape,
    eps: float,
    keep: object,
) -> Kernel: ...
def add(
    a: int,
    a_strides: Strides,
    b: int,
    b_strides: Strides,
    y: int,
    y_strides: Strides,
    shape: Shape,
    keep: object,
) -> Kernel: ...
def silu_mul(
    a: int,
    a_strides: Strides,
    b: int,
    b_strides: Strides,
    y: int,
    y_strides: Strides,
    shape: Shape,
    keep: object,
) -> Kernel: ...
def rotary(
    x: int,
    x_strides: Strides,
    table: int,
    table_stride: int,
    half: int,
    y: int,
    y_strides: Strides,
    shape: Shape,
    keep: object,
) -> Kernel: ...
def rotary_table(
    positions: int,
    inv_freq: int,
    rows: int,
    half: int,
    scale: float,
    y: int,
    y_stride: int,
    keep: object,
) -> Kernel: ...
def in_rows(*parts: Callable[[], None]) -> Kernel: ...
def set_num_threads(threads: int) -> None: ...
def num_threads() -> int: ...
def isa() -> str: ...
def use_isa(name: str) -> None: ...
