"""Reshape, Squeeze, Transpose, Expand, Tile, Concat, Split, ..., and operators that make tensors from shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia import progress
from intarsia.graph.axes import reshape_dims
from intarsia.graph.broadcasting import broadcast_shapes
from intarsia.graph.dims import Dim, Expr, dim_max, dim_min, floordiv, format_shape, mod, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.dynamic_axis import run_axis, squeezed, unsqueezed
from intarsia.ops.framework.operands import dim, dims, element_type, integer, integers, normal_axes, normal_axis
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.primitives import lang as k

Tensor = k.Tensor


def dimensions(shape: Sequence[Dim]) -> Tensor:
    """A vector (int64) of dimensions, symbolic ones as run-time integers."""
    if all(isinstance(d, int) for d in shape):
        return k.constant(np.array(shape, np.int64))
    return k.concat([k.reshape(k.size(d), (1,)) for d in shape], 0)


@op("Shape", (1, 13))
def shape_of(data: Tensor) -> Tensor:
    return dimensions(data.shape)


@op("Shape", (15, 19, 21, 23, 24, 25))
def shape_between(data: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return dimensions(data.shape[start:end])


@op("Size", (1, 13, 19, 21, 23, 24, 25))
def size_of(data: Tensor) -> Tensor:
    return k.size(product(data.shape))


def _reshaped(x: Tensor, target: Sequence[Dim], allowzero: bool) -> Tensor:
    try:
        return k.reshape(x, reshape_dims(x.shape, target, allowzero))
    except ValueError as error:
        raise k.DefinitionError(str(error)) from None


@op("Reshape", 1)
def reshape_attribute(data: Tensor, *, shape: Sequence[int] = ()) -> Tensor:
    return _reshaped(data, shape, allowzero=False)


@op("Reshape", (5, 13), values=("shape",))
def reshape_copying_zeros(data: Tensor, shape: np.ndarray) -> Tensor:
    return _reshaped(data, dims(shape), allowzero=False)


@op("Reshape", (14, 19, 21, 23, 24, 25), values=("shape",))
def reshape(data: Tensor, shape: np.ndarray, *, allowzero: int = 0) -> Tensor:
    return _reshaped(data, dims(shape), bool(allowzero))


@op("Flatten", (1, 9, 11, 13, 21, 23, 24, 25))
def flatten(input: Tensor, *, axis: int = 1) -> Tensor:
    """A matrix: axes before `axis` together, and those from it on."""
    if not -input.rank <= axis <= input.rank:
        raise k.DefinitionError(f"axis {axis} is out of range for rank {input.rank}")
    at = axis + input.rank if axis < 0 else axis
    return k.reshape(input, (product(input.shape[:at]), product(input.shape[at:])))


def _squeezed(x: Tensor, axes: Sequence[int] | None) -> Tensor:
    if axes is None:
        unknown = [d for d in x.shape if isinstance(d, Expr)]
        if unknown:
            raise k.SymbolicValueError(f"Squeeze without axes needs to know which sizes are 1, but one is {unknown[0]}")
        axes = [i for i, d in enumerate(x.shape) if d == 1]
    drop = normal_axes(axes, x.rank)
    for axis in drop:
        k.require_equal(x.shape[axis], 1, f"cannot squeeze axis {axis} of shape {format_shape(x.shape)}: its size is not 1")
    return k.reshape(x, [d for i, d in enumerate(x.shape) if i not in drop])


@op("Squeeze", (1, 11))
def squeeze_attribute(data: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    return _squeezed(data, axes)


@op("Squeeze", (13, 21, 23, 24, 25), values=("axes",))
def squeeze(data: Tensor, axes: np.ndarray | None = None) -> Tensor:
    axis = run_axis(axes)
    return _squeezed(data, None if axes is None else integers(axes, "axes")) if axis is None else squeezed(data, axis)


def _unsqueezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    return k.expand_dims(x, normal_axes(axes, x.rank + len(axes)))


@op("Unsqueeze", (1, 11))
def unsqueeze_attribute(data: Tensor, *, axes: Sequence[int]) -> Tensor:
    return _unsqueezed(data, axes)


@op("Unsqueeze", (13, 21, 23, 24, 25), values=("axes",))
def unsqueeze(data: Tensor, axes: np.ndarray) -> Tensor:
    axis = run_axis(axes)
    return _unsqueezed(data, integers(axes, "axes")) if axis is None else unsqueezed(data, axis)


@op("Transpose", (1, 13, 21, 23, 24, 25))
def transpose(data: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return k.transpose(data, perm if perm is not None else range(data.rank)[::-1])


@op("Expand", (8, 13), values=("shape",))
def expand(input: Tensor, shape: np.ndarray) -> Tensor:
    """Multidirectional: sizes of 1 in `shape` keep the input's."""
    target = dims(shape)
    try:
        out = broadcast_shapes(input.shape, target)
    except ValueError as error:
        raise k.DefinitionError(str(error)) from None
    for want, size in zip(target[::-1], out[::-1], strict=False):
        k.require_broadcast(
            want, size, f"a size of shape {format_shape(target)}, to which {format_shape(input.shape)} is expanded"
        )
    return k.broadcast(input, out)


def _repeated(x: Tensor, repeats: Sequence[Dim]) -> Tensor:
    if len(repeats) != x.rank:
        raise k.DefinitionError(f"repeats must have one element per axis of {format_shape(x.shape)}, got {len(repeats)}")
    split: list[Dim] = []
    wide: list[Dim] = []
    for size, times in zip(x.shape, repeats, strict=True):
        split += [size] if times == 1 else [1, size]
        wide += [size] if times == 1 else [times, size]
    shape = [d if t == 1 else d * t for d, t in zip(x.shape, repeats, strict=True)]
    return k.reshape(k.broadcast(k.reshape(x, split), wide), shape)


@op("Tile", 1, values=("tiles", "axis"))
def tile_axis(input: Tensor, tiles: np.ndarray, axis: np.ndarray) -> Tensor:
    at = normal_axis(integer(axis, "axis"), input.rank)
    return _repeated(input, [dim(tiles, "tiles") if i == at else 1 for i in range(input.rank)])


@op("Tile", (6, 13), values=("repeats",))
def tile(input: Tensor, repeats: np.ndarray) -> Tensor:
    return _repeated(input, dims(repeats))


@op("Concat", 1)
def concat_default(*inputs: Tensor, axis: int = 1) -> Tensor:
    return concat(*inputs, axis=axis)


@op("Concat", (4, 11, 13))
def concat(*inputs: Tensor, axis: int) -> Tensor:
    if not inputs:
        raise k.DefinitionError("Concat needs at least one input, got none")
    return k.concat(inputs, axis)


def _parts(x: Tensor, axis: int, sizes: Sequence[Dim], outputs: int) -> tuple[Tensor, ...]:
    total: Dim = 0
    starts: list[Dim] = []
    for size in sizes:
        progress.check()
        starts.append(total)
        total = total + size
    told = format_shape(sizes)
    k.require_equal(x.shape[axis], total, f"split sizes {told} do not add up to the {x.shape[axis]} of axis {axis}")
    for size in sizes:
        k.require_least(size, 0, f"split sizes must not be negative, got {told}: one")
    if len(sizes) != outputs:
        raise k.DefinitionError(f"{len(sizes)} parts for {outputs} outputs: split must have a size for each output")
    if total != x.shape[axis]:
        x = k.reshape(x, [total if i == axis else d for i, d in enumerate(x.shape)])
    return tuple(_part(x, axis, start, size) for start, size in zip(starts, sizes, strict=True))


def _part(x: Tensor, axis: int, start: Dim, size: Dim) -> Tensor:
    starts = [start if i == axis else 0 for i in range(x.rank)]
    return k.strided_slice(x, starts, [1] * x.rank, [size if i == axis else d for i, d in enumerate(x.shape)], inside=True)


def _equal_sizes(extent: Dim, count: int) -> list[Dim]:
    k.require_multiple(extent, count, f"an axis of {extent} elements cannot be split into {count} equal parts: its elements")
    return [floordiv(extent, count)] * count


def _chunks(x: Tensor, axis: int, count: int) -> tuple[Tensor, ...]:
    """Equal parts, of which the last is smaller where the axis does not divide."""
    extent = x.shape[axis]
    if mod(extent, count) == 0:
        return _parts(x, axis, _equal_sizes(extent, count), count)
    chunk = floordiv(extent + (count - 1), count)
    starts = [dim_min(chunk * i, extent) for i in range(count)]
    return tuple(_part(x, axis, start, dim_max(dim_min(chunk, extent - start), 0)) for start in starts)


@op("Split", 1, values=("split_input",))
def split_1(
    input: Tensor,
    split_input: np.ndarray | None = None,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    node: NodeContext,
) -> tuple[Tensor, ...]:
    at = normal_axis(axis, input.rank)
    given = split if split_input is None else dims(split_input)
    return _parts(input, at, given or _equal_sizes(input.shape[at], node.outputs), node.outputs)


@op("Split", (2, 11))
def split_attribute(
    input: Tensor, *, axis: int = 0, split: Sequence[int] | None = None, node: NodeContext
) -> tuple[Tensor, ...]:
    at = normal_axis(axis, input.rank)
    return _parts(input, at, split or _equal_sizes(input.shape[at], node.outputs), node.outputs)


@op("Split", 13, values=("split",))
def split_sizes(input: Tensor, split: np.ndarray | None = None, *, axis: int = 0, node: NodeContext) -> tuple[Tensor, ...]:
    at = normal_axis(axis, input.rank)
    sizes = _equal_sizes(input.shape[at], node.outputs) if split is None else dims(split)
    return _parts(input, at, sizes, node.outputs)


@op("Split", 18, values=("split",))
def split_chunks(
    input: Tensor, split: np.ndarray | None = None, *, axis: int = 0, num_outputs: int | None = None, node: NodeContext
) -> tuple[Tensor, ...]:
    at = normal_axis(axis, input.rank)
    if split is not None:
        return _parts(input, at, dims(split), node.outputs)
    if num_outputs not in (None, node.outputs):
        raise k.DefinitionError(f"num_outputs is {num_outputs}; the node has {node.outputs} outputs")
    return _chunks(input, at, node.outputs)


def _check_blocks(x: Tensor, blocksize: int, mode: str) -> None:
    if x.rank != 4:
        raise k.DefinitionError(f"the input must have 4 axes (N, C, H, W), got shape {format_shape(x.shape)}")
    if blocksize < 1:
        raise k.DefinitionError(f"blocksize must be at least 1, got {blocksize}")
    if mode not in ("DCR", "CRD"):
        raise k.DefinitionError(f"mode must be 'DCR' or 'CRD', got {mode!r}")


@op("DepthToSpace", (1, 11, 13, 28))
def depth_to_space(input: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    _check_blocks(input, blocksize, mode)
    n, c, h, w = input.shape
    b = blocksize
    depth = floordiv(c, b * b)
    if mode == "DCR":
        parts = k.transpose(k.reshape(input, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = k.transpose(k.reshape(input, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return k.reshape(parts, (n, depth, h * b, w * b))


@op("SpaceToDepth", (1, 13, 28))
def space_to_depth(input: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    _check_blocks(input, blocksize, mode)
    n, c, h, w = input.shape
    b = blocksize
    rows, columns = floordiv(h, b), floordiv(w, b)
    parts = k.reshape(input, (n, c, rows, b, columns, b))
    parts = k.transpose(parts, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return k.reshape(parts, (n, c * (b * b), rows, columns))


def _one_element(value: Any) -> tuple[Any, DType]:
    array = np.asarray(value)
    if array.size != 1:
        raise k.DefinitionError(f"value must have one element, got shape {list(array.shape)}")
    dtype = DType.of(array.dtype)
    element = array.reshape(-1)[0]
    if dtype.is_floating:
        return float(element), dtype
    return (int(element), dtype) if dtype.is_integer else (array.reshape(-1).tolist()[0], dtype)


@op("ConstantOfShape", (9, 20, 21, 23, 24, 25), values=("input",))
def constant_of_shape(input: np.ndarray, *, value: Any = None) -> Tensor:
    element, dtype = (0.0, DType.FLOAT) if value is None else _one_element(value)
    return k.full(dims(input), element, dtype)


_CONSTANT_TYPES = {
    "value": None, "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
    "value_string": object, "value_strings": object,
}  # fmt: skip


@dataclass(frozen=True)
class ConstantAttributes(ParameterGroup):
    """What a Constant may be, of which it is one."""

    value: Any = None
    sparse_value: Any = None
    value_float: float | None = None
    value_floats: Sequence[float] | None = None
    value_int: int | None = None
    value_ints: Sequence[int] | None = None
    value_string: str | None = None
    value_strings: Sequence[str] | None = None


def _constant_array(*, attributes: ConstantAttributes) -> np.ndarray:
    found = [(name, value) for name, value in vars(attributes).items() if value is not None]
    if len(found) != 1:
        raise k.DefinitionError(f"Constant needs exactly one value attribute, got {', '.join(n for n, _ in found) or 'none'}")
    name, value = found[0]
    if name == "sparse_value":
        array: np.ndarray = value.dense()
        return array
    return np.asarray(value, _CONSTANT_TYPES[name])


@op("Constant", (1, 9, 11, 12, 13, 19, 21, 23, 24, 25), fallback=_constant_array)
def constant(*, attributes: ConstantAttributes) -> Tensor:
    array = _constant_array(attributes=attributes)
    if DType.of(array.dtype) is DType.STRING:
        raise k.SymbolicValueError("string constants live on the host")
    return k.constant(array)


@op("EyeLike", (9, 22))
def eye_like(input: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    return _diagonal(input.shape, k, input.dtype if dtype is None else element_type(dtype))


def _diagonal(shape: Sequence[Dim], offset: int, dtype: DType) -> Tensor:
    if len(shape) != 2:
        raise k.DefinitionError(f"EyeLike needs a matrix, got shape {format_shape(shape)}")
    return k.cast(k.equal(k.iota(shape, 0) + offset, k.iota(shape, 1)), dtype)


@op("Trilu", 14, values=("k",))
def trilu(input: Tensor, k: np.ndarray | None = None, *, upper: int = 1) -> Tensor:
    """The upper (lower) triangle of each matrix with its `k`-th diagonal, zero elsewhere."""
    return _triangle(input, 0 if k is None else dim(k, "k"), bool(upper))


def _triangle(x: Tensor, offset: Dim, upper: bool) -> Tensor:
    if x.rank < 2:
        raise k.DefinitionError(f"Trilu needs at least 2 axes, got shape {format_shape(x.shape)}")
    row, column = k.iota(x.shape[-2:], 0), k.iota(x.shape[-2:], 1)
    if offset != 0:
        column, row = column - row, k.size(offset)  # which no offset makes wrap around
    inside = column >= row if upper else column <= row
    return k.select(inside, x, 0)


def _count(start: Any, limit: Any, delta: Any) -> Dim:
    """Number of elements of start, start + delta, ... before limit."""
    if isinstance(delta, Expr):
        raise k.SymbolicValueError(f"the step of Range must be known, but is {delta}")
    if delta == 0:
        raise k.DefinitionError("the step of Range must not be 0")
    if any(isinstance(v, float) for v in (start, limit, delta)):
        if any(isinstance(v, Expr) for v in (start, limit)):
            raise k.SymbolicValueError(f"a size of Range depends on start {start}, limit {limit} and step {delta}")
        return max(int(np.ceil((limit - start) / delta)), 0)
    span = limit - start if delta > 0 else start - limit
    return dim_max(floordiv(span + (abs(delta) - 1), abs(delta)), 0)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@op("Range", 11, values=("start", "limit", "delta"))
def range_of(start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, node: NodeContext) -> Tensor:
    return range_computed(start, limit, delta, node=node)


@op("Range", 27, values=("start", "limit", "delta"))
def range_computed(
    start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, stash_type: int = 1, node: NodeContext
) -> Tensor:
    """start + i * delta; float16 and bfloat16 are computed in float32 whatever `stash_type` says."""
    dtype = node.operands[0].dtype
    first, last, step = (_whole(v.reshape(-1)[0]) for v in (start, limit, delta))
    if any(isinstance(v, float) and not math.isfinite(v) for v in (first, last, step)):
        raise k.DefinitionError(f"start, limit and delta of Range are {first}, {last} and {step}; expected finite numbers")
    count = _count(first, last, step)
    wide = dtype if dtype in (DType.DOUBLE, DType.FLOAT) or dtype.is_integer else DType.FLOAT
    steps = k.iota((count,), 0, wide)
    if step != 1:
        steps = steps * step
    if isinstance(first, Expr):
        steps = steps + k.size(first, wide)
    elif first != 0:
        steps = steps + first
    return k.cast(steps, dtype)
