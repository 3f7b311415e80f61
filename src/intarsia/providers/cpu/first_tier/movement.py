"""Concat, Split, Transpose: by NumPy, of views where these will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, lies_channels_last, like, new


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
