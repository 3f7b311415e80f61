"""Convolutions, pools, normalisations of images, and images made larger or smaller."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.expressions import (
    binary,
    concatenated,
    gathered,
    part,
    plus,
    product,
    reduced,
    split,
    times,
    transposed,
    unary,
)
from intarsia.providers.nnapi.lowerings.elementwise import Lowering, need_real
from intarsia.providers.nnapi.operands import OperandType, Tensor
from intarsia.providers.nnapi.writer import AXIS_IN_NHWC, NHWC, PLAIN, TO_NHWC, Writer
from intarsia.providers.vendor.translator import Untranslatable

_MOST_GROUPS = 64


@dataclass(frozen=True)
class Window:
    """Where the windows of a convolution or pool lie, of height and width.

    Attributes:
        pads: left, right, top, bottom, as NNAPI orders them.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @classmethod
    def of(cls, node: Node, kernel: Sequence[int]) -> Window:
        """Raises Untranslatable where NNAPI has no such windows."""
        if len(kernel) != 2:
            raise Untranslatable(f"NNAPI has {node.op_type} of images only, and this has {len(kernel)} spatial axes")
        attributes = node.attributes
        strides = attributes.get("strides") or [1, 1]
        dilations = attributes.get("dilations") or [1, 1]
        pads = attributes.get("pads") or [0] * 4
        mode = attributes.get("auto_pad", "NOTSET")
        if (mode.decode() if isinstance(mode, bytes) else mode) not in ("NOTSET", "VALID"):
            raise Untranslatable("auto_pad of sizes that are not known")
        if any(p < 0 for p in pads):
            raise Untranslatable("NNAPI has no negative padding")
        return cls(_pair(kernel), _pair(strides), _pair(dilations), (pads[1], pads[3], pads[0], pads[2]))

    def padding(self, w: Writer) -> list[Tensor]:
        return [w.int32(p) for p in self.pads]

    def steps(self, w: Writer) -> list[Tensor]:
        """Strides, width first."""
        return [w.int32(self.strides[1]), w.int32(self.strides[0])]


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return int(values[0]), int(values[1])


def image(w: Writer, name: str) -> tuple[Tensor, str]:
    """A value of rank 4 as convolutions read it, and the layout."""
    layout = PLAIN if w.target.nchw else NHWC
    return w.value(name, layout), layout


def image_dims(w: Writer, name: str, layout: str) -> tuple[int, ...]:
    dims = w.shape(name)
    return tuple(dims[p] for p in TO_NHWC) if layout == NHWC else dims


@dataclass(frozen=True)
class Filters:
    """A convolution: operands and where its windows lie. What is quantised and what not differs in the operands alone.

    Attributes:
        x: in `layout`.
        weights: as ONNX has them, [M, C / groups, height, width]; an array, or an operand of floats.
        weights_type: of their operand, where they are an array.
        bias: of M elements.
        result: type of the result.
    """

    x: Tensor
    weights: np.ndarray | Tensor
    weights_type: OperandType
    bias: Tensor
    window: Window
    groups: int
    layout: str
    result: OperandType


def _filters(w: Writer, f: Filters, perm: Sequence[int]) -> Tensor:
    """The weights with their axes in NNAPI's order."""
    if isinstance(f.weights, Tensor):
        return transposed(w, f.weights, perm)
    array = np.ascontiguousarray(f.weights.transpose(perm))
    kind = f.weights_type
    channel_dim = list(perm).index(0) if kind.channel_scales else 0
    typed = OperandType(kind.kind, array.shape, kind.scale, kind.zero_point, channel_dim, kind.channel_scales)
    return w.constant(array, typed)


def convolution(w: Writer, f: Filters, fuse: Tensor) -> Tensor:
    """CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D, or one convolution for each group.

    Raises:
        Untranslatable: there is none of these for it at the target's feature level.
    """
    shape = f.weights.dims if isinstance(f.weights, Tensor) else f.weights.shape
    window = f.window
    dilated = window.dilations != (1, 1)
    channels = f.x.dims[3] if f.layout == NHWC else f.x.dims[1]
    common = [*window.padding(w), *window.steps(w)]
    tail: list[Tensor] = []
    if f.layout == PLAIN or dilated:
        if w.target.level < 29:
            raise Untranslatable("NNAPI has dilations and NCHW from feature level 29 on", "no-kernel")
        tail = [w.boolean(f.layout == PLAIN)]
        if dilated:
            tail += [w.int32(window.dilations[1]), w.int32(window.dilations[0])]
    if f.groups == 1:
        return w.call("CONV_2D", [f.x, _filters(w, f, (0, 2, 3, 1)), f.bias, *common, fuse, *tail], f.result)
    if shape[1] == 1 and f.groups == channels:
        weights = _filters(w, f, (1, 2, 3, 0))
        multiplier = w.int32(shape[0] // channels)
        return w.call("DEPTHWISE_CONV_2D", [f.x, weights, f.bias, *common, multiplier, fuse, *tail], f.result)
    if not dilated:
        given = [f.x, _filters(w, f, (0, 2, 3, 1)), f.bias, *common, w.int32(f.groups), fuse, w.boolean(f.layout == PLAIN)]
        return w.call("GROUPED_CONV_2D", given, f.result)
    return _group_by_group(w, f, fuse)


def _group_by_group(w: Writer, f: Filters, fuse: Tensor) -> Tensor:
    if f.groups > _MOST_GROUPS or not isinstance(f.weights, np.ndarray) or f.weights_type.channel_scales:
        raise Untranslatable("NNAPI has no dilated convolution in groups")
    axis = 3 if f.layout == NHWC else 1
    bias = w.model.operands[f.bias.index].value
    if bias is None:
        raise Untranslatable("NNAPI has no dilated convolution in groups")
    parts = []
    for x, own, b in zip(split(w, f.x, axis, f.groups), np.split(f.weights, f.groups), np.split(bias, f.groups), strict=True):
        dims = list(f.result.dims)
        dims[axis] //= f.groups
        kind = f.bias.type.of(b.shape)
        one = Filters(x, own, f.weights_type, w.constant(b, kind), f.window, 1, f.layout, f.result.of(dims))
        parts.append(convolution(w, one, fuse))
    return concatenated(w, parts, axis)


def bias_of(w: Writer, node: Node, units: int, like: Tensor) -> Tensor:
    """A node's third input, or zeros."""
    if len(node.inputs) > 2 and node.inputs[2]:
        return w.value(node.inputs[2])
    return w.constant(np.zeros(units, like.kind.numpy), like.type.of((units,)))


def _conv(w: Writer, node: Node) -> None:
    need_real(w, node)
    name = node.inputs[1]
    shape = w.shape(name)
    window = Window.of(node, shape[2:])
    x, layout = image(w, node.inputs[0])
    array = w.array(name)
    weights = array if array is not None else w.value(name)
    fuse, out = w.activation(node)
    result = x.type.of(image_dims(w, node.outputs[0], layout))
    bias = bias_of(w, node, shape[0], x)
    groups = int(node.attributes.get("group", 1))
    found = Filters(x, weights, OperandType(x.kind), bias, window, groups, layout, result)
    w.set(out, convolution(w, found, fuse), layout)


def _conv_transpose(w: Writer, node: Node) -> None:
    """ONNX's weights are [C, M / groups, height, width], NNAPI's [M, height, width, C]."""
    need_real(w, node)
    name, groups = node.inputs[1], int(node.attributes.get("group", 1))
    shape = w.shape(name)
    window = Window.of(Node(node.op_type, node.inputs, node.outputs, {**node.attributes, "pads": None, "auto_pad": "VALID"}),
                       shape[2:])  # fmt: skip
    if window.dilations != (1, 1):
        raise Untranslatable("NNAPI has no dilated transposed convolution")
    x, layout = image(w, node.inputs[0])
    dims = image_dims(w, node.outputs[0], layout)
    pads = _transposed_pads(w, node, window)
    fuse, out = w.activation(node)
    bias = bias_of(w, node, shape[1] * groups, x)
    steps = [w.int32(p) for p in pads] + window.steps(w)
    weights = w.value(name)
    channel = 3 if layout == NHWC else 1
    parts = []
    pieces = zip(split(w, x, channel, groups), range(groups), strict=True)
    for piece, g in pieces:
        size = shape[0] // groups
        own = weights if groups == 1 else _rows(w, weights, g * size, size)
        own_bias = bias if groups == 1 else _rows(w, bias, g * shape[1], shape[1])
        own_dims = list(dims)
        own_dims[channel] = shape[1]
        given = [piece, transposed(w, own, (1, 2, 3, 0)), own_bias, *steps, fuse, w.boolean(layout == PLAIN)]
        parts.append(w.call("TRANSPOSE_CONV_2D", given, x.type.of(own_dims)))
    w.set(out, concatenated(w, parts, channel), layout)


def _rows(w: Writer, x: Tensor, start: int, count: int) -> Tensor:
    array = w.model.operands[x.index].value
    if array is not None:
        return w.constant(array[start : start + count], x.type.of((count, *x.dims[1:])))
    return part(w, x, 0, start, count)


def _transposed_pads(w: Writer, node: Node, window: Window) -> list[int]:
    """What is cut off: left, right, top, bottom, from the sizes of the result."""
    given = node.attributes.get("pads") or [0, 0, 0, 0]
    mode = node.attributes.get("auto_pad", "NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    x, y = w.shape(node.inputs[0])[2:], w.shape(node.outputs[0])[2:]
    found = []
    for i in (1, 0):
        full = (x[i] - 1) * window.strides[i] + window.kernel[i]
        total = full - y[i]
        if mode in ("SAME_UPPER", "SAME_LOWER") or node.attributes.get("output_shape"):
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        else:
            low = given[i]
        found += [low, total - low]
    if any(p < 0 for p in found):
        raise Untranslatable("NNAPI's TRANSPOSE_CONV_2D makes no result beyond the last window")
    return found


# pools


def pool_window(w: Writer, node: Node) -> Window:
    """The windows of a pool, padded at the end as far as the result's sizes reach (`ceil_mode`)."""
    window = Window.of(node, node.attributes["kernel_shape"])
    if window.dilations != (1, 1):
        raise Untranslatable("NNAPI has no dilated pools")
    x, y = w.shape(node.inputs[0])[2:], w.shape(node.outputs[0])[2:]
    low = (window.pads[2], window.pads[0])
    high = [max(0, (y[i] - 1) * window.strides[i] + window.kernel[i] - x[i] - low[i]) for i in (0, 1)]
    if any(a >= k or b >= k for a, b, k in zip(low, high, window.kernel, strict=True)):
        raise Untranslatable("NNAPI has no windows that lie in the padding alone")
    return Window(window.kernel, window.strides, window.dilations, (low[1], high[1], low[0], high[0]))


def pooled(w: Writer, name: str, x: Tensor, window: Window, layout: str, result: OperandType) -> Tensor:
    given = [x, *window.padding(w), *window.steps(w), w.int32(window.kernel[1]), w.int32(window.kernel[0]), w.int32(0)]
    if layout == PLAIN:
        given.append(w.boolean(True))
    return w.call(name, given, result)


def _max_pool(w: Writer, node: Node) -> None:
    if any(node.outputs[1:]):
        raise Untranslatable("NNAPI's MAX_POOL_2D gives no indices")
    window = pool_window(w, node)
    x, layout = image(w, node.inputs[0])
    result = x.type.of(image_dims(w, node.outputs[0], layout))
    w.set(node.outputs[0], pooled(w, "MAX_POOL_2D", x, window, layout, result), layout)


def _average_pool(w: Writer, node: Node) -> None:
    need_real(w, node)
    window = pool_window(w, node)
    x, layout = image(w, node.inputs[0])
    result = x.type.of(image_dims(w, node.outputs[0], layout))
    pads = window.pads
    if node.attributes.get("count_include_pad", 0) and any(pads):
        given = Window.of(node, node.attributes["kernel_shape"]).pads
        if pads[1] > given[1] or pads[3] > given[3]:
            raise Untranslatable("NNAPI cannot count padding of windows that reach beyond it")
        x = _padded(w, x, pads, layout)
        window = Window(window.kernel, window.strides, window.dilations, (0, 0, 0, 0))
    w.set(node.outputs[0], pooled(w, "AVERAGE_POOL_2D", x, window, layout, result), layout)


def _padded(w: Writer, x: Tensor, pads: Sequence[int], layout: str) -> Tensor:
    left, right, top, bottom = pads
    table = np.zeros((4, 2), np.int32)
    row = 1 if layout == NHWC else 2
    table[row], table[row + 1] = (top, bottom), (left, right)
    dims = [int(d + a + b) for d, (a, b) in zip(x.dims, table, strict=True)]
    return w.call("PAD", [x, w.constant(table)], x.type.of(dims))


def _lp_pool(w: Writer, node: Node) -> None:
    """The root of the mean square times the root of the number of elements."""
    need_real(w, node)
    window = pool_window(w, node)
    if int(node.attributes.get("p", 2)) != 2 or any(window.pads):
        raise Untranslatable("NNAPI has pools of the 2-norm without padding")
    x, layout = image(w, node.inputs[0])
    result = x.type.of(image_dims(w, node.outputs[0], layout))
    mean = pooled(w, "L2_POOL_2D", x, window, layout, result)
    w.set(node.outputs[0], times(w, mean, math.sqrt(window.kernel[0] * window.kernel[1])), layout)


def _global_pool(name: str) -> Lowering:
    def lower(w: Writer, node: Node) -> None:
        if name != "MAX_POOL_2D":
            need_real(w, node)
        shape = w.shape(node.inputs[0])
        if len(shape) != 4:
            axes = list(range(2, len(shape)))
            reduction = "REDUCE_MAX" if name == "MAX_POOL_2D" else "MEAN"
            w.set(node.outputs[0], reduced(w, reduction, w.value(node.inputs[0]), axes))
            return
        window = Window((shape[2], shape[3]), (1, 1), (1, 1), (0, 0, 0, 0))
        x, layout = image(w, node.inputs[0])
        result = x.type.of(image_dims(w, node.outputs[0], layout))
        w.set(node.outputs[0], pooled(w, name, x, window, layout, result), layout)

    return lower


# normalisations


def _instance_normalization(w: Writer, node: Node) -> None:
    """NNAPI's factor and shift are scalars: 1 and 0, those of the channels come after."""
    need_real(w, node)
    if len(w.shape(node.inputs[0])) != 4:
        raise Untranslatable("NNAPI has InstanceNormalization of images only")
    x, layout = image(w, node.inputs[0])
    epsilon = w.number(x, float(node.attributes.get("epsilon", 1e-5)))
    given = [x, w.number(x, 1.0), w.number(x, 0.0), epsilon, w.boolean(layout == PLAIN)]
    found = w.call("INSTANCE_NORMALIZATION", given, x.type)
    channels = x.dims[3] if layout == NHWC else x.dims[1]
    dims = (channels,) if layout == NHWC else (channels, 1, 1)
    for operation, name in (("MUL", node.inputs[1]), ("ADD", node.inputs[2])):
        found = binary(w, operation, found, w.reshaped(w.value(name), dims))
    w.set(node.outputs[0], found, layout)


def _lrn(w: Writer, node: Node) -> None:
    """ONNX divides alpha by the size; NNAPI has 2 radius + 1 channels."""
    need_real(w, node)
    size = int(node.attributes["size"])
    if len(w.shape(node.inputs[0])) != 4 or size % 2 == 0:
        raise Untranslatable("NNAPI has LRN of images and odd sizes only")
    x = w.value(node.inputs[0], NHWC)
    numbers = [
        float(node.attributes.get("bias", 1.0)), float(node.attributes.get("alpha", 1e-4)) / size,
        float(node.attributes.get("beta", 0.75)),
    ]  # fmt: skip
    given = [x, w.int32(size // 2), *(w.number(x, v) for v in numbers)]
    w.set(node.outputs[0], w.call("LOCAL_RESPONSE_NORMALIZATION", given, x.type), NHWC)


# images made larger or smaller


def _resize(w: Writer, node: Node) -> None:
    need_real(w, node)
    shape, target = w.shape(node.inputs[0]), w.shape(node.outputs[0])
    mode = _text(node, "mode", "nearest")
    if node.attributes.get("antialias", 0) or mode not in ("nearest", "linear"):
        raise Untranslatable(f"NNAPI has no Resize of mode {mode} or with antialiasing")
    if _text(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise Untranslatable("NNAPI has no Resize of a region")
    moved = [i for i, (a, b) in enumerate(zip(shape, target, strict=True)) if a != b]
    grids = [_positions(w, node, i, shape[i], target[i]) for i in range(len(shape))]
    if mode == "nearest":
        _nearest(w, node, [(i, _nearest_indices(node, grids[i], shape[i])) for i in range(len(shape))])
        return
    moved = [i for i in range(len(shape)) if shape[i] != target[i] or not np.allclose(grids[i], np.arange(target[i]))]
    _linear(w, node, [(i, _linear_matrix(grids[i], shape[i])) for i in moved])


def _text(node: Node, name: str, default: str) -> str:
    value = node.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _scale(w: Writer, node: Node, axis: int, size: int, target: int) -> float:
    """The scale of an axis: as given, or from sizes."""
    if node.op_type == "Upsample":
        scales = node.attributes.get("scales")
        if scales is None:
            found = w.array(node.inputs[1])
            scales = None if found is None else found.tolist()
    else:
        index = 1 if node.version < 11 else 2
        found = w.array(node.inputs[index]) if len(node.inputs) > index and node.inputs[index] else None
        scales = found.tolist() if found is not None and found.size else None
    if scales is None:
        if node.op_type == "Resize" and len(node.inputs) > 3 and node.inputs[3]:
            if _text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
                raise Untranslatable("NNAPI has no Resize that keeps the aspect ratio")
            return target / size
        raise Untranslatable("NNAPI needs the scales of Resize as constants")
    axes = node.attributes.get("axes")
    if axes is None:
        return float(scales[axis])
    rank = len(w.shape(node.inputs[0]))
    places = [a % rank for a in axes]
    return float(scales[places.index(axis)]) if axis in places else 1.0


def _positions(w: Writer, node: Node, axis: int, size: int, target: int) -> np.ndarray:
    """Where each element of an axis of the result lies in the input, as ONNX says."""
    scale = float(np.float32(_scale(w, node, axis, size, target)))
    places = np.arange(target, dtype=np.float64)
    old = node.op_type == "Upsample" or node.version < 11
    mode = "asymmetric" if old else _text(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return places / scale
    if mode == "align_corners":
        return places * (size - 1) / (target - 1) if target > 1 else places * 0
    if mode == "pytorch_half_pixel" and target == 1:
        return places * 0
    if mode == "half_pixel_symmetric":
        offset = size / 2 * (1 - target / (scale * size))
        return offset + (places + 0.5) / scale - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (places + 0.5) / scale - 0.5
    raise Untranslatable(f"NNAPI has no Resize of the coordinates {mode}")


def _nearest_indices(node: Node, at: np.ndarray, size: int) -> np.ndarray:
    old = node.op_type == "Upsample" or node.version < 11
    mode = "floor" if old else _text(node, "nearest_mode", "round_prefer_floor")
    if mode == "round_prefer_floor":
        found = np.ceil(at - 0.5)
    elif mode == "round_prefer_ceil":
        found = np.floor(at + 0.5)
    else:
        found = np.ceil(at) if mode == "ceil" else np.floor(at)
    return np.clip(found, 0, size - 1).astype(np.int32)


def _nearest(w: Writer, node: Node, indices: list[tuple[int, np.ndarray]]) -> None:
    """RESIZE_NEAREST_NEIGHBOR where it takes the same elements, else a GATHER for each axis."""
    shape = w.shape(node.inputs[0])
    changed = [(i, found) for i, found in indices if not np.array_equal(found, np.arange(shape[i]))]
    if len(shape) == 4 and changed and all(i >= 2 for i, _ in changed):
        plain = all(_is_floor_of_ratio(found, shape[i]) for i, found in indices if i >= 2)
        half = all(_is_floor_of_centre(found, shape[i]) for i, found in indices if i >= 2) and w.target.level >= 30
        if plain or half:
            _resized(w, node, "RESIZE_NEAREST_NEIGHBOR", (False, not plain))
            return
    layout = w.layout(node.inputs[0])
    x = w.value(node.inputs[0], layout)
    for i, found in changed:
        x = gathered(w, x, AXIS_IN_NHWC[i] if layout == NHWC else i, w.vector(found.tolist()))
    w.set(node.outputs[0], x, layout)


def _is_floor_of_ratio(indices: np.ndarray, size: int) -> bool:
    places = np.arange(len(indices), dtype=np.float32)
    return np.array_equal(indices, np.minimum(np.floor(places * np.float32(size / len(indices))), size - 1))


def _is_floor_of_centre(indices: np.ndarray, size: int) -> bool:
    places = np.arange(len(indices), dtype=np.float32) + np.float32(0.5)
    return np.array_equal(indices, np.minimum(np.floor(places * np.float32(size / len(indices))), size - 1))


def _resized(w: Writer, node: Node, operation: str, modes: tuple[bool, bool]) -> None:
    """`modes`: corners aligned, pixels' centres at halves."""
    x, layout = image(w, node.inputs[0])
    dims = image_dims(w, node.outputs[0], layout)
    height, width = dims[1:3] if layout == NHWC else dims[2:4]
    given = [x, w.int32(width), w.int32(height)]
    if layout == PLAIN or any(modes) or operation == "RESIZE_NEAREST_NEIGHBOR":
        given.append(w.boolean(layout == PLAIN))
    if any(modes):
        given += [w.boolean(m) for m in modes]
    w.set(node.outputs[0], w.call(operation, given, x.type.of(dims)), layout)


def _linear_matrix(at: np.ndarray, size: int) -> np.ndarray:
    """Shares [target, size] of the input's elements in the result's."""
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(int)
    share = at - low
    found = np.zeros((len(at), size))
    rows = np.arange(len(at))
    np.add.at(found, (rows, low), 1 - share)
    np.add.at(found, (rows, np.minimum(low + 1, size - 1)), share)
    return found


def _linear(w: Writer, node: Node, matrices: list[tuple[int, np.ndarray]]) -> None:
    """RESIZE_BILINEAR where it has the same shares, else a product with these for each axis."""
    shape = w.shape(node.inputs[0])
    if len(shape) == 4 and matrices and all(i >= 2 for i, _ in matrices):
        for modes in ((False, False), (True, False), (False, True)):
            if any(modes) and w.target.level < 30:
                continue
            if all(np.allclose(_bilinear_matrix(len(m), shape[i], modes), m, atol=1e-6) for i, m in matrices):
                _resized(w, node, "RESIZE_BILINEAR", modes)
                return
    x = w.value(node.inputs[0])
    for i, matrix in matrices:
        order = [a for a in range(x.rank) if a != i] + [i]
        rows = transposed(w, x, order)
        made = product(w, rows, w.constant(matrix.astype(x.kind.numpy)), None)
        back = [order.index(a) for a in range(x.rank)]
        x = transposed(w, w.reshaped(made, (*rows.dims[:-1], len(matrix))), back)
    w.set(node.outputs[0], x)


def _bilinear_matrix(target: int, size: int, modes: tuple[bool, bool]) -> np.ndarray:
    places = np.arange(target, dtype=np.float64)
    align, half = modes
    scale = (size - 1) / (target - 1) if align and target > 1 else size / target
    return _linear_matrix((places + 0.5) * scale - 0.5 if half else places * scale, size)


def _depth_to_space(w: Writer, node: Node) -> None:
    """NNAPI's order of channels is DCR; for CRD they are put into that order first."""
    block = int(node.attributes["blocksize"])
    x, layout = image(w, node.inputs[0])
    if _text(node, "mode", "DCR") == "CRD":
        channels = w.shape(node.inputs[0])[1]
        order = np.arange(channels).reshape(channels // (block * block), block, block).transpose(1, 2, 0).reshape(-1)
        x = gathered(w, x, 3 if layout == NHWC else 1, w.vector(order.tolist()))
    _blocks(w, node, "DEPTH_TO_SPACE", x, layout)


def _space_to_depth(w: Writer, node: Node) -> None:
    if _text(node, "mode", "DCR") != "DCR":
        raise Untranslatable("NNAPI has SpaceToDepth in the order DCR only")
    x, layout = image(w, node.inputs[0])
    _blocks(w, node, "SPACE_TO_DEPTH", x, layout)


def _blocks(w: Writer, node: Node, operation: str, x: Tensor, layout: str) -> None:
    given = [x, w.int32(int(node.attributes["blocksize"]))]
    if layout == PLAIN:
        given.append(w.boolean(True))
    w.set(node.outputs[0], w.call(operation, given, x.type.of(image_dims(w, node.outputs[0], layout))), layout)


def _group_normalization(w: Writer, node: Node) -> None:
    """Of each group: (x - mean) / sqrt(variance + epsilon), then the channels' factors and shifts."""
    need_real(w, node)
    shape = w.shape(node.inputs[0])
    groups = int(node.attributes["num_groups"])
    if node.version < 21:
        raise Untranslatable("GroupNormalization of opset 18 has factors for groups")
    x = w.reshaped(w.value(node.inputs[0]), (shape[0] * groups, math.prod(shape[1:]) // groups))
    found = w.reshaped(normalized(w, x, [1], float(node.attributes.get("epsilon", 1e-5))), (*shape[:2], math.prod(shape[2:])))
    for operation, name in (("MUL", node.inputs[1]), ("ADD", node.inputs[2])):
        found = binary(w, operation, found, w.reshaped(w.value(name), (shape[1], 1)))
    w.set(node.outputs[0], found)


def normalized(w: Writer, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over some axes."""
    return moments(w, x, axes, epsilon)[0]


def moments(w: Writer, x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """What is normalised over some axes, the mean, and 1 / sqrt(variance + epsilon)."""
    mean = reduced(w, "MEAN", x, axes)
    centred = binary(w, "SUB", x, mean)
    variance = reduced(w, "MEAN", binary(w, "MUL", centred, centred), axes)
    inverse = unary(w, "RSQRT", plus(w, variance, epsilon))
    return binary(w, "MUL", centred, inverse), mean, inverse


LOWERINGS: dict[str, Lowering] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global_pool("AVERAGE_POOL_2D"),
    "GlobalMaxPool": _global_pool("MAX_POOL_2D"),
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "LRN": _lrn,
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
