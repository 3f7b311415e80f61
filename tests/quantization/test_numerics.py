"""Scales, zero points, rounding and packing against float64 by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import InvalidArgument, NotImplemented
from intarsia.quantization.numerics.affine import (
    AffineParameters,
    RangeRule,
    affine_of_range,
    dequantized,
    quantized,
    snapped_to_middle,
    tensor_parameters,
)
from intarsia.quantization.numerics.bit_packing import packed_4bit, unpacked_4bit
from intarsia.quantization.numerics.block_weights import BlockFormat, nearest
from intarsia.quantization.numerics.gptq import GptqSettings, InputMoments, gptq
from intarsia.quantization.numerics.half_quadratic import half_quadratic
from intarsia.quantization.numerics.integer_bias import quantized_bias, widened_weight_scale
from intarsia.quantization.numerics.k_quants import least_squares
from intarsia.quantization.numerics.quant_types import FLOAT8, INTEGER_TYPES, QuantType, integer_type

KINDS = sorted(INTEGER_TYPES)
ends = st.floats(-1e6, 1e6, width=32)


@given(st.sampled_from(KINDS), ends, ends, st.booleans(), st.booleans())
def test_every_value_of_a_range_is_within_half_a_step(kind: int, a: float, b: float, symmetric: bool, reduced: bool) -> None:
    least, most = np.float32(min(a, b)), np.float32(max(a, b))
    own = integer_type(kind)
    low, high = own.bounds(symmetric=symmetric, reduced=reduced)
    points, scales = affine_of_range(least, most, (low, high), symmetric)
    assert low <= int(points) <= high
    scale, point = float(scales), int(points)
    top = max(abs(least), abs(most)) if symmetric else max(float(most), 0.0)
    bottom = -top if symmetric else min(float(least), 0.0)
    if top - bottom < np.finfo(np.float32).tiny * (high - low):
        assert (scale, point) == (1.0, 0)
        return
    for value in (least, most, 0.0):
        code = np.clip(np.round(value / scale) + point, low, high)
        assert abs((code - point) * scale - value) <= scale * 0.51 + abs(value) * 1e-6
    assert (0 - point) * scale + point * scale == 0


def test_ranges_of_channels_are_those_of_each_alone() -> None:
    values = np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32)
    together = tensor_parameters(values, QuantType.QUInt8.tensor_type, RangeRule(False, axis=1))
    for i in range(3):
        alone = tensor_parameters(values[:, i], QuantType.QUInt8.tensor_type, RangeRule(False))
        assert together.scale[i] == alone.scale
        assert together.zero_point[i] == alone.zero_point
        assert np.array_equal(quantized(values, together)[:, i], quantized(values[:, i], alone))


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_that_of_float64(kind: int) -> None:
    values = np.random.default_rng(1).standard_normal((300, 700)).astype(np.float32)  # more than one slice
    found = tensor_parameters(values, kind, RangeRule(True, axis=0))
    codes = quantized(values, found)
    own = integer_type(kind)
    scale, point = found.scale[:, None], found.zero_point.astype(np.int64)[:, None]
    exact = np.clip(np.rint((values / scale).astype(np.float64)) + point, own.low, own.high)
    assert codes.dtype == own.dtype
    assert np.array_equal(codes.astype(np.int64), exact)
    assert np.abs(dequantized(codes, found) - values).max() <= found.scale.max() * 0.51


def test_blocks_have_scales_of_their_own() -> None:
    values = np.random.default_rng(2).standard_normal((10, 6)).astype(np.float32)
    values[4:8] *= 100
    found = tensor_parameters(values, QuantType.QInt8.tensor_type, RangeRule(True, axis=0, block=4))
    assert found.scale.shape == found.zero_point.shape == (3, 6)
    assert np.abs(dequantized(quantized(values, found), found) - values)[:4].max() < 0.02
    with pytest.raises(NotImplemented, match=r"expected a matrix, got a tensor of shape \[2, 2, 2\]"):
        tensor_parameters(np.zeros((2, 2, 2), np.float32), 3, RangeRule(True, axis=0, block=2))


def test_float8_is_saturated_and_keeps_nan() -> None:
    own = AffineParameters(np.float32(1), np.zeros((), ml_dtypes.float8_e4m3fn), FLOAT8)
    codes = quantized(np.array([1000.0, -1000.0, np.nan, 1.0625], np.float32), own).astype(np.float32)
    assert codes[0] == 448
    assert codes[1] == -448
    assert np.isnan(codes[2])
    assert codes[3] == 1.0  # half to even of 1 and 1.125
    with pytest.raises(InvalidArgument, match=r"reduce_range: expected False for float8"):
        tensor_parameters(np.ones(3, np.float32), FLOAT8, RangeRule(True, reduced=True))


def test_zero_points_snap_to_the_middle() -> None:
    point, scale = snapped_to_middle(-1.0, 3.0)
    assert point == 128
    assert scale == np.float32(3 / 127)
    assert snapped_to_middle(0.5, 2.55)[0] == 0
    assert snapped_to_middle(0.0, 0.0) == (0, np.float32(1 / 255))


def test_a_scale_becomes_large_enough_for_a_bias() -> None:
    bias = np.array([1e3, 1e-3], np.float32)
    scale = widened_weight_scale(np.float32(1e-5), np.array([1e-6, 1e-2], np.float32), bias)
    assert scale is not None
    assert scale[1] == np.float32(1e-2)
    codes, clipped = quantized_bias(bias, np.float32(1e-5) * scale)
    assert not clipped
    assert np.allclose(codes * (1e-5 * scale.astype(np.float64)), bias, rtol=1e-3, atol=1e-7)
    assert widened_weight_scale(np.float32(1), np.float32(1), bias) is None
    assert quantized_bias(bias, np.float32(1e-10))[1]


@given(st.lists(st.integers(-8, 7), max_size=9))
def test_packed_nibbles_come_back(values: list[int]) -> None:
    own = np.array(values, np.int8)
    assert np.array_equal(unpacked_4bit(packed_4bit(own), own.size, signed=True), own)


def test_nearest_is_what_onnxruntime_packs() -> None:
    state = pytest.importorskip("onnxruntime.capi._pybind_state", reason="a peer's packing")
    for bits in (2, 4, 8):
        for symmetric in (False, True):
            weights = np.random.default_rng(bits).standard_normal((70, 5)).astype(np.float32)
            blocks = nearest(weights, BlockFormat(bits, 32, symmetric))
            codes = np.zeros((5, 3, 32 * bits // 8), np.uint8)
            scales, points = np.zeros((5, 3), np.float32), np.zeros((5, -(-3 * bits // 8)), np.uint8)
            padded = np.concatenate([weights, np.zeros((26, 5), np.float32)])
            getattr(state, f"quantize_matmul_{bits}bits")(codes, padded, scales, points, 32, 5, 70, symmetric)
            assert np.array_equal(blocks.scales.T, scales)
            used = blocks.packed_columns.reshape(5, -1)[:, : 70 * bits // 8]
            assert np.array_equal(used, codes.reshape(5, -1)[:, : 70 * bits // 8])
            if not symmetric:
                assert np.array_equal(blocks.packed_points(), points)


def error(weights: np.ndarray, found: np.ndarray, inputs: np.ndarray) -> float:
    return float(np.square(inputs @ (weights - found)).mean())


def test_searches_beat_rounding_to_nearest() -> None:
    """GPTQ on the inputs that it saw, half-quadratic and k-quants by the weights alone."""
    numbers = np.random.default_rng(3)
    weights = (numbers.standard_normal((96, 24)) * np.exp(numbers.standard_normal((96, 1)))).astype(np.float32)
    inputs = (numbers.standard_normal((400, 96)) @ numbers.standard_normal((96, 96))).astype(np.float32)
    form = BlockFormat(4, 32)
    usual = nearest(weights, form).dequantized(96)
    moments = InputMoments()
    moments.add(inputs)
    for by_activity in (False, True):
        compensated = gptq(weights, form, moments, GptqSettings(by_activity=by_activity)).dequantized(96)
        assert error(weights, compensated, inputs) < 0.6 * error(weights, usual, inputs)
    searched = least_squares(weights, form).dequantized(96)
    assert np.square(searched - weights).mean() < np.square(usual - weights).mean()
    sparse = half_quadratic(weights, form).dequantized(96)
    assert np.abs(sparse - weights).mean() < np.abs(usual - weights).mean()


def test_gptq_without_moments_rounds_to_nearest() -> None:
    weights = np.ones((8, 2), np.float32)
    assert np.array_equal(
        gptq(weights, BlockFormat(4, 8), InputMoments(), GptqSettings()).codes, nearest(weights, BlockFormat(4, 8)).codes
    )


def test_errors() -> None:
    with pytest.raises(InvalidArgument, match=r"QuantType: expected one of QInt8, .*, got 'int8'"):
        QuantType.from_string("int8")
    with pytest.raises(InvalidArgument, match=r"quantised tensors have one of the types .*; got DOUBLE"):
        integer_type(11)
    with pytest.raises(InvalidArgument, match=r"expected 2, 4 or 8 bits, got 3"):
        BlockFormat(3)
    with pytest.raises(InvalidArgument, match=r"expected blocks of 8 or more that fill bytes, got 4"):
        BlockFormat(4, 4)
    with pytest.raises(InvalidArgument, match=r"expected a range around 0, got \[1, 5\]"):
        affine_of_range(np.float32(0), np.float32(1), (1, 5), False)
