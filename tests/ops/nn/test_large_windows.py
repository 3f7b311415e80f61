"""Windows far larger than their input: what is computed is bounded by the data, and values are those of whole windows."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import InvalidGraph, RunTimeout
from intarsia.graph.dtypes import DType
from intarsia.ops.nn.sliding_windows import WindowAttributes, cut_to, place_windows, slide
from intarsia.primitives import lang as k

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
GIANT, HALF = 2**31 - 1, 2**30
FLOAT = TensorProto.FLOAT
rng = np.random.default_rng(5)


def model(
    op: str, shape: list[Any], rank: int, outputs: int = 1, domain: str = "", kind: int = FLOAT, **attributes: Any
) -> bytes:
    names = ["y", "i"][:outputs]
    node = helper.make_node(op, ["x"], names, domain=domain, **attributes)
    kinds = [kind, TensorProto.INT64]
    made = [helper.make_tensor_value_info(n, t, [None] * rank) for n, t in zip(names, kinds, strict=False)]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, shape)], made)
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    data: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return data


def places(n: int, size: int, stride: int, dilation: int, low: int, out: int) -> list[list[int]]:
    """For each window along an axis the places of the input that it meets."""
    found = []
    for i in range(out):
        start = i * stride - low
        first = max(0, -(start // dilation))
        last = min(size, (n - 1 - start) // dilation + 1)
        found.append([start + j * dilation for j in range(first, last) if 0 <= start + j * dilation < n])
    return found


def pooled(x: np.ndarray, op: str, sizes: list[int], strides: list[int], dilations: list[int], low: list[int], out: list[int],
           counted: list[list[int]] | None = None, p: int = 2) -> np.ndarray:  # fmt: skip
    """In float64, one axis after the other, window by window. `counted`: for each axis how many elements a window counts; None:
    those that it meets."""
    axes = [places(*each) for each in zip(x.shape[2:], sizes, strides, dilations, low, out, strict=True)]
    made = np.abs(x.astype(np.float64)) ** p if op == "LpPool" else x.astype(np.float64)
    for axis, windows in enumerate(axes, 2):
        parts = [made.take(met, axis) for met in windows]
        made = np.stack([v.max(axis, initial=-np.inf) if op == "MaxPool" else v.sum(axis) for v in parts], axis)
    if op == "LpPool":
        return made ** (1 / p)
    if op == "AveragePool":
        counts = [[len(met) for met in windows] for windows in axes] if counted is None else counted
        made = made / functools.reduce(np.multiply.outer, [np.asarray(c, np.float64) for c in counts])
    return made


CASES = [
    ([8], {"kernel_shape": [GIANT], "pads": [HALF, HALF]}, [1], [1], [HALF], [10]),
    ([8], {"kernel_shape": [GIANT], "pads": [HALF, HALF], "strides": [4]}, [4], [1], [HALF], [3]),
    ([8], {"kernel_shape": [5001], "pads": [5000, 5000], "dilations": [2]}, [1], [2], [5000], [8]),
    ([7], {"kernel_shape": [6001], "pads": [6000, 6000], "strides": [5]}, [5], [1], [6000], [1202]),
    ([5, 6], {"kernel_shape": [1101, 4], "pads": [1100, 2, 1100, 3]}, [1, 1], [1, 1], [1100, 2], [1105, 8]),
    ([5, 6], {"kernel_shape": [GIANT, GIANT], "pads": [HALF] * 4}, [1, 1], [1, 1], [HALF, HALF], [7, 8]),
]  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("known", [True, False])
def test_pools(case: int, op: str, provider: str, known: bool) -> None:
    extents, attributes, strides, dilations, low, out = CASES[case]
    shape = [1, 2, *extents] if known else ["n", 2, *(f"d{i}" for i in range(len(extents)))]
    x = rng.standard_normal((1, 2, *extents)).astype(np.float32)
    (y,) = ort.InferenceSession(model(op, shape, 2 + len(extents), **attributes), providers=[provider]).run(None, {"x": x})
    expected = pooled(x, op, attributes["kernel_shape"], strides, dilations, low, out)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_border_that_counts(provider: str) -> None:
    """What ceil_mode's last window has beyond the border does not count."""
    x = rng.standard_normal((1, 1, 9)).astype(np.float32)
    attributes = {"kernel_shape": [5000], "pads": [4990, 4995], "strides": [3], "count_include_pad": 1}
    for ceil in (0, 1):
        session = ort.InferenceSession(model("AveragePool", [1, 1, 9], 3, ceil_mode=ceil, **attributes), providers=[provider])
        (y,) = session.run(None, {"x": x})
        counted = [[min(5000, 9 + 4990 + 4995 - 3 * i) for i in range(y.shape[2])]]
        expected = pooled(x, "AveragePool", [5000], [3], [1], [4990], [y.shape[2]], counted)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-8)
        assert y.shape[2] == 1665 + ceil


@pytest.mark.parametrize("provider", PROVIDERS)
def test_positions_of_the_largest(provider: str) -> None:
    x = rng.standard_normal((2, 2, 4, 3)).astype(np.float32)
    attributes = {"kernel_shape": [GIANT, 3], "pads": [HALF, 1, HALF, 1]}
    for order in (0, 1):
        session = ort.InferenceSession(
            model("MaxPool", [2, 2, 4, 3], 4, 2, storage_order=order, **attributes), providers=[provider]
        )
        y, i = session.run(None, {"x": x})
        flat = (x if order == 0 else x.transpose(0, 1, 3, 2)).reshape(-1)
        np.testing.assert_array_equal(flat[i], y)
        expected = pooled(x, "MaxPool", [GIANT, 3], [1, 1], [1, 1], [HALF, 1], list(y.shape[2:]))
        np.testing.assert_array_equal(y, expected.astype(np.float32))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_bytes_and_channels_last(provider: str) -> None:
    x = rng.integers(0, 255, (1, 5, 6, 2), np.uint8)
    attributes = {"kernel_shape": [GIANT, GIANT], "pads": [HALF] * 4}
    data = model("NhwcMaxPool", [1, 5, 6, 2], 4, domain="com.microsoft", kind=TensorProto.UINT8, **attributes)
    (y,) = ort.InferenceSession(data, providers=[provider]).run(None, {"x": x})
    assert y.shape == (1, 7, 8, 2)
    expected = pooled(x.transpose(0, 3, 1, 2), "MaxPool", [GIANT] * 2, [1, 1], [1, 1], [HALF] * 2, [7, 8])
    np.testing.assert_array_equal(y, np.maximum(expected, 0).transpose(0, 2, 3, 1))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("n", "attributes"), [
    (8, {"kernel_shape": [5000], "strides": [4990]}), (8, {"kernel_shape": [5000], "strides": [4990], "pads": [2, 0]}),
    (9, {"kernel_shape": [2501], "dilations": [2], "strides": [4980]}),
])  # fmt: skip
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_no_window_at_all(op: str, n: int, attributes: dict[str, Any], known: bool, provider: str) -> None:
    """A window that lacks more than a stride, and less than two."""
    x = np.ones((1, 2, n), np.float32)
    session = ort.InferenceSession(model(op, [1, 2, n if known else "d"], 3, **attributes), providers=[provider])
    assert session.run(None, {"x": x})[0].shape == (1, 2, 0)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_cut_windows_are_as_whole_ones(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any sizes, borders, strides and dilations."""
    draw = np.random.default_rng(8)
    for _ in range(60):
        rank = int(draw.integers(1, 3))
        attributes: dict[str, Any] = {
            "kernel_shape": draw.integers(1, 7, rank).tolist(), "strides": draw.integers(1, 5, rank).tolist(),
            "dilations": draw.integers(1, 4, rank).tolist(), "ceil_mode": int(draw.integers(2)),
        }  # fmt: skip
        attributes["pads"] = [int(draw.integers(0, n)) for n in attributes["kernel_shape"] * 2]
        if op == "AveragePool":
            attributes["count_include_pad"] = int(draw.integers(2))
        x = draw.standard_normal((1, 2, *draw.integers(1, 9, rank))).astype(np.float32)
        data, found = model(op, list(x.shape), x.ndim, 1 + (op == "MaxPool"), **attributes), []
        for least in (1 << 12, 0):
            monkeypatch.setattr("intarsia.ops.nn.sliding_windows.LARGE_WINDOW", least)
            try:
                found.append(ort.InferenceSession(data, providers=PROVIDERS[1:]).run(None, {"x": x}))
            except InvalidGraph as error:
                found.append(["the kernel spans" in str(error)])
        for whole, cut in zip(*found, strict=True):
            np.testing.assert_allclose(cut, whole, rtol=1e-5, atol=1e-6, err_msg=str(attributes))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_masked_windows(provider: str) -> None:
    """All windows hold the whole input, whatever else they hold."""
    x, mask = rng.standard_normal((1, 2, 5, 6)).astype(np.float32), rng.integers(0, 2, (1, 2, 5, 6)).astype(np.int32)
    found = []
    for size in (63, 201, GIANT):
        node = helper.make_node(
            "MaxpoolWithMask", ["x", "m"], ["y"], domain="com.microsoft", kernel_shape=[size] * 2, pads=[size // 2] * 4
        )
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", FLOAT, None)], [numpy_helper.from_array(mask, "m")],
        )  # fmt: skip
        imports = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
        data = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
        found.append(ort.InferenceSession(data, providers=[provider]).run(None, {"x": x})[0])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_windows_meet_what_they_met() -> None:
    """Of each window every element of the input, once, whatever its stride, dilation and border are."""
    for _ in range(200):
        n, d, s = (int(v) for v in rng.integers(1, [12, 4, 5]))
        size = int(rng.integers(5000, 9000))
        low, high = (int(v) for v in rng.integers(0, (size - 1) * d, 2, endpoint=True))
        if n + low + high < (size - 1) * d + 1:
            continue
        attributes = WindowAttributes("NOTSET", (d,), None, (low, high), (s,))
        windows = place_windows((n,), (size,), attributes, clipped=True)
        attributes = replace(attributes, strides=(s * max(1, windows.out[0] // 20),))  # type: ignore[operator]
        windows = place_windows((n,), (size,), attributes, clipped=True)
        cut = cut_to(windows, (n,))
        view = slide(k.input(0, DType.FLOAT, (1, 1, n)), cut, 0)
        assert view.shape[2] == windows.out[0]
        reach = (windows.out[0] - 1) * windows.strides[0]  # type: ignore[operator]
        assert cut.sizes[0] <= (n + reach) // d + 2  # type: ignore[operator]
        first = (windows.low[0] - cut.low[0]) // d  # type: ignore[operator]
        for i in range(windows.out[0]):  # type: ignore[call-overload]
            begin = i * windows.strides[0] - low
            met = [j for j in range(max(0, -begin // d), min(size, (n - begin) // d + 1)) if 0 <= begin + j * d < n]
            assert all(first <= j < first + cut.sizes[0] for j in met)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["MatMul", "LRN"])
def test_long_kernels_end_in_time(kind: str) -> None:
    """By slices, whose number is that of the elements that sums take, not of those that they make."""
    if kind == "MatMul":
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "x"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.INT64, [None, None])],
            [helper.make_tensor_value_info("y", TensorProto.INT64, [None, None])],
        )  # fmt: skip
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
        x = np.ones((5000, 5000), np.int64)
    else:
        data, x = model("LRN", [1, 400_000, 1, 1], 4, size=799_999), np.ones((1, 400_000, 1, 1), np.float32)
    session = ort.InferenceSession(data)
    with pytest.raises(RunTimeout):
        session.run(None, {"x": x}, timeout=0.2)
