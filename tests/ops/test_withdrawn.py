"""Operators that version 10 of ONNX's set withdrew, and older versions of others of the same converters: NumPy's formulas in
float64, on both providers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper as oh

import intarsia
from intarsia.errors import IntarsiaError, UnknownOperator
from intarsia.ops.framework.registry import REGISTRY, op

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
RNG = np.random.default_rng(11)
IMAGE = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
WIDE = IMAGE.astype(np.float64)


def model(op_type: str, feeds: dict[str, np.ndarray], opset: int, sizes: Any = None, **attributes: Any) -> onnx.ModelProto:
    inputs = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), x.shape if n != "x" or sizes is None else sizes)
        for n, x in feeds.items()
    ]
    node = oh.make_node(op_type, list(feeds), ["y"], name="node", **attributes)
    graph = oh.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=3)


def run(
    provider: str, op_type: str, feeds: dict[str, np.ndarray], opset: int = 9, sizes: Any = None, **given: Any
) -> np.ndarray:
    session = intarsia.InferenceSession(model(op_type, feeds, opset, sizes, **given), providers=[provider])
    found: np.ndarray = session.run(None, feeds)[0]
    return found


def scaled(x: np.ndarray, axes: tuple[int, ...], variance: bool) -> np.ndarray:
    less: np.ndarray = x - x.mean(axes, keepdims=True)
    return less / x.std(axes, keepdims=True) if variance else less


CASES: list[tuple[str, dict[str, Any], np.ndarray]] = [
    ("Affine", {"alpha": 2.0, "beta": 0.5}, 2 * WIDE + 0.5),
    ("Affine", {}, WIDE),
    ("Scale", {"scale": 3.0}, 3 * WIDE),
    ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(0.5 * WIDE)),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 1.5}, 2 * np.log1p(np.exp(1.5 * WIDE))),
    ("ThresholdedRelu", {"alpha": 0.5}, np.where(WIDE > 0.5, WIDE, 0)),
    ("ThresholdedRelu", {}, np.where(WIDE > 1, WIDE, 0)),
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, WIDE * 0.5 + np.array([1, 2, 3])[:, None, None]),
    ("ImageScaler", {"bias": [1.0, 2.0, 3.0]}, WIDE + np.array([1, 2, 3])[:, None, None]),
    ("Crop", {"border": [1, 0, 2, 1]}, WIDE[:, :, :-1, 1:-2]),
    ("Crop", {"border": [1, 2, 9, 9], "scale": [3, 4]}, WIDE[:, :, 2:5, 1:5]),
    ("MeanVarianceNormalization", {}, scaled(WIDE, (0, 2, 3), True)),
    ("MeanVarianceNormalization", {"across_channels": 1}, scaled(WIDE, (0, 1, 2, 3), True)),
    ("MeanVarianceNormalization", {"normalize_variance": 0}, scaled(WIDE, (0, 2, 3), False)),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("sizes", [None, ["n", "c", "h", "w"]], ids=["known", "symbols"])
@pytest.mark.parametrize(("op_type", "attributes", "expected"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_float32(op_type: str, attributes: dict[str, Any], expected: np.ndarray, sizes: Any, provider: str) -> None:
    opset = 8 if op_type == "MeanVarianceNormalization" else 9
    found = run(provider, op_type, {"x": IMAGE}, opset, sizes, **attributes)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize(("op_type", "attributes", "expected"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_other_types(op_type: str, attributes: dict[str, Any], expected: np.ndarray, dtype: Any, provider: str) -> None:
    opset = 8 if op_type == "MeanVarianceNormalization" else 9
    found = run(provider, op_type, {"x": IMAGE.astype(dtype)}, opset, **attributes)
    assert found.dtype == dtype
    tolerance = 4e-3 if dtype is np.float16 else 1e-6
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_parametric_softplus_does_not_overflow(provider: str) -> None:
    x = np.array([-1000, -1, 0, 1, 1000], np.float32)
    found = run(provider, "ParametricSoftplus", {"x": x}, alpha=2.0, beta=3.0)
    np.testing.assert_allclose(found, 2 * np.logaddexp(0, 3 * x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("rank", [2, 3, 5])
def test_normalisation_of_other_ranks(rank: int, provider: str) -> None:
    x = RNG.normal(size=(4, 3, 5, 2, 3)[:rank]).astype(np.float32)
    axes = (0, 2, 3)[: max(rank - 1, 1)] if rank < 4 else (0, 2, 3)
    found = run(provider, "MeanVarianceNormalization", {"x": x}, 1)
    np.testing.assert_allclose(found, scaled(x.astype(np.float64), axes, True), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, object])
def test_dynamic_slice(dtype: Any, index: Any, provider: str) -> None:
    x = IMAGE.astype(str).astype(object) if dtype is object else IMAGE.astype(dtype)
    starts, ends = np.array([1, -3], index), np.array([3, 1000], index)
    with_axes = {"x": x, "starts": starts, "ends": ends, "axes": np.array([1, -1], index)}
    assert np.array_equal(run(provider, "DynamicSlice", with_axes), x[:, 1:3, :, -3:])
    assert np.array_equal(run(provider, "DynamicSlice", {"x": x, "starts": starts, "ends": ends}), x[1:3, -3:])


@pytest.mark.parametrize("op_type", "Affine Scale ScaledTanh ParametricSoftplus ImageScaler Crop DynamicSlice".split())
def test_later_operator_sets_do_not_have_them(op_type: str) -> None:
    with pytest.raises(UnknownOperator, match=rf"ai\.onnx::{op_type} \(version 10\).*has it up to version 9 only"):
        intarsia.InferenceSession(model(op_type, {"x": IMAGE}, 10))


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("ImageScaler", {"bias": [1.0, 2.0]}, "numbers of bias, one for each channel: got 2, expected 3"),
        ("ImageScaler", {}, "required attribute 'bias' is missing"),
        ("ScaledTanh", {"alpha": 1.0}, "required attribute 'beta' is missing"),
        ("Crop", {"border": [1, 1, 2]}, "border is .1, 1, 2.; expected four numbers"),
        ("Crop", {"border": [-1, 0, 0, 0]}, "expected four numbers from 0 on"),
        ("Crop", {"border": [0] * 4, "scale": [2]}, "scale is .2.; expected two numbers"),
        ("Crop", {"border": [3, 3, 3, 3]}, "axis 2 of the image, for its border and scale: got 5, expected at least 6"),
        (
            "Crop",
            {"border": [1, 1, 0, 0], "scale": [2, 6]},
            "axis 3 of the image, for its border and scale: got 6, expected at least 7",
        ),
    ],
)
def test_what_does_not_fit(op_type: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(IntarsiaError, match=message):
        intarsia.InferenceSession(model(op_type, {"x": IMAGE}, 9, **attributes))


@pytest.mark.parametrize("op_type", ["ImageScaler", "Crop"])
def test_a_matrix_is_no_image(op_type: str) -> None:
    given: dict[str, Any] = {"bias": [1.0] * 3} if op_type == "ImageScaler" else {"border": [0] * 4}
    with pytest.raises(IntarsiaError, match=r"expected .N, C, H, W."):
        intarsia.InferenceSession(model(op_type, {"x": IMAGE[0, 0]}, 9, **given))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("given", [{"border": [1, 1, 0, 0], "scale": [5, 3]}, {"border": [3, 1, 4, 0]}])
def test_an_image_too_small_for_its_crop_in_a_run(given: dict[str, Any], provider: str) -> None:
    with pytest.raises(IntarsiaError, match="of the image, for its border and scale: got"):
        run(provider, "Crop", {"x": IMAGE}, 9, ["n", "c", "h", "w"], **given)


def test_a_definition_ends_with_the_version_that_withdraws_it() -> None:
    assert REGISTRY.find("", "Affine", 9) is not None
    assert REGISTRY.find("", "Affine", 10) is None
    op("Both", 1, domain="test.withdrawn", until=3)(lambda x: x)
    try:
        assert [REGISTRY.find("test.withdrawn", "Both", v) is not None for v in (1, 2, 3)] == [True, True, False]
    finally:
        del REGISTRY.records["test.withdrawn", "Both"]
