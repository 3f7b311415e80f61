"""Resize, Upsample, GridSample."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.coreml.node_builder import BYTES, FLOATS, Handler, NodeBuilder, Var


def _resize(b: NodeBuilder) -> Var:
    """Core ML's upsampling for whole factors; any other axis by gathering its pixels, or a product with its weights.

    What pixels or weights an axis has is what ONNX's definition makes of a line of numbers 0, 1, 2, ..., or of a unit matrix.
    """
    dtype = b.only(*FLOATS, DType.INT32, *BYTES)
    mode = b.attribute("mode", "nearest")
    if mode != "nearest" and dtype not in FLOATS:
        raise b.refuse("linear Resize of integers truncates", "type")
    if b.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise b.refuse("Core ML's resizing has no regions (tf_crop_and_resize)")
    shape, out = b.shape(), b.out_shape()
    axes = [i for i, (n, m) in enumerate(zip(shape, out, strict=True)) if n != m or _scale(b, i) != 1]
    x = b.x()
    if not axes:
        return b.mb.identity(x=x)
    factors = [m // n for n, m in zip(shape, out, strict=True)]
    whole = all(m % n == 0 and _scale(b, i) == m // n for i, (n, m) in enumerate(zip(shape, out, strict=True)))
    if mode == "nearest":
        lines = {i: _line(b, i) for i in axes}
        repeated = whole and all((lines[i] == np.arange(out[i]) // factors[i]).all() for i in axes)
        if dtype in FLOATS and b.rank == 4 and repeated and set(axes) <= {2, 3}:
            return b.mb.upsample_nearest_neighbor(x=x, scale_factor_height=factors[2], scale_factor_width=factors[3])
        for i in axes:
            x = b.mb.gather(x=x, indices=lines[i], axis=i)
        return x
    if b.rank == 4 and set(axes) <= {2, 3} and whole and mode == "linear" and not b.attribute("antialias", 0):
        corners = {"half_pixel": False, "align_corners": True}.get(b.attribute("coordinate_transformation_mode", "half_pixel"))
        if corners is not None and b.node.version >= 11 and not (corners and 1 in out[2:]):
            return b.mb.upsample_bilinear(
                x=x, scale_factor_height=factors[2], scale_factor_width=factors[3], align_corners=corners,
                half_pixel_centers=not corners,
            )  # fmt: skip
    for i in axes:
        x = _weighted(b, x, i)
    return x


def _scale(b: NodeBuilder, axis: int) -> float:
    """The scale of an axis, as given or as the sizes have it."""
    shape, out = b.shape(), b.out_shape()
    given = _given_scales(b)
    return given.get(axis, 1.0) if given is not None else out[axis] / shape[axis]


def _given_scales(b: NodeBuilder) -> dict[int, float] | None:
    """Axis -> scale; None where sizes are given."""
    axes = [int(a) % b.rank for a in b.attribute("axes") or range(b.rank)]
    if b.node.op_type == "Upsample" and b.node.version < 9:
        return dict(enumerate(map(float, b.attribute("scales"))))
    index = 2 if b.node.op_type == "Resize" and b.node.version >= 11 else 1
    scales = b.constant(index)
    if b.has(index) and scales is None:
        raise b.refuse("Core ML has to know by how much is resized")
    if scales is None or not scales.size:
        b.ints(3, "the sizes of Resize")
        return None
    return dict(zip(axes, map(float, scales.reshape(-1)), strict=True))


def _of_one_axis(b: NodeBuilder, axis: int, data: np.ndarray, at: int) -> np.ndarray:
    """What ONNX's definition makes of `data`, whose axis `at` is resized as `axis` of the node's input is."""
    attributes = {k: v for k, v in b.node.attributes.items() if k not in ("axes", "keep_aspect_ratio_policy", "scales")}
    given = _given_scales(b)
    ones: list[float] = [1.0] * data.ndim
    if given is None:
        sizes = list(data.shape)
        sizes[at] = b.out_shape()[axis]
        node = Node("Resize", ["x", "", "", "s"], ["y"], attributes, version=max(b.node.version, 13))
        inputs = [data, None, None, np.array(sizes, np.int64)]
    else:
        ones[at] = given.get(axis, 1.0)
        old = b.node.op_type == "Upsample" or b.node.version < 11
        if old:
            node = Node("Resize", ["x", "s"], ["y"], attributes, version=10)
            inputs = [data, np.array(ones, np.float32)]
        else:
            node = Node("Resize", ["x", "", "s"], ["y"], attributes, version=b.node.version)
            inputs = [data, None, np.array(ones, np.float32)]
    (found,) = evaluate_node(node, inputs, registry())
    return np.asarray(found)


def _line(b: NodeBuilder, axis: int) -> np.ndarray:
    """Which pixel of an axis each pixel of the output is."""
    return _of_one_axis(b, axis, np.arange(b.shape()[axis], dtype=np.int32), 0)


def _weighted(b: NodeBuilder, x: Var, axis: int) -> Var:
    """A product with the weights of one axis, which is the last one meanwhile."""
    size = b.shape()[axis]
    weights = _of_one_axis(b, axis, np.eye(size, dtype=np.float32), 1)
    matrix = weights.astype(b.number(0).dtype)
    perm = list(range(b.rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    last = axis == b.rank - 1
    y = b.mb.matmul(x=x if last else b.mb.transpose(x=x, perm=perm), y=matrix)
    return y if last else b.mb.transpose(x=y, perm=perm)


def _grid_sample(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    mode = {"bilinear": "bilinear", "linear": "bilinear"}.get(b.attribute("mode", "linear"))
    if mode is None or b.rank != 4:
        raise b.refuse("GridSample is translated for two spatial axes and linear interpolation")
    if b.attribute("padding_mode", "zeros") == "reflection":
        raise b.refuse("Core ML and ONNX mirror pictures at other places")
    padding = {"zeros": "constant", "border": "border"}[b.attribute("padding_mode", "zeros")]
    return b.mb.resample(
        x=b.x(), coordinates=b.x(1), sampling_mode=mode, padding_mode=padding, padding_value=b.number(0),
        coordinates_mode="normalized_minus_one_to_one", align_corners=bool(b.attribute("align_corners", 0)),
    )  # fmt: skip


HANDLERS: Mapping[str, Handler] = {"GridSample": _grid_sample, "Resize": _resize, "Upsample": _resize}
