"""RoiAlign and MaxRoiPool by their kernels: what the definitions give, and indices that are checked."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, kinds, normal, session_of

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.providers.cpu.kernels.pooling.roi_pooling_kernel import align_text, pool_text

HEADER = '<ir_version: 8, opset_import: ["" : {}]>'


def boxes(count: int, low: float, high: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(low, high, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(0, (high - low) / 2, (count, 2))], 1).astype(np.float32)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_aligned_regions(mode: str, ratio: int, opset: int) -> None:
    text = (
        "g (float[2, c, 12, 9] x, float[n, 4] r, int64[n] b) => (float[n, c, 3, 2] y) "
        f'{{ y = RoiAlign<mode = "{mode}", output_height = 3, output_width = 2, sampling_ratio = {ratio}, '
        "spatial_scale = 0.5>(x, r, b) }"
    )
    feeds = [
        {"x": normal(2, c, 12, 9), "r": boxes(n, -6, 26, n), "b": np.arange(n, dtype=np.int64) % 2}
        for c, n in ((1, 4), (16, 1), (35, 7), (3, 0))
    ]
    session = check(text, *feeds, rtol=2e-5, header=HEADER.format(opset))
    assert list(kinds(session).values()) == ["compiled"]


def test_pooled_regions() -> None:
    text = (
        "g (float[2, c, 12, 9] x, float[n, 5] r) => (float[n, c, 3, 4] y) "
        "{ y = MaxRoiPool<pooled_shape = [3, 4], spatial_scale = 0.5>(x, r) }"
    )
    feeds = []
    for c, n in ((1, 4), (16, 1), (35, 9)):
        batch = (np.arange(n) % 2)[:, None].astype(np.float32)
        feeds.append({"x": normal(2, c, 12, 9), "r": np.concatenate([batch, boxes(n, -6, 26, n)], 1)})
    session = check(text, *feeds, rtol=0)
    assert list(kinds(session).values()) == ["compiled"]


def test_bins_end_where_the_region_does() -> None:
    """29 rows in 7 bins: the last one ends at row 29, although 7 * (29 / 7) is more in float64."""
    x = np.zeros((1, 1, 40, 40), np.float32)
    x[0, 0, 29:, 29:] = 1
    text = "g (float[1, 1, 40, 40] x, float[1, 5] r) => (float[1, 1, 7, 7] y) { y = MaxRoiPool<pooled_shape = [7, 7]>(x, r) }"
    region = np.array([[0, 0, 0, 28, 28]], np.float32)
    check(text, {"x": x, "r": region})
    assert session_of(text).run(None, {"x": x, "r": region})[0].max() == 0


@pytest.mark.parametrize("batch", [-1, 2, 1 << 40])
def test_batches_that_are_none(batch: int) -> None:
    text = "g (float[2, 1, 4, 4] x, float[1, 4] r, int64[1] b) => (float[1, 1, 1, 1] y) { y = RoiAlign(x, r, b) }"
    feed = {"x": normal(2, 1, 4, 4), "r": boxes(1, 0, 3), "b": np.array([batch])}
    with pytest.raises(InvalidArgument, match="an index is out of range"):
        session_of(text).run(None, feed)


def test_regions_that_are_no_numbers_are_read_in_range() -> None:
    text = "g (float[1, 1, 4, 4] x, float[2, 4] r, int64[2] b) => (float[2, 1, 1, 1] y) { y = RoiAlign(x, r, b) }"
    regions = np.array([[np.nan] * 4, [0, 0, 3, 3]], np.float32)
    feed = {"x": normal(1, 1, 4, 4), "r": regions, "b": np.zeros(2, np.int64)}
    found = session_of(text).run(None, feed)[0]
    assert np.isfinite(found[1]).all()
    regions[0] = [1e30, 1e30, 2e30, 2e30]
    with pytest.raises(InvalidArgument, match="its bins need more than 16384 samples along an axis"):
        session_of(text).run(None, feed)


def test_no_masked_gather_where_it_would_become_branches() -> None:
    for cpu, features, masked in (("x86-64-v3", "+avx2,+fma", False), ("x86-64-v4", "+avx2,+fma,+avx512f,+avx512vl", True)):
        target = Target.create("x86_64-unknown-linux-gnu", cpu, features)
        for text in (align_text("avg", False, target), align_text("max", True, target), pool_text(target)):
            assert ("llvm.masked.gather" in text.ir) is masked
            assert ("llvm.masked.scatter" in text.ir) is masked
