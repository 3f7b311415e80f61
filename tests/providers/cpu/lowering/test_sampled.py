"""DeformConv and GridSample, which read all channels of a place together, beside float64 and onnxruntime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import onnxruntime

import intarsia as ort

FLOAT = TensorProto.FLOAT


def sampled(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Channels [C] of an image [C, H, W] between its pixels, zero outside of it."""
    out = np.zeros(image.shape[0])
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
                out += image[:, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return out


def deformed(
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, mask: np.ndarray | None, stride: int, pad: int, dilation: int, groups: int
) -> np.ndarray:
    """DeformConv of one filter group in float64, place by place."""
    x, kernel, (batch, _, height, width) = x.astype(np.float64), w.shape[2], offset.shape
    moved = offset.reshape(batch, groups, kernel, kernel, 2, height, width).astype(np.float64)
    out, each = np.zeros((batch, w.shape[0], height, width)), x.shape[1] // groups
    for n, g, a, b, i, j in np.ndindex(batch, groups, kernel, kernel, height, width):
        dy, dx = moved[n, g, a, b, :, i, j]
        place = (i * stride + a * dilation - pad + dy, j * stride + b * dilation - pad + dx)
        value = sampled(x[n, g * each : (g + 1) * each], *place)
        if mask is not None:
            value = value * mask.reshape(batch, groups, kernel, kernel, height, width)[n, g, a, b, i, j]
        out[n, :, i, j] += w[:, g * each : (g + 1) * each, a, b].astype(np.float64) @ value
    return out


def model(nodes: list[Any], inputs: dict[str, tuple[int | str, ...]], weights: dict[str, np.ndarray], opset: int = 20) -> bytes:
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    made = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "sampled", values, [helper.make_tensor_value_info("y", FLOAT, None)], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def session(made: bytes) -> ort.InferenceSession:
    found = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    assert {node.kind for node in found.explain().nodes} <= {"compiled", "folded"}
    return found


CASES = {
    "plain": {},
    "no mask": {"mask": False},
    "no bias": {"bias": False},
    "stride and groups of offsets": {"channels": 32, "groups": 2, "stride": 2},
    "dilated": {"pad": 2, "dilation": 2},
    "one tap": {"kernel": 1, "pad": 0},
    "odd channels": {"channels": 37, "filters": 5},
    "few channels": {"channels": 5},
    "sizes that vary": {"open": True},
    "computed filters": {"computed": True},
}


@pytest.mark.parametrize("name", CASES)
def test_deformed_windows(name: str) -> None:
    case = {"channels": 16, "filters": 9, "kernel": 3, "stride": 1, "pad": 1, "dilation": 1, "groups": 1} | CASES[name]
    channels, filters, kernel, stride, pad, dilation, groups = list(case.values())[:7]
    rng, (high, wide) = np.random.default_rng(1), (9, 7)
    out = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n in (high, wide)]
    feeds = {
        "x": rng.standard_normal((2, channels, high, wide), np.float32),
        "offset": rng.standard_normal((2, 2 * groups * kernel**2, *out), np.float32) * 2,
        "mask": rng.random((2, groups * kernel**2, *out), np.float32),
    }
    weights = {
        "w": rng.standard_normal((filters, channels, kernel, kernel), np.float32),
        "b": rng.standard_normal(filters, np.float32),
    }
    inputs = ["x", "w", "offset", "b" if case.get("bias", True) else "", "mask"]
    if not case.get("mask", True):
        del feeds["mask"], inputs[4]
    if "b" not in inputs:
        del weights["b"]
    if case.get("computed"):
        feeds["w"] = weights.pop("w")
    shapes = {n: ("n", a.shape[1], f"{n}_h", f"{n}_w") if case.get("open") else a.shape for n, a in feeds.items()}
    how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
    node = helper.make_node("DeformConv", inputs, ["y"], offset_group=groups, **how)
    (found,) = session(model([node], shapes, weights)).run(None, feeds)
    wanted = deformed(feeds["x"], (weights | feeds)["w"], feeds["offset"], feeds.get("mask"), stride, pad, dilation, groups)
    wanted += weights["b"].reshape(-1, 1, 1) if "b" in weights else 0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("between", [False, True])
def test_images_read_by_a_grid(mode: str, padding: str, between: bool) -> None:
    """Alone, and between convolutions, whose channels-last values it takes and gives; sizes vary."""
    rng = np.random.default_rng(2)
    nodes = [helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding)]
    weights = {}
    if between:
        weights = {
            "w": rng.standard_normal((40, 36, 3, 3), np.float32) / 12, "v": rng.standard_normal((8, 40, 1, 1), np.float32) / 5
        }  # fmt: skip
        before = helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4)
        nodes = [before, helper.make_node("GridSample", ["a", "grid"], ["c"], mode=mode, padding_mode=padding)]
        nodes.append(helper.make_node("Conv", ["c", "v"], ["y"]))
    made = model(nodes, {"x": ("n", 40 - 4 * between, "h", "w"), "grid": ("n", "rows", "columns", 2)}, weights)
    mine, peer = session(made), onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    for batch, image, places in ((2, (11, 8), (5, 9)), (1, (6, 7), (1, 1)), (3, (1, 1), (4, 2))):
        grid = rng.uniform(-1.4, 1.4, (batch, *places, 2)).astype(np.float32)
        feeds = {"x": rng.standard_normal((batch, 40 - 4 * between, *image), np.float32), "grid": grid}
        (found,), (wanted,) = mine.run(None, feeds), peer.run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


def test_volumes_read_by_a_grid() -> None:
    rng = np.random.default_rng(3)
    node = onnx.helper.make_node("GridSample", ["x", "grid"], ["y"], align_corners=1)
    made = model([node], {"x": (2, 37, 4, 5, 6), "grid": (2, 3, 4, 5, 3)}, {})
    feeds = {
        "x": rng.standard_normal((2, 37, 4, 5, 6), np.float32),
        "grid": rng.uniform(-1.2, 1.2, (2, 3, 4, 5, 3)).astype(np.float32),
    }
    (found,) = session(made).run(None, feeds)
    (wanted,) = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)
