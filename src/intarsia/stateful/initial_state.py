"""The first value of a state: zeros of sizes that the model declares, the feed has, or the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.size_expressions import evaluate, solve

if TYPE_CHECKING:
    from intarsia.model.signature import NodeArg
    from intarsia.stateful.state_pairs import State


_DTYPES = {f"tensor({d.onnx_name})": d for d in DType if d is not DType.UNDEFINED}


def known_sizes(inputs: Sequence[NodeArg], feed: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of each named dimension of the inputs that are fed, with `sizes`, which come first."""
    found = dict(sizes)
    for arg in inputs:
        shape = np.shape(feed[arg.name]) if arg.name in feed else ()
        for dim, size in zip(arg.shape, shape, strict=False):
            if isinstance(dim, str):
                solved = solve(dim, size, found) if dim not in found else None
                name, value = solved if solved is not None else (dim, size)
                found.setdefault(name, value)
    return found


def first_shape(state: State, inputs: Sequence[NodeArg], feed: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The state's shape before the first run on `feed`.

    Raises:
        InvalidArgument: a size that neither the model nor the feed says.
    """
    known = known_sizes(inputs, feed, sizes)
    shape = []
    for axis, dim in enumerate(state.shape):
        size = dim if isinstance(dim, int) else evaluate(dim, known) if dim is not None else None
        if size is None and axis == state.grows:
            size = 0
        if size is None and axis == state.batch:
            size = _rows(inputs, feed)
        if size is None:
            raise InvalidArgument(
                f"state {state.input!r}: its axis {axis} ({dim if dim is not None else 'without a name'}) of "
                f"{list(state.shape)} is neither fixed nor that of an input: give "
                + (f"sizes={{{dim!r}: ...}} or " if dim is not None else "")
                + f"initial={{{state.input!r}: array}}"
            )
        shape.append(size)
    return tuple(shape)


def element_dtype(value: State | NodeArg) -> np.dtype:
    """NumPy's type of the elements of a state, or of an input."""
    return _DTYPES[value.type].numpy


def zeros(state: State, shape: Sequence[int]) -> np.ndarray:
    """A state of nothing that was seen."""
    dtype = element_dtype(state)
    return np.full(tuple(shape), "", dtype) if dtype.hasobject else np.zeros(tuple(shape), dtype)


def _rows(inputs: Sequence[NodeArg], feed: Mapping[str, Any]) -> int:
    """How many rows the feed has: the first size of its first input of two axes and more; 1 where there is none."""
    shapes = (np.shape(feed[a.name]) for a in inputs if a.name in feed)
    return next((int(shape[0]) for shape in shapes if len(shape) > 1), 1)
