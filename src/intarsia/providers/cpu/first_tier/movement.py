"""Concat, Split, Transpose: by NumPy, of views where these will do; Gather of few rows of a large table in the model's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, lies_channels_last, like, new
from intarsia.providers.cpu.first_tier.weights_ahead import WeightsAhead

_LARGE_NBYTES = 8 << 20  # of a table
_MOST_ROWS = 4096  # of a table that are read one by one

def concat(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Images whose channels lie innermost stay so."""
    axis = int(node.attributes.get("axis", 1))

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        first = operands[0]
        alike = all(
            isinstance(x, np.ndarray) and x.dtype == first.dtype and x.ndim == first.ndim and x.size for x in operands
        )
        if not alike or first.dtype.hasobject or not -first.ndim <= axis < first.ndim:
            return None
        at = axis % first.ndim
        rests = {(*x.shape[:at], *x.shape[at + 1 :]) for x in operands}
        if len(rests) != 1:
            return None
        shape = (*first.shape[:at], sum(x.shape[at] for x in operands), *first.shape[at + 1 :])
        y = like(first, shape) if all(map(lies_channels_last, operands)) else new(shape, first.dtype)
        return [np.concatenate(operands, at, out=y)]

    return run


def gather(node: Node, constants: WeightsAhead, calls: KernelCalls) -> Fast | None:
    """Rows of a table of words, which is not read as a whole."""
    table = constants.stored(node.inputs[0])
    alone = calls.may_look_up and node.inputs[0] in calls.alone and int(node.attributes.get("axis", 0)) == 0
    if not alone or table is None or table.nbytes < _LARGE_NBYTES or len(table.shape) != 2 or table.dtype is not DType.FLOAT:
        return None
    read = table.read_row
    if read is None:
        return None
    calls.looked_up.add(node.inputs[0])
    count, width = table.shape

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        places = operands[1]
        if not isinstance(places, np.ndarray) or places.dtype.kind != "i" or places.size > _MOST_ROWS:
            return None
        numbers, which = np.unique(np.where(places < 0, places + count, places).reshape(-1), return_inverse=True)
        if places.size and not (numbers[0] >= 0 and numbers[-1] < count):
            return None
        rows = new((len(numbers), width))
        for i, number in enumerate(numbers.tolist()):
            read(number, rows[i])
        return [rows[which.reshape(-1)].reshape(*places.shape, width)]

    return run


def split(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Into equal parts, or parts of constant lengths: views."""
    axis = int(node.attributes.get("axis", 0))
    given = constants.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    if node.version < 13 or (len(node.inputs) > 1 and node.inputs[1] and given is None):
        return None
    lengths = [int(n) for n in given] if given is not None else None
    count = len(node.outputs)
    if lengths is not None and (len(lengths) != count or min(lengths) < 0):
        return None

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not isinstance(x, np.ndarray) or not -x.ndim <= axis < x.ndim:
            return None
        size = x.shape[axis]
        if sum(lengths) != size if lengths is not None else size % count:
            return None
        parts = lengths or [size // count] * count
        return np.split(x, np.cumsum(parts)[:-1], axis)

    return run


def transpose(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """A view."""
    perm = node.attributes.get("perm")

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not isinstance(x, np.ndarray) or perm is not None and sorted(perm) != list(range(x.ndim)):
            return None
        return [x.transpose(perm)]

    return run
