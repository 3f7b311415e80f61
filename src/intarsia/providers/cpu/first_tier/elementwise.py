"""Element-wise operators: transcendental ones by kernels, the others by NumPy; results lie in memory as their operands do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, is_float32, lies_channels_last, like, new

BINARY: Mapping[str, Callable[..., np.ndarray]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_FEW = 4096  # elements that one thread computes as soon
_ZERO, _INFINITY = np.float32(0), np.float32(np.inf)


def unary(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    name = node.op_type
    if name == "Gelu" and node.attributes.get("approximate", "none") in ("tanh", b"tanh"):
        name = "GeluTanh"
    if name == "Swish" and node.attributes.get("alpha", 1.0) != 1.0:
        return None
    kernel = kernel_specs.unary_sizes(name)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x):
            return None
        x, y = _like(x)
        calls(name, kernel.arguments({0: address_of(x)}, address_of(y), {"n": x.size}), serial=x.size < _FEW)
        return [y]

    return run


def _like(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`x` without gaps in memory, and an array that lies as it does."""
    if not lies_channels_last(x):
        x = np.asarray(x, order="C")  # `ascontiguousarray` makes an axis of none
    return x, like(x, x.shape)


def relu(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    in_place = node.inputs[0] in calls.spare

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x):
            return None
        x, y = (x, x) if in_place else _like(x)
        return [_clipped(x, _ZERO, None, y)]

    return run


def _clipped(x: np.ndarray, low: Any, high: Any, y: np.ndarray) -> np.ndarray:
    """`x` between scalars, in `y`: by one pass of vectors where it is long, which NumPy has in `clip`, not in `maximum`."""
    if x.size >= _FEW:
        return np.clip(x, -_INFINITY if low is None else low, _INFINITY if high is None else high, out=y)
    found = np.maximum(x, low, out=y) if low is not None else x
    return np.minimum(found, high, out=y) if high is not None else found


def clip(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Between scalars; of opset 11 on, where bounds are operands."""
    if node.version < 11:
        return None
    in_place = node.inputs[0] in calls.spare

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x, *bounds = operands
        low, high = (*bounds, None, None)[:2]
        given = [b for b in (low, high) if b is not None]
        if not is_float32(x, *given) or any(b.size != 1 for b in given):
            return None
        x, y = (x, x) if in_place else _like(x)
        if not given:
            return [x]
        low, high = (None if bound is None else bound.reshape(()) for bound in (low, high))
        return [_clipped(x, low, high, y)]

    return run


def binary(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Of float32; sizes that do not broadcast are the reference's to name."""
    if node.version < 7:  # with an axis to broadcast along
        return None
    function = BINARY[node.op_type]
    in_place = [name in calls.spare for name in node.inputs]

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        a, b = operands
        if not is_float32(a, b):
            return None
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return None
        for x, spare in zip((a, b), in_place, strict=True):
            if spare and x.shape == shape:
                return [function(a, b, out=x)]
        of_result = next((x for x in (a, b) if x.shape == shape), None)
        y = like(of_result, shape) if of_result is not None else new(shape)
        return [function(a, b, out=y)]

    return run


def quantize(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """To 8 or 16 bits, by one scale."""
    if set(node.attributes) - {"axis"} or len(node.inputs) != 3:
        return None

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x, scale, point = operands
        if not is_float32(x, scale) or scale.size != 1 or not _is_narrow(point):
            return None
        x, wide = _like(x)
        np.divide(x, scale.reshape(()), out=wide)
        np.rint(wide, out=wide)
        if point.reshape(()):
            np.add(wide, np.float32(point.reshape(())), out=wide)
        low, high = np.iinfo(point.dtype).min, np.iinfo(point.dtype).max
        np.clip(wide, np.float32(low), np.float32(high), out=wide)
        if np.isnan(wide.max()):
            return None
        return [wide.astype(point.dtype)]

    return run


def dequantize(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """From 8 or 16 bits, by one scale."""
    if set(node.attributes) - {"axis"} or len(node.inputs) != 3:
        return None

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x, scale, point = operands
        if not is_float32(scale) or scale.size != 1 or not _is_narrow(point) or getattr(x, "dtype", None) != point.dtype:
            return None
        wide = x.astype(np.float32)
        if point.reshape(()):
            wide -= np.float32(point.reshape(()))
        wide *= scale.reshape(())
        return [wide]

    return run


def _is_narrow(point: object) -> bool:
    """Whether it is one zero point of 8 or 16 bits."""
    narrow = (np.uint8, np.int8, np.uint16, np.int16)
    return isinstance(point, np.ndarray) and point.size == 1 and point.dtype in narrow
