"""Where Resize and Upsample take elements from: ONNX's formulas in fractions, so that whole positions and ties count.

Sizes give quotients of integers. A scale is a float32, which stands for the simplest quotient that it is the rounding of.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia.errors import IntarsiaError
from intarsia.ops.nn.resize import simplest_fraction

HALF = Fraction(1, 2)
ROUNDING = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - HALF),
    "round_prefer_ceil": lambda x: math.floor(x + HALF),
}
TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 30, 56, 100)
OUTS = (1, 2, 3, 4, 6, 8, 9, 19, 26, 30)
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def position(transform: str, i: int, length: int, out: int, scale: Fraction, roi: tuple[Fraction, Fraction]) -> Fraction:
    """x_original of the text of Resize-19."""
    last = length - 1
    if transform == "align_corners":
        return Fraction(0) if out == 1 else i * last / (length * scale - 1)
    if transform == "asymmetric":
        return i / scale
    if transform == "tf_half_pixel_for_nn":
        return (i + HALF) / scale
    if transform == "tf_crop_and_resize":
        start, end = roi
        return start * last + i * (end - start) * last / (out - 1) if out > 1 else HALF * (start + end) * last
    half = (i + HALF) / scale - HALF
    if transform == "pytorch_half_pixel":
        return half if out > 1 else Fraction(0)
    return half + Fraction(length, 2) * (1 - out / (scale * length)) if transform == "half_pixel_symmetric" else half


def nearest(
    transform: str, mode: str, length: int, out: int, scale: Fraction | None = None,
    roi: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1)),
) -> list[int]:  # fmt: skip
    """The input's element for each of the output's; -1: outside the image. An axis that keeps its size is as it was."""
    if out == length and scale in (None, 1) and roi == (0, 1):
        return list(range(length))
    places = [position(transform, i, length, out, scale or Fraction(out, length), roi) for i in range(out)]
    found = [min(max(ROUNDING[mode](p), 0), length - 1) for p in places]
    if transform != "tf_crop_and_resize":
        return found
    return [index if 0 <= p <= length - 1 else -1 for p, index in zip(places, found, strict=True)]


@functools.lru_cache(256)
def session(
    provider: str,
    given: str,
    shape: tuple[Any, ...],
    attributes: tuple[tuple[str, Any], ...],
    opset: int = 19,
    op: str = "Resize",
) -> ort.InferenceSession:
    """y of x by an operand that a run gives."""
    kind = TensorProto.INT64 if given == "sizes" else TensorProto.FLOAT
    names = {"sizes": ["x", "roi", "", "sizes"], "scales": ["x", "roi", "scales"]}[given] if opset > 10 else ["x", "scales"]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info(given, kind, [None])]
    if opset > 10:
        taken.append(helper.make_tensor_value_info("roi", TensorProto.FLOAT, [None]))
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **dict(attributes))], "resized", taken,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


def resized(
    provider: str, length: int, sizes: Sequence[int] | None, scales: Sequence[float] | None, roi: Sequence[float] = (),
    opset: int = 19, op: str = "Resize", **attributes: Any,
) -> list[int]:  # fmt: skip
    made = session(provider, "scales" if sizes is None else "sizes", ("n",), tuple(sorted(attributes.items())), opset, op)
    feeds: dict[str, Any] = {"x": np.arange(length, dtype=np.float32)}
    if opset > 10:
        feeds["roi"] = np.array(roi, np.float32)
    feeds |= {"scales": np.array(scales, np.float32)} if sizes is None else {"sizes": np.array(sizes, np.int64)}
    (y,) = made.run(None, feeds)
    assert isinstance(y, np.ndarray)
    return [int(v) for v in y]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ROUNDING)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_sizes_that_a_run_gives(provider: str, mode: str, transform: str) -> None:
    for length in LENGTHS:
        for out in OUTS:
            got = resized(
                provider, length, [out], None, mode="nearest", nearest_mode=mode, coordinate_transformation_mode=transform
            )
            assert got == nearest(transform, mode, length, out), (length, out)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ROUNDING)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_scales(provider: str, mode: str, transform: str) -> None:
    for length in (7, 10, 20, 30):
        for scale in ("1/10", "1/3", "3/10", "2/3", "7/10", "9/10", "6/5", "13/10", "5/3", "5/2"):
            factor = Fraction(scale)
            out = int(np.float32(length) * np.float32(float(factor)))
            got = resized(
                provider, length, None, [float(factor)],
                mode="nearest", nearest_mode=mode, coordinate_transformation_mode=transform,
            )  # fmt: skip
            assert got == nearest(transform, mode, length, out, factor), (length, scale)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ROUNDING)
def test_constant_sizes_and_several_axes(mode: str, transform: str) -> None:
    """Sizes known when the session is made become tables; the same positions."""
    for (h, w), (to_h, to_w) in (((14, 20), (2, 26)), ((30, 7), (9, 1)), ((20, 100), (6, 30))):
        made = [
            helper.make_node(
                "Resize", ["x", "", "", "sizes"], ["y"],
                mode="nearest", nearest_mode=mode, coordinate_transformation_mode=transform, axes=[2, 1],
            )
        ]  # fmt: skip
        graph = helper.make_graph(
            made, "constant", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, h, w])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("sizes", TensorProto.INT64, [2], [to_w, to_h])],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
        x = np.arange(2 * h * w, dtype=np.float32).reshape(2, h, w)
        rows, columns = nearest(transform, mode, h, to_h), nearest(transform, mode, w, to_w)
        for provider in PROVIDERS:
            (y,) = ort.InferenceSession(model, providers=[provider]).run(None, {"x": x})
            np.testing.assert_array_equal(y, x[:, rows][:, :, columns])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ROUNDING)
def test_sizes_of_another_input(mode: str, transform: str) -> None:
    """Sizes that are known as symbols when the session is made: native code computes positions."""
    made = [
        helper.make_node("Shape", ["like"], ["sizes"]),
        helper.make_node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", nearest_mode=mode, coordinate_transformation_mode=transform
        ),
    ]
    graph = helper.make_graph(
        made,
        "like",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}_length"]) for n in ("x", "like")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    compiled = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert all(node.kind != "host" for node in compiled.explain().nodes)
    for length in LENGTHS:
        for out in OUTS:
            x = np.arange(length, dtype=np.float32)
            (y,) = compiled.run(None, {"x": x, "like": np.zeros(out, np.float32)})
            assert isinstance(y, np.ndarray)
            assert y.tolist() == nearest(transform, mode, length, out), (length, out)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_policies_keep_the_exact_ratio(provider: str, policy: str) -> None:
    made = session(
        provider, "sizes", ("h", "w"),
        tuple({"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "half_pixel",
               "keep_aspect_ratio_policy": policy}.items()),
    )  # fmt: skip
    for (h, w), sizes in (((14, 10), (2, 3)), ((20, 30), (6, 26)), ((7, 5), (1, 1)), ((100, 30), (30, 9)), ((3, 6), (7, 7))):
        ratio = (min if policy == "not_larger" else max)(Fraction(sizes[0], h), Fraction(sizes[1], w))
        to_h, to_w = (math.floor(ratio * d + HALF) for d in (h, w))
        x = np.arange(h * w, dtype=np.float32).reshape(h, w)
        (y,) = made.run(None, {"x": x, "sizes": np.array(sizes), "roi": np.zeros(0, np.float32)})
        rows, columns = nearest("half_pixel", "floor", h, to_h, ratio), nearest("half_pixel", "floor", w, to_w, ratio)
        np.testing.assert_array_equal(y, x[rows][:, columns])


@pytest.mark.parametrize("roi", [("0", "1"), ("1/5", "4/5"), ("2/5", "3/5"), ("-1/5", "6/5"), ("1", "0"), ("1/2", "1/2")])
@pytest.mark.parametrize("mode", ROUNDING)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_regions_of_interest(provider: str, mode: str, roi: tuple[str, str]) -> None:
    region = (Fraction(roi[0]), Fraction(roi[1]))
    for length in (1, 6, 11, 21):
        for out in (1, 2, 4, 6, 11):
            got = resized(
                provider, length, [out], None, [float(r) for r in region], mode="nearest", nearest_mode=mode,
                coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=-1.0,
            )  # fmt: skip
            assert got == nearest("tf_crop_and_resize", mode, length, out, None, region), (length, out)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op", ["Upsample", "Resize"])
def test_older_versions(provider: str, op: str) -> None:
    """Upsample-9, and Resize-10, whose rounding is up where an axis shrinks."""
    for length in (3, 7, 10, 14):
        for scale in ("1", "6/5", "13/10", "5/3", "2", "5/2", *(("1/10", "2/7", "1/3", "9/10") if op == "Resize" else ())):
            factor = Fraction(scale)
            out = int(np.float32(length) * np.float32(float(factor)))
            got = resized(provider, length, None, [float(factor)], opset=9 if op == "Upsample" else 10, op=op, mode="nearest")
            assert got == nearest("asymmetric", "ceil" if factor < 1 else "floor", length, out, factor), (length, scale)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_linear_is_exact_on_whole_positions(provider: str, transform: str) -> None:
    """Elements far apart in size: a position that is whole takes nothing of its neighbours."""
    made = session(provider, "sizes", ("n",), (("coordinate_transformation_mode", transform), ("mode", "linear")))
    for length in LENGTHS:
        x = np.where(np.arange(length) % 2, np.float32(1e30), np.float32(1))
        for out in OUTS:
            (y,) = made.run(None, {"x": x, "sizes": np.array([out]), "roi": np.zeros(0, np.float32)})
            assert isinstance(y, np.ndarray)
            for i, got in enumerate(y):
                place = position(transform, i, length, out, Fraction(out, length), (Fraction(0), Fraction(1)))
                if place.denominator == 1 and 0 <= place < length:
                    assert got == x[int(place)], (length, out, i)


def test_simplest_fraction() -> None:
    for text in ("1/3", "1/10", "13/10", "2", "1/65536", "640/853", "0", "-3/7"):
        assert simplest_fraction(float(np.float32(float(Fraction(text))))) == Fraction(text)
    for value in (0.1234567, 3.4e38, 1e-45, 1e-30, 12345.678):
        number = float(np.float32(value))
        assert np.float32(float(simplest_fraction(number))) == number


@pytest.mark.parametrize(
    ("scale", "roi", "attributes", "message"),
    [
        (math.inf, (), {}, "scales has inf for axis 0; expected a number greater than 0 and finite"),
        (math.nan, (), {}, "scales has nan for axis 0; expected a number greater than 0 and finite"),
        (2.0, (0.0, math.nan), {"coordinate_transformation_mode": "tf_crop_and_resize"}, "roi has nan; expected a number from"),
        (
            2.0,
            (-1e9, 1e9),
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            r"roi has -1000000000\.0; expected a number",
        ),
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_numbers_that_are_no_scales(
    provider: str, scale: float, roi: tuple[float, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(IntarsiaError, match=message):
        resized(provider, 3, None, [scale], roi, mode="nearest", **attributes)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_ratio_of_an_empty_axis(provider: str) -> None:
    with pytest.raises(IntarsiaError, match=r"keep_aspect_ratio_policy not_larger needs axes that have elements"):
        resized(provider, 0, [3], None, mode="nearest", keep_aspect_ratio_policy="not_larger")
