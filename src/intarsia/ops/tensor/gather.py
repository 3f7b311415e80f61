"""Gather and scatter operators, OneHot."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import Expr, format_shape
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import along, dims, normal_axis
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor

REDUCTIONS = ("none", "add", "mul", "max", "min")


@op("Gather", (1, 11, 13))
def gather(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    at = normal_axis(axis, data.rank)
    return k.take(data, k.wrap_indices(indices, data.shape[at]), at)


def _grid(data: Tensor, indices: Tensor, axis: int) -> list[Tensor]:
    """Positions in `data` of each element of `indices`: its own, except along `axis`."""
    if data.rank != indices.rank:
        raise k.DefinitionError(f"data and indices must have the same rank, got {data.rank} and {indices.rank}")
    at = normal_axis(axis, data.rank)
    wrapped = k.wrap_indices(indices, data.shape[at])
    return [wrapped if i == at else k.iota(indices.shape, i) for i in range(data.rank)]


@op("GatherElements", (11, 13))
def gather_elements(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return k.index(data, _grid(data, indices, axis))


def _check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise k.DefinitionError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")


@op("ScatterElements", (11, 13))
def scatter_elements_plain(data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return k.scatter(data, _grid(data, indices, axis), updates)


op("Scatter", (9, 11))(scatter_elements_plain)


@op("ScatterElements", (16, 18))
def scatter_elements(data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    _check_reduction(reduction)
    return k.scatter(data, _grid(data, indices, axis), updates, reduction)


def _tuple_grid(data: Tensor, indices: Tensor, batch_dims: int) -> list[Tensor]:
    """Positions for GatherND and ScatterND: index tuples in the last axis of `indices`, then the rest of `data`."""
    depth = indices.shape[-1] if indices.rank else 0
    if isinstance(depth, Expr):
        raise k.SymbolicValueError(f"the length of an index tuple must be known, but is {depth}")
    if not indices.rank or batch_dims + depth > data.rank:
        shapes = f"{format_shape(indices.shape)} do not fit data of shape {format_shape(data.shape)}"
        raise k.DefinitionError(f"index tuples of shape {shapes}")
    if not 0 <= batch_dims < min(indices.rank, data.rank):
        ranks = f"indices of rank {indices.rank} and data of rank {data.rank}"
        raise k.DefinitionError(f"batch_dims is {batch_dims}; expected 0 to {min(indices.rank, data.rank) - 1} for {ranks}")
    for axis in range(batch_dims):
        k.require_equal(indices.shape[axis], data.shape[axis], f"axis {axis} of indices and data, one of batch_dims")
    outer = indices.shape[:-1]
    rest = data.shape[batch_dims + depth :]
    full = (*outer, *rest)
    grid = [k.iota(full, i) for i in range(batch_dims)]
    for j in range(depth):
        starts = [0] * len(outer) + [j]
        column = k.reshape(k.strided_slice(indices, starts, [1] * indices.rank, (*outer, 1)), (*outer, *[1] * len(rest)))
        grid.append(k.wrap_indices(column, data.shape[batch_dims + j]))
    grid += [k.iota(full, len(outer) + j) for j in range(len(rest))]
    return grid


@op("GatherND", 11)
def gather_nd_unbatched(data: Tensor, indices: Tensor) -> Tensor:
    return gather_nd(data, indices)


@op("GatherND", (12, 13))
def gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    if indices.rank and indices.shape[-1] == 1 and batch_dims == 0 and data.rank:
        return k.take(data, k.wrap_indices(k.reshape(indices, indices.shape[:-1]), data.shape[0]), 0)
    return k.index(data, _tuple_grid(data, indices, batch_dims))


@op("ScatterND", (11, 13))
def scatter_nd_plain(data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return k.scatter(data, _tuple_grid(data, indices, 0), updates)


@op("ScatterND", (16, 18))
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    _check_reduction(reduction)
    return k.scatter(data, _tuple_grid(data, indices, 0), updates, reduction)


@op("TensorScatter", 24)
def tensor_scatter(
    past_cache: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """`update` written into `past_cache` along `axis` from each sample's write index on; circular: modulo the cache's size."""
    if mode not in ("linear", "circular"):
        raise k.DefinitionError(f"mode must be 'linear' or 'circular', got {mode!r}")
    at = normal_axis(axis, past_cache.rank)
    if at == 0:
        raise k.DefinitionError("axis must not be 0, the batch axis")
    if update.rank != past_cache.rank:
        raise k.DefinitionError(f"update is {update!r}; expected the rank {past_cache.rank} of past_cache")
    grid = [k.iota(update.shape, i) for i in range(update.rank)]
    if write_indices is not None:
        grid[at] = grid[at] + along(k.cast(write_indices, DType.INT64), 0, update.rank)
    if mode == "circular":
        grid[at] = k.binary("mod", grid[at], k.size(past_cache.shape[at]))
    return k.scatter(past_cache, grid, update)


@op("OneHot", (9, 11, 28), values=("depth",))
def one_hot(indices: Tensor, depth: np.ndarray, values: Tensor, *, axis: int = -1) -> Tensor:
    """values[1] where the new axis' index equals the (wrapped) index, else values[0]; indices out of range match nowhere."""
    at = normal_axis(axis, indices.rank + 1)
    size = dims(depth)[0]
    if values.rank != 1:
        raise k.DefinitionError(f"values is {values!r}; expected two elements, off and on")
    k.require_equal(values.shape[0], 2, "the elements of values, off and on")
    shape = (*indices.shape[:at], size, *indices.shape[at:])
    off, on = (k.reshape(k.strided_slice(values, [i], [1], [1]), ()) for i in range(2))
    where = k.expand_dims(k.wrap_indices(indices, size), [at])
    return k.select(k.equal(k.iota(shape, at), where), on, off)
