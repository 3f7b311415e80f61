"""Resize, Upsample, GridSample, AffineGrid, DeformConv, RoiAlign, NonMaxSuppression against torch and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.errors import InvalidGraph
from intarsia.graph.dims import evaluate as evaluate_dim
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import trace
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

RNG = np.random.default_rng(11)
EMPTY = np.zeros(0, np.float32)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluate(op: str, version: int, inputs: list[Any], **attributes: Any) -> Any:
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    return evaluate_node(Node(op, names, ["y"], attributes, version=version), inputs, registry())[0]


@pytest.mark.parametrize("version", [11, 13, 18, 19])
@pytest.mark.parametrize("size", [(9, 4), (3, 13), (1, 1)])
@pytest.mark.parametrize(
    ("mode", "torch_mode", "align", "transform"),
    [
        ("linear", "bilinear", False, "half_pixel"),
        ("linear", "bilinear", True, "align_corners"),
        ("cubic", "bicubic", False, "half_pixel"),
        ("cubic", "bicubic", True, "align_corners"),
        ("nearest", "nearest", None, "asymmetric"),
    ],
)
def test_resize_to_sizes_as_torch(
    version: int, size: tuple[int, int], mode: str, torch_mode: str, align: bool | None, transform: str
) -> None:
    torch = pytest.importorskip("torch", reason="the reference of interpolation")
    x = floats(2, 3, 6, 7)
    want = torch.nn.functional.interpolate(torch.from_numpy(x), size=size, mode=torch_mode, align_corners=align).numpy()
    y = evaluate(
        "Resize",
        version,
        [x, EMPTY, None, np.array([2, 3, *size])],
        mode=mode,
        coordinate_transformation_mode=transform,
        nearest_mode="floor",
    )
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


_PLACES = {
    "asymmetric": lambda i, scale: i / scale,
    "half_pixel": lambda i, scale: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, scale: (i + 0.5) / scale - 0.5,  # of whole scales
    "pytorch_half_pixel": lambda i, scale: (i + 0.5) / scale - 0.5,
    "tf_half_pixel_for_nn": lambda i, scale: (i + 0.5) / scale,
}
_ROUNDED = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


@pytest.mark.parametrize("scale", [2, 3, 7])
@pytest.mark.parametrize("nearest_mode", _ROUNDED)
@pytest.mark.parametrize("transform", _PLACES)
@pytest.mark.parametrize("is_open", [False, True])
def test_nearest_by_a_whole_number(transform: str, nearest_mode: str, scale: int, is_open: bool) -> None:
    """Many places, each from the formula in float64."""
    length = 2049
    shape = (symbol("n"), symbol("l")) if is_open else (2, length)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": nearest_mode}
    scales, x = np.array([1, scale], np.float32), floats(2, length)
    node = Node("Resize", ["x", "", "scales"], ["y"], attributes, version=19)
    operands = [k.input(0, DType.FLOAT, shape), None, k.constant(scales)]
    record = registry().find("", "Resize", 19)
    assert record is not None
    (root,) = trace(record, node, operands, {1: None, 2: scales.astype(object)})
    assert root is not None
    (found,) = interpret([root], [x], {"n": 2, "l": length})
    places = _ROUNDED[nearest_mode](_PLACES[transform](np.arange(length * scale, dtype=np.float64), scale))
    np.testing.assert_array_equal(found, x[:, np.clip(places, 0, length - 1).astype(int)])


@pytest.mark.parametrize(("mode", "torch_mode", "a"), [("linear", "bilinear", -0.75), ("cubic", "bicubic", -0.5)])
def test_antialias_as_torch(mode: str, torch_mode: str, a: float) -> None:
    torch = pytest.importorskip("torch", reason="the reference of interpolation")
    x = floats(1, 2, 16, 12)
    want = torch.nn.functional.interpolate(torch.from_numpy(x), size=(5, 6), mode=torch_mode, antialias=True).numpy()
    y = evaluate(
        "Resize",
        18,
        [x, None, None, np.array([5, 6])],
        mode=mode,
        antialias=1,
        axes=[-2, -1],
        exclude_outside=1,
        cubic_coeff_a=a,
    )
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_resize_10_is_asymmetric_and_rounds_by_direction() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 6)
    down = evaluate("Resize", 10, [x, np.array([1, 1, 1, 0.6], np.float32)])
    np.testing.assert_array_equal(down.ravel(), [0, 2, 4])
    up = evaluate("Resize", 10, [x, np.array([1, 1, 1, 1.5], np.float32)])
    np.testing.assert_array_equal(up.ravel(), [0, 0, 1, 2, 2, 3, 4, 4, 5])


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(version: int, mode: str) -> None:
    x, scales = np.array([[[[1, 2], [3, 4]]]], np.float32), [1.0, 1.0, 2.0, 2.0]
    inputs, attributes = ([x], {"scales": scales}) if version == 7 else ([x, np.array(scales, np.float32)], {})
    y = evaluate("Upsample", version, inputs, mode=mode, **attributes)
    row = [1, 1, 2, 2] if mode == "nearest" else [1, 1.5, 2, 2]
    np.testing.assert_array_equal(y[0, 0, 0], row)


def test_eight_bit_images_saturate() -> None:
    x = np.array([[[[0, 0, 255, 255, 0, 0]]]], np.uint8)
    y = evaluate("Resize", 13, [x, EMPTY, np.array([1, 1, 1, 2.5], np.float32)], mode="cubic")
    assert y.dtype == np.uint8
    assert y.max() == 255
    assert y.min() == 0


@pytest.mark.parametrize("scale", [2.0, 0.5, 0.6])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_symbolic_extents(mode: str, scale: float) -> None:
    record = registry().find("", "Resize", 13)
    assert record is not None
    n, h = symbol("n"), symbol("h")
    operands = [k.input(0, DType.FLOAT, (n, 2, h, 4)), k.input(1, DType.FLOAT, (0,)), k.input(2, DType.FLOAT, (4,))]
    scales = np.array([1, 1, scale, scale], np.float32)
    node = Node("Resize", ["x", "roi", "scales"], ["y"], {"mode": mode})
    (root,) = trace(record, node, operands, {1: np.zeros(0, object), 2: scales.astype(object)})
    assert root is not None
    x, env = floats(3, 2, 10, 4), {"n": 3, "h": 10}
    (y,) = interpret([root], [x, None, None], env)
    np.testing.assert_allclose(y, evaluate("Resize", 13, [x, EMPTY, scales], mode=mode), rtol=1e-5, atol=1e-6)
    assert y.shape == tuple(evaluate_dim(d, env) for d in root.shape)


@pytest.mark.parametrize("version", [16, 20, 22])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_as_torch(mode: str, padding: str, align: int, version: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of grid_sample")
    x, grid = floats(2, 3, 5, 6), RNG.uniform(-1.7, 1.7, (2, 4, 3, 2)).astype(np.float32)
    want = torch.nn.functional.grid_sample(*map(torch.from_numpy, (x, grid)), mode, padding, bool(align)).numpy()
    word = mode if version == 16 else {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    y = evaluate("GridSample", version, [x, grid], mode=word, padding_mode=padding, align_corners=align)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid_as_torch(align: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of affine_grid")
    theta = floats(2, 3, 4)
    want = torch.nn.functional.affine_grid(torch.from_numpy(theta), [2, 1, 3, 4, 5], bool(align)).numpy()
    y = evaluate("AffineGrid", 20, [theta, np.array([2, 1, 3, 4, 5])], align_corners=align)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_deform_conv_without_offsets_is_conv() -> None:
    x, w, b = floats(2, 4, 6, 5), floats(6, 2, 3, 3), floats(6)
    offset, mask = np.zeros((2, 2 * 18, 6, 5), np.float32), np.full((2, 2 * 9, 6, 5), 0.5, np.float32)
    y = evaluate("DeformConv", 19, [x, w, offset, b, mask], group=2, offset_group=2, pads=[1] * 4)
    want = evaluate("Conv", 11, [x, w * 0.5, b], group=2, pads=[1] * 4)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_deform_conv_samples_between_elements() -> None:
    x, w = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.ones((1, 1, 1, 1), np.float32)
    offset = np.broadcast_to(np.array([0.5, 0.25], np.float32).reshape(1, 2, 1, 1), (1, 2, 3, 3))
    y = evaluate("DeformConv", 22, [x, w, offset])
    np.testing.assert_allclose(y[0, 0, :2, :2], x[0, 0, :2, :2] + 0.5 * 3 + 0.25, rtol=1e-6)


def test_non_max_suppression_keeps_boxes_at_the_threshold() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5], [1, 1, 0, 0], [3, 3, 4, 4]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)
    third = np.array([1 / 3], np.float32)
    found = evaluate("NonMaxSuppression", 11, [boxes, scores, np.array([10]), third])
    np.testing.assert_array_equal(found, [[0, 0, 0], [0, 0, 1], [0, 0, 3]])
    assert evaluate("NonMaxSuppression", 10, [boxes, scores]).shape == (0, 3)
    few = evaluate("NonMaxSuppression", 11, [boxes, scores, np.array(2), third, np.array([0.65], np.float32)])
    np.testing.assert_array_equal(few[:, 2], [0, 1])


def test_roi_align_of_version_10_does_not_shift() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    roi, batch = np.array([[0, 0, 2, 2]], np.float32), np.array([0])
    old = evaluate("RoiAlign", 10, [x, roi, batch], output_height=1, output_width=1, sampling_ratio=1)
    new = evaluate("RoiAlign", 16, [x, roi, batch], output_height=1, output_width=1, sampling_ratio=1)
    assert old.item() == x[0, 0, 1, 1]
    assert new.item() == x[0, 0, :2, :2].mean()


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Resize", [floats(1, 2), EMPTY, None, None], {}, "exactly one of scales and sizes"),
        ("Resize", [floats(1, 2), EMPTY, np.ones(3, np.float32)], {}, "scales has 3 values; expected 2"),
        ("Resize", [floats(1, 2), EMPTY, np.zeros(2, np.float32)], {}, "scales has 0.0 for axis 0; expected a number greater"),
        ("Resize", [floats(1, 2), EMPTY, None, np.array([1])], {}, "sizes has 1 values; expected 2"),
        ("Resize", [floats(1, 2), EMPTY, np.ones(2, np.float32)], {"mode": "area"}, "mode is 'area'; expected nearest"),
        (
            "Resize",
            [floats(1, 2), EMPTY, np.ones(2, np.float32)],
            {"nearest_mode": "up"},
            "nearest_mode is 'up'; expected one of",
        ),
        (
            "Resize",
            [floats(1, 2), EMPTY, np.ones(2, np.float32)],
            {"coordinate_transformation_mode": "pixel"},
            "coordinate_transformation_mode is 'pixel'; expected one of half_pixel",
        ),
        (
            "Resize",
            [floats(1, 2), EMPTY, None, np.array([1, 2])],
            {"keep_aspect_ratio_policy": "crop"},
            "keep_aspect_ratio_policy is 'crop'; expected stretch",
        ),
        (
            "Resize",
            [floats(1, 2), floats(2), np.ones(2, np.float32)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "roi has 2 values; expected 4 for 2 axes",
        ),
        ("GridSample", [floats(1, 1, 2, 2), floats(1, 2, 2, 2)], {"mode": "area"}, "mode is 'area'; expected linear"),
        (
            "GridSample",
            [floats(1, 1, 2, 2), floats(1, 2, 2, 2)],
            {"padding_mode": "wrap"},
            "padding_mode is 'wrap'; expected zeros",
        ),
        ("GridSample", [floats(1, 1, 2, 2), floats(1, 2, 2, 3)], {}, r"expected \[N, ..., 2\] of rank 4"),
        (
            "GridSample",
            [floats(*[1] * 11), floats(*[1] * 10, 9)],
            {},
            "linear interpolation along 9 axes reads 512 elements at each place; expected at most 256",
        ),
        (
            "GridSample",
            [floats(*[1] * 7), floats(*[1] * 6, 5)],
            {"mode": "cubic"},
            "cubic interpolation along 5 axes reads 1024 elements at each place; expected at most 256",
        ),
        ("AffineGrid", [floats(1, 2, 3), np.array([1, 1, 4])], {}, r"expected \[N, 2, 3\] with 4 or \[N, 3, 4\] with 5"),
        ("RoiAlign", [floats(1, 1, 2, 2), floats(1, 4), np.array([0])], {"mode": "sum"}, "mode is 'sum'; expected avg or max"),
    ],
)
def test_refusals(op: str, inputs: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        evaluate(op, 0, inputs, **attributes)
