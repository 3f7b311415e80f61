"""What is known of attention masks without running the model: which are causal, which are broadcast for nothing."""

from __future__ import annotations

import numpy as np

from intarsia.passes.analysis.affine_index import Compared, positions_of
from intarsia.passes.rewriter import Rewriter

_LOW = -9e3  # a causal row always has a key that is not hidden, and exp(low - its score) is 0 in float32
_VIEWS = ("Unsqueeze", "Squeeze", "Reshape")


def unexpanded(rewriter: Rewriter, name: str) -> str:
    """The tensor of the same rank that `name` is an expansion of, if it is one."""
    while (node := rewriter.producer_of(name, "Expand")) is not None and rewriter.rank(node.inputs[0]) == rewriter.rank(name):
        if rewriter.rank(name) is None:
            break
        name = node.inputs[0]
    return name


def is_causal_mask(rewriter: Rewriter, name: str) -> bool:
    """Whether the boolean tensor is true exactly where the index on the last axis is at most that on the one before."""
    array = rewriter.array(name, 1 << 24)
    if array is not None:
        return _cached(rewriter, name, array, _lower_triangle)
    node = rewriter.producer_of(name, "Slice", "And", "Cast", *_VIEWS)
    if node is not None and node.op_type == "Slice":
        return _leading_square(rewriter, name) and is_causal_mask(rewriter, node.inputs[0])
    found = positions_of(rewriter, name)
    return isinstance(found, Compared) and found.is_causal


def is_causal_bias(rewriter: Rewriter, name: str) -> bool:
    """Whether the tensor is 0 where a causal mask is true and hides the score elsewhere."""
    array = rewriter.array(name, 1 << 24)
    if array is not None:
        return array.dtype.kind == "f" and _cached(rewriter, name, array, _causal_bias)
    node = rewriter.producer_of(name, "Where", "Slice", "Mul")
    if node is None:
        return False
    if node.op_type == "Slice":
        return _leading_square(rewriter, name) and is_causal_bias(rewriter, node.inputs[0])
    if node.op_type == "Where":
        zero, low = rewriter.scalar(node.inputs[1]), rewriter.scalar(node.inputs[2])
        return (
            zero == 0.0 and low is not None and low <= _LOW and is_causal_mask(rewriter, unexpanded(rewriter, node.inputs[0]))
        )
    return False


def _cached(rewriter: Rewriter, name: str, array: np.ndarray, test: object) -> bool:
    key = ("mask", name)
    if key not in rewriter.notes:
        assert callable(test)
        rewriter.notes[key] = test(array)
    return bool(rewriter.notes[key])


def _square(array: np.ndarray) -> np.ndarray | None:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        return None
    return array.reshape(array.shape[-2:])


def _lower_triangle(array: np.ndarray) -> bool:
    square = _square(array)
    return (
        square is not None and square.shape[0] > 1 and bool((square.astype(bool) == np.tri(*square.shape).astype(bool)).all())
    )


def _causal_bias(array: np.ndarray) -> bool:
    square = _square(array)
    if square is None or square.shape[0] < 2:
        return False
    seen = np.tri(*square.shape).astype(bool)
    return bool((square[seen] == 0).all() and (square[np.logical_not(seen)] <= _LOW).all())


def _leading_square(rewriter: Rewriter, name: str) -> bool:
    """Whether `name` is a Slice that takes the leading [n, n] of the last two axes of its operand, and all of the others."""
    out = rewriter.shape(name)
    node = rewriter.producer[name]
    if out is None or len(out) < 2 or out[-1] != out[-2] or any(d != 1 for d in out[:-2]):
        return False
    starts = node.attributes.get("starts") or (rewriter.ints(node.inputs[1]) if len(node.inputs) > 1 else None)
    steps = rewriter.ints(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else [1]
    return starts is not None and not any(starts) and steps is not None and all(s == 1 for s in steps)
