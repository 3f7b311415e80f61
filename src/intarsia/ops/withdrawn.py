"""Operators of ONNX's experimental set, which converters of CoreML, Caffe2 and WinML models wrote and version 10 withdrew.

ONNX has their schemas no longer; the formulas are those of its version 1.4 (`onnx/defs/experiments`), as onnxruntime computes
them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.ops.framework.operands import in_float32
from intarsia.ops.framework.registry import op
from intarsia.ops.nn.activation import softplus_of
from intarsia.ops.tensor.slicing import slice_inputs
from intarsia.primitives import lang as k

Tensor = k.Tensor
_WITHDRAWN = 10


@op("Affine", 1, until=_WITHDRAWN)
@in_float32
def affine(X: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    return X * alpha + beta


@op("Scale", 1, until=_WITHDRAWN)
@in_float32
def scale(input: Tensor, *, scale: float = 1.0) -> Tensor:
    return input * scale


@op("ScaledTanh", 1, until=_WITHDRAWN)
@in_float32
def scaled_tanh(input: Tensor, *, alpha: float, beta: float) -> Tensor:
    return k.tanh(input * beta) * alpha


@op("ParametricSoftplus", 1, until=_WITHDRAWN)
@in_float32
def parametric_softplus(X: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha log(1 + exp(beta x))."""
    return softplus_of(X * beta) * alpha


@op("ImageScaler", 1, until=_WITHDRAWN)
@in_float32
def image_scaler(input: Tensor, *, bias: Sequence[float], scale: float = 1.0) -> Tensor:
    """scale x + a bias for each channel, [N, C, H, W]."""
    _check_image(input)
    k.require_equal(len(bias), input.shape[1], "numbers of bias, one for each channel")
    x = k.reshape(input, (input.shape[0], len(bias), *input.shape[2:]))
    by_channel = k.cast(k.constant(np.array(bias, np.float32).reshape(-1, 1, 1)), x.dtype)
    return k.reshape(x * scale + by_channel, input.shape)


@op("Crop", 1, until=_WITHDRAWN)
def crop(input: Tensor, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Tensor:
    """[N, C, H, W] without `border` (left, top, right, bottom), or `scale` (height, width) of it from its left and top on."""
    _check_image(input)
    if len(border) != 4 or min(border) < 0:
        raise k.DefinitionError(f"border is {list(border)}; expected four numbers from 0 on: left, top, right and bottom")
    if scale is not None and (len(scale) != 2 or min(scale) < 0):
        raise k.DefinitionError(f"scale is {list(scale)}; expected two numbers from 0 on: height and width")
    left, top, right, bottom = border
    shape: list[Dim] = list(input.shape)
    height, width = (None, None) if scale is None else scale
    for axis, low, high, size in ((2, top, bottom, height), (3, left, right, width)):
        least = low + (high if size is None else size)
        k.require_least(shape[axis], least, f"axis {axis} of the image, for its border and scale")
        shape[axis] = shape[axis] - least if size is None else size
    return k.strided_slice(input, (0, 0, top, left), (1,) * 4, shape)


def _check_image(x: Tensor) -> None:
    if x.rank != 4:
        raise k.DefinitionError(f"input is {x!r}; expected [N, C, H, W]")


op("DynamicSlice", 1, values=("starts", "ends", "axes"), until=_WITHDRAWN)(
    lambda data, starts, ends, axes=None: slice_inputs(data, starts, ends, axes)
)
