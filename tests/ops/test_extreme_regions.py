"""Regions, places and offsets that are infinite, no numbers, or beyond what an integer holds, in operators on images.

The CPU and the reference give the same, and neither reads what is not the image's. MaxRoiPool is compared with a loop over
elements; corners beyond 2^30 count as lying there, NaN as the lowest of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia as ort
from intarsia.errors import NodeFailed

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
INF, NAN = np.inf, np.nan
EXTREMES = (INF, -INF, NAN, 1e9, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3e38, -3e38, 1e-44)
X = np.random.default_rng(0).normal(size=(2, 17, 5, 6)).astype(np.float32)


def _run(op: str, feeds: dict[str, np.ndarray], attributes: dict[str, Any], provider: str, domain: str = "") -> np.ndarray:
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    node = helper.make_node(op, list(feeds), ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)[0]


def _drawn(seed: int, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Numbers of which a third is extreme."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        return np.where(rng.random(shape) < 1 / 3, rng.choice(EXTREMES, shape), rng.normal(size=shape) * 4).astype(dtype)


def _pooled(rois: np.ndarray, scale: float, high: int, wide: int) -> np.ndarray:
    out = np.zeros((len(rois), X.shape[1], high, wide), np.float32)
    for r, roi in enumerate(rois):
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.round(roi[1:].astype(np.float32) * np.float32(scale))
        x1, y1, x2, y2 = (-(2**30) if np.isnan(c) else int(min(max(float(c), -(2.0**30)), 2.0**30)) for c in scaled)
        rows, columns = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(high):
            for j in range(wide):
                seen = [
                    X[int(roi[0]), :, y, x] for y in range(X.shape[2]) for x in range(X.shape[3])
                    if i * rows // high <= y - y1 < -(-(i + 1) * rows // high)
                    and j * columns // wide <= x - x1 < -(-(j + 1) * columns // wide)
                ]  # fmt: skip
                if seen:
                    out[r, :, i, j] = np.max(seen, axis=0)
    return out


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0, 1e10, INF, NAN])
def test_max_roi_pool(scale: float, dtype: Any, provider: str) -> None:
    rois = _drawn(1, (12, 5), dtype)
    rois[:, 0] = np.arange(12) % 2
    rois[:4, 1:] = [[-INF, -INF, INF, INF], [NAN, 0, 5, NAN], [INF, 0, INF, 5], [0, 0, INF, INF]]
    made = _run("MaxRoiPool", {"x": X.astype(dtype), "rois": rois}, {"pooled_shape": [2, 3], "spatial_scale": scale}, provider)
    np.testing.assert_array_equal(made, _pooled(rois, scale, 2, 3).astype(dtype))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("image", [INF, -INF, NAN, 2.0, -1.0, 65504.0])
def test_max_roi_pool_of_no_image(image: float, dtype: Any, provider: str) -> None:
    rois = np.array([[image, 0, 0, 3, 3]], dtype)
    with pytest.raises(NodeFailed, match=r"MaxRoiPool") as caught:
        _run("MaxRoiPool", {"x": X.astype(dtype), "rois": rois}, {"pooled_shape": [2, 2]}, provider)
    assert "region 0 is of image" in str(caught.value) or "out of range" in str(caught.value)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    **{
        f"GridSample, {mode}, {padding}": (
            "GridSample", {"x": X, "grid": _drawn(2, (2, 4, 3, 2))}, {"mode": mode, "padding_mode": padding}, "",
        )
        for mode in ("linear", "nearest", "cubic") for padding in ("zeros", "border", "reflection")
    },
    **{
        f"RoiAlign, {mode}, {how}": (
            "RoiAlign", {"x": X, "rois": _drawn(3, (9, 4)), "batches": np.arange(9) % 2},
            {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": mode, "coordinate_transformation_mode": how},
            "",
        )
        for mode in ("avg", "max") for how in ("half_pixel", "output_half_pixel")
    },
    "DeformConv": (
        "DeformConv", {"x": X, "w": np.ones((3, 17, 2, 2), np.float32), "offset": _drawn(4, (2, 8, 4, 5))}, {}, "",
    ),
    "AffineGrid": ("AffineGrid", {"theta": _drawn(5, (3, 2, 3)), "size": np.array([3, 2, 4, 5])}, {}, ""),
    **{
        f"CropAndResize, {mode}": (
            "CropAndResize",
            {
                "x": X, "rois": _drawn(6, (9, 4)), "batches": (np.arange(9) % 2).astype(np.int32),
                "size": np.array([3, 2], np.int32),
            },
            {"mode": mode}, "com.microsoft",
        )
        for mode in ("bilinear", "nearest")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_both_providers_give_the_same(case: str) -> None:
    op, feeds, attributes, domain = CASES[case]
    cpu, reference = (_run(op, feeds, attributes, provider, domain) for provider in PROVIDERS)
    assert np.isfinite(reference).any()
    np.testing.assert_allclose(cpu, reference, rtol=1e-4, atol=1e-4)
