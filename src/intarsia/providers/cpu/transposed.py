"""Transposed convolution as a convolution with stride 1.

Output pixel q s + r of a transposed convolution with stride s sums x[q - j] w[j s + r] over j. So the s pixels of a block are s
filters of an ordinary convolution over ceil(k / s) input pixels, computed together and then interleaved.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.infer import Inference
from intarsia.records import dataclass


@dataclass(frozen=True)
class Parts:
    """Weights [group * blocks... * M / group, C / group, taps...] and the attributes of the two nodes."""

    weights: np.ndarray
    bias: np.ndarray | None
    convolution: dict[str, Any]
    interleave: dict[str, Any]


def is_transposed_convolution(node: Node, inference: Inference) -> bool:
    """Whether the node is a ConvTranspose of float by constant weights that `as_convolution` takes."""
    if node.domain or node.op_type != "ConvTranspose":
        return False
    x, constants = inference.types.get(node.inputs[0]), inference.graph.constants
    if not isinstance(x, TensorType) or x.shape is None or x.dtype is not DType.FLOAT or not 3 <= len(x.shape) <= 5:
        return False
    if any(n and n not in constants for n in node.inputs[1:]):
        return False
    return is_plain(node)


def is_plain(node: Node) -> bool:
    """Whether the border is given by `pads`, and no taps are left out."""
    plain = node.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "") and not node.attributes.get("output_shape")
    return plain and all(d == 1 for d in node.attributes.get("dilations") or ())


def as_convolution(node: Node, weights: np.ndarray, bias: np.ndarray | None) -> Parts:
    """The node's weights [C, M / group, k...] for the convolution; see the module's text."""
    rank = weights.ndim - 2
    attributes, kernel = node.attributes, weights.shape[2:]
    strides = tuple(attributes.get("strides") or (1,) * rank)
    pads = tuple(attributes.get("pads") or (0,) * (2 * rank))
    extra = tuple(attributes.get("output_padding") or (0,) * rank)
    group = int(attributes.get("group", 1))
    taps = tuple(-(-(k + e) // s) for k, e, s in zip(kernel, extra, strides, strict=True))
    channels, filters = weights.shape[0] // group, weights.shape[1]
    padded = np.zeros((*weights.shape[:2], *(t * s for t, s in zip(taps, strides, strict=True))), weights.dtype)
    padded[(slice(None), slice(None), *map(slice, kernel))] = weights
    split = padded.reshape(group, channels, filters, *itertools.chain(*zip(taps, strides, strict=True)))
    tap_axes, block_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    made = np.flip(split.transpose(0, *block_axes, 2, 1, *tap_axes), tuple(range(3 + rank, 3 + 2 * rank)))
    borders = tuple(t - 1 for t in taps) * 2
    ends = [t * s - k - e + p for t, s, k, e, p in zip(taps, strides, kernel, extra, pads[rank:], strict=True)]
    return Parts(
        np.ascontiguousarray(made).reshape(group * math.prod(strides) * filters, channels, *taps),
        None if bias is None else np.tile(bias.reshape(group, 1, filters), (1, math.prod(strides), 1)).reshape(-1),
        {"kernel_shape": list(taps), "pads": list(borders), "strides": [1] * rank, "group": group},
        {"blocks": list(strides), "begins": list(pads[:rank]), "ends": ends, "group": group},
    )
