"""Conv, pools of windows and of whole maps, on images whose channels lie innermost.

A value keeps the shape that ONNX gives it, and lies in memory as it was computed: what a convolution gives, and what
element-wise nodes make of it, are views of [N, *spatial, C], which the next convolution reads without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import HOLES, Fast, KernelCalls, aligned, claims, is_float32, new
from intarsia.providers.cpu.first_tier.products import Product
from intarsia.providers.cpu.kernels.common.panels import packed_nbytes
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.conv import window_products
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import window_args
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Operand, Threads
from intarsia.providers.cpu.kernels.pooling import pooling_arguments
from intarsia.providers.cpu.kernels.pooling.pooling_arguments import GlobalPoolSpec

_FLOAT = DType.FLOAT
_MOST_SIZES = 64  # whose calls a convolution remembers
_NOTSET = ("NOTSET", b"NOTSET", "")


def conv(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Of constant float32 filters; None: nothing here computes it."""
    weights = constants.get(node.inputs[1])
    if weights is None or not is_float32(weights) or weights.ndim not in (3, 4, 5):
        return None
    window = _window(node, weights.shape[2:])
    group = int(node.attributes.get("group", 1))
    if window is None or group < 1 or weights.shape[0] % group:
        return None
    filters, depth = weights.shape[:2]
    bias = _bias(node, constants, filters)
    if bias is None:
        return None
    calls.packed.add(node.inputs[1])
    of = _Convolution(calls, (filters, depth), group, window, bias)
    name = f"depthwise {window.kernel} {window.strides}"
    if name in calls and depth == 1 and filters == group and not window.is_dilated:
        return of.by_channels(name, depthwise_arguments.pack_weights(weights, calls.target))
    return of.by_products(_packed_filters(weights, group, calls))


class _Window(NamedTuple):
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def is_dilated(self) -> bool:
        return set(self.dilations) != {1}


def _window(node: Node, kernel: Sequence[int]) -> _Window | None:
    """That of a node; None where its padding follows from sizes, or it is malformed."""
    found = node.attributes
    rank = len(kernel)
    given = tuple(int(k) for k in found.get("kernel_shape") or kernel)
    strides, dilations = (tuple(int(s) for s in found.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(int(p) for p in found.get("pads") or (0,) * (2 * rank))
    whole = len(strides) == len(dilations) == rank and len(pads) == 2 * rank and given == tuple(kernel)
    positive = min((*strides, *dilations, *given), default=0) > 0 and min(pads, default=0) >= 0
    explicit = found.get("auto_pad", "NOTSET") in _NOTSET
    return _Window(given, strides, dilations, pads) if whole and positive and explicit else None


def _bias(node: Node, constants: Mapping[str, np.ndarray], filters: int) -> np.ndarray | None:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(filters, np.float32)
    bias = constants.get(node.inputs[2])
    return np.ascontiguousarray(bias) if bias is not None and is_float32(bias) and bias.shape == (filters,) else None


def _packed_filters(weights: np.ndarray, group: int, calls: KernelCalls) -> np.ndarray:
    """As `window_products.pack_weights`, by the threads where there is one group."""
    tile = tile_of(_FLOAT, calls.target)
    if group > 1:
        return window_products.pack_weights(weights, group, tile)
    filters, count = len(weights), math.prod(weights.shape[1:])
    rows = np.ascontiguousarray(np.moveaxis(weights, 1, -1))
    packed = aligned(packed_nbytes(count, filters, tile))
    calls("pack", [address_of(rows), address_of(packed), count, filters, count * 4])
    return packed


def channels_last(x: np.ndarray) -> np.ndarray:
    """[N, C, *spatial] as [N, *spatial, C], contiguous."""
    return np.ascontiguousarray(x.transpose(0, *range(2, x.ndim), 1))


def channels_second(y: np.ndarray) -> np.ndarray:
    """[N, *spatial, C] as [N, C, *spatial], without a copy."""
    return y.transpose(0, y.ndim - 1, *range(1, y.ndim - 1))


class _SizedCall(NamedTuple):
    """A kernel's call for inputs of some sizes, and the sizes of what it gives, channels last."""

    shape: ConvShape
    call: Callable[..., None]
    result: tuple[int, ...]


class _Convolution:
    def __init__(self, calls: KernelCalls, filters: tuple[int, int], group: int, window: _Window, bias: np.ndarray) -> None:
        """`filters`: how many, and how many channels each sees."""
        self.calls, self.group, self.window, self.bias = calls, group, window, bias
        self.filters, self.channels = filters[0], filters[1] * group
        self._known: dict[tuple[int, ...], _SizedCall] = {}

    def _sized(self, x: object, make: Callable[[ConvShape], Callable[..., None]]) -> _SizedCall | None:
        """The call for an input of these sizes, made where they are new; None where the input does not fit."""
        window = self.window
        if not is_float32(x) or not isinstance(x, np.ndarray):
            return None
        key = (self.calls.threads, *x.shape)
        found = self._known.get(key)
        if found is not None:
            return found
        if x.ndim != len(window.kernel) + 2 or x.shape[1] != self.channels:
            return None
        shape = ConvShape(
            x.shape[0], x.shape[2:], self.channels, self.filters, window.kernel, window.strides, window.dilations, window.pads,
            self.group,
        )  # fmt: skip
        if min(shape.output) <= 0:
            return None
        if len(self._known) >= _MOST_SIZES:
            self._known.clear()
        found = self._known[key] = _SizedCall(shape, make(shape), (shape.batch, *shape.output, self.filters))
        return found

    def by_channels(self, name: str, packed: np.ndarray) -> Fast:
        """Every channel has a window of its own."""
        calls, spec = self.calls, kernel_specs.depthwise_spec(self.window.kernel, self.window.strides)

        def make(shape: ConvShape) -> Callable[..., None]:
            data = WindowOperands(HOLES[0], HOLES[1], address_of(packed), [Operand(address_of(self.bias))])
            return calls.prepared(name, depthwise_arguments.depthwise_args(spec, calls.target, shape, data))

        def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
            sized = self._sized(operands[0], make)
            if sized is None:
                return None
            x, y = channels_last(operands[0]), new(sized.result)
            sized.call(address_of(x), address_of(y))
            return [channels_second(y)]

        return run

    def by_products(self, packed: np.ndarray) -> Fast:
        """Windows are rows of a product."""
        calls, target = self.calls, self.calls.target
        spec = kernel_specs.gemm_spec("packed", bias=True)

        def make(shape: ConvShape) -> Callable[..., None]:
            data = WindowOperands(
                HOLES[0], HOLES[1], address_of(packed),
                [window_products.conv_operand("column", _FLOAT, address_of(self.bias), shape, target)],
                micro=calls.addresses["micro"], taps=window_products.displacements(shape, _FLOAT, target),
            )  # fmt: skip
            arguments = window_products.conv_args(spec, target, shape, data, Threads(calls.threads, HOLES[2]))
            return calls.prepared("gemm packed True", arguments)

        def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
            sized = self._sized(operands[0], make)
            if sized is None:
                return None
            x = self._bordered(operands[0], sized.shape) if sized.shape.needs_border else channels_last(operands[0])
            y, shared = new(sized.result), claims()
            sized.call(address_of(x), address_of(y), address_of(shared))
            return [channels_second(y)]

        return run

    def _bordered(self, x: np.ndarray, shape: ConvShape) -> np.ndarray:
        """Channels last, with zeros around."""
        rank = len(shape.spatial)
        padded = new((shape.batch, *shape.padded, self.channels))
        inside = tuple(slice(low, low + size) for low, size in zip(shape.pads[:rank], shape.spatial, strict=True))
        for axis, within in enumerate(inside):
            before: tuple[slice, ...] = (slice(None), *inside[:axis])
            padded[(*before, slice(0, within.start))] = 0
            padded[(*before, slice(within.stop, None))] = 0
        padded[(slice(None), *inside)] = np.moveaxis(x, 1, -1)
        return padded


def pool(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """MaxPool and AveragePool of usual windows."""
    found = node.attributes
    kernel = tuple(int(k) for k in found.get("kernel_shape") or ())
    window = _window(node, kernel) if kernel else None
    if window is None or len([n for n in node.outputs if n]) != 1 or found.get("ceil_mode") or found.get("storage_order"):
        return None
    strides, pads = window.strides, window.pads
    operation = "max" if node.op_type == "MaxPool" else "average"
    name = f"{operation} {kernel} {strides}"
    narrow = all(p < k for p, k in zip(pads, (*kernel, *kernel), strict=True))  # every window sees the image
    if name not in calls or window.is_dilated or not narrow:
        return None
    spec = kernel_specs.pool_spec(operation, kernel, strides)
    included = bool(found.get("count_include_pad", 0))

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x) or x.ndim != len(kernel) + 2:
            return None
        channels = x.shape[1]
        shape = ConvShape(x.shape[0], x.shape[2:], channels, channels, *window, channels)
        if min(shape.output) <= 0:
            return None
        source = channels_last(x)
        y = new((shape.batch, *shape.output, channels))
        data = WindowOperands(address_of(source), address_of(y))
        calls(name, window_args(spec, calls.target, shape, data, count_include_pad=included))
        return [channels_second(y)]

    return run


def global_pool(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    operation = "max" if node.op_type == "GlobalMaxPool" else "average"
    spec = GlobalPoolSpec(operation)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x) or x.ndim < 3:
            return None
        source = channels_last(x)
        batch, channels = x.shape[:2]
        y = new((batch, channels, *[1] * (x.ndim - 2)))
        sizes = (batch, math.prod(x.shape[2:]), channels)
        calls(f"global {operation}", pooling_arguments.global_pool_args(spec, address_of(source), address_of(y), sizes))
        return [y]

    return run


def conv_transpose(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Of windows side by side: every pixel becomes a block by one product."""
    weights = constants.get(node.inputs[1])
    if weights is None or not is_float32(weights) or weights.ndim != 4 or int(node.attributes.get("group", 1)) != 1:
        return None
    window = _window(node, weights.shape[2:])
    shaped = node.attributes.get("output_shape") or any(node.attributes.get("output_padding") or ())
    if window is None or window.kernel != window.strides or window.is_dilated or any(window.pads) or shaped:
        return None
    channels, filters, high, wide = weights.shape
    bias = _bias(node, constants, filters)
    if bias is None:
        return None
    blocks = np.ascontiguousarray(weights.transpose(0, 2, 3, 1)).reshape(channels, high * wide * filters)
    product = Product(calls, blocks, np.tile(bias, high * wide), transposed=False)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x) or x.ndim != 4 or x.shape[1] != channels:
            return None
        batch, _, height, width = x.shape
        y = new((batch, height, high, width, wide, filters))
        found = product(channels_last(x), batch * height * width).reshape(batch, height, width, high, wide, filters)
        y[:] = found.transpose(0, 1, 3, 2, 4, 5)
        return [np.moveaxis(y.reshape(batch, height * high, width * wide, filters), -1, 1)]

    return run
