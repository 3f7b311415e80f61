"""Quantisation of every type: per tensor, per axis, in blocks; products of quantised operands."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, shapes
from hypothesis import given
from hypothesis import strategies as st
from test_elementwise import FLOAT8, NARROW
from test_movement import constants

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, *NARROW)
SIDES = (0, 1, 2, 3, 4, 8, 17)


def _layout(data: st.DataObject, shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, int], Any]:
    """Shape of the scale, attributes, and how the scale spreads over x."""
    kind = data.draw(st.sampled_from(["tensor", "axis", "block"] if shape else ["tensor"]))
    if kind == "tensor":
        return (), {}, lambda s: s
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = axis % len(shape)
    if kind == "axis":
        return (shape[a],), {"axis": axis}, lambda s: s.reshape([-1 if i == a else 1 for i in range(len(shape))])
    block = data.draw(st.sampled_from([b for b in (1, 2, 3, 4, 8, 17) if shape[a] % b == 0]))
    scale_shape = tuple(d // block if i == a else d for i, d in enumerate(shape))
    return scale_shape, {"axis": axis, "block_size": block}, lambda s: np.repeat(s, block, a)


@drawn
@given(
    st.sampled_from((*INTEGERS, *FLOAT8[:4])),
    st.sampled_from((np.float32, np.float16)),
    shapes(0, 3, SIDES),
    seeds,
    st.booleans(),
    st.data(),
)
def test_quantize(target: Any, source: Any, shape: tuple[int, ...], seed: int, zero: bool, data: st.DataObject) -> None:
    scale_shape, attributes, spread = _layout(data, shape)
    scale = np.exp2(np.random.default_rng(seed).integers(-4, 2, scale_shape)).astype(source)  # exact quotients
    x = array(seed + 1, shape, source, low=-40, high=40)
    integer = target in INTEGERS
    point = array(seed + 2, scale_shape, target) if zero and integer else np.zeros(scale_shape, target)
    quotient = x.astype(np.float64) / spread(scale.astype(np.float64))
    node = Drawn("QuantizeLinear", [x, scale, point], attributes, constant=constants(data, 1, 2))
    if integer:
        info = ml_dtypes.iinfo(target)
        whole = np.rint(quotient) + spread(point.astype(np.float64))
        check(node, np.clip(whole, float(info.min), float(info.max)).astype(target))
    else:
        limit = float(ml_dtypes.finfo(target).max)
        check(node, np.clip(quotient, -limit, limit).astype(target))


@drawn
@given(
    st.sampled_from((*INTEGERS, np.int32, *FLOAT8)),
    st.sampled_from((np.float32, np.float16, ml_dtypes.bfloat16)),
    shapes(0, 3, SIDES),
    seeds,
    st.booleans(),
    st.data(),
)
def test_dequantize(source: Any, target: Any, shape: tuple[int, ...], seed: int, zero: bool, data: st.DataObject) -> None:
    scale_shape, attributes, spread = _layout(data, shape)
    scale = np.random.default_rng(seed).uniform(0.01, 1, scale_shape).astype(target)
    x = array(seed + 1, shape, source)
    point = array(seed + 2, scale_shape, source) if zero and source in INTEGERS else None
    centred = x.astype(np.float64) - (0 if point is None else spread(point.astype(np.float64)))
    expected = centred * spread(scale.astype(np.float64))
    check(Drawn("DequantizeLinear", [x, scale, point], attributes, constant=constants(data, 0, 1, 2)), expected, 2)


@drawn
@given(shapes(1, 3, SIDES[1:]), seeds, st.sampled_from([(-4, 4), (0, 9), (-9, 0), (0, 0)]))
def test_dynamic_quantize(shape: tuple[int, ...], seed: int, ends: tuple[float, float]) -> None:
    x = array(seed, shape, np.float32, low=ends[0], high=ends[1])
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32((high - low) / np.float32(255))
    divisor = scale or np.float32(1)
    zero = np.clip(np.rint(-low / divisor), 0, 255)
    ratio = x.astype(np.float64) / divisor
    if (np.abs(ratio - np.floor(ratio) - 0.5) < 1e-4).any():
        return  # a tie within float32's rounding
    y = np.clip(np.rint(ratio) + zero, 0, 255).astype(np.uint8)
    check(Drawn("DynamicQuantizeLinear", [x], outputs=3), [y, scale, zero.astype(np.uint8)])
