"""Pools by themselves, in the model's own layout, beside torch's, with sizes that are known and that only a run gives."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import normal, session_of

torch = pytest.importorskip("torch", reason="the reference of pools")

CASES = [  # kernel, stride, pad, dilation, ceil_mode
    (3, 2, 1, 1, 0),
    (2, 2, 0, 1, 0),
    (5, 1, 2, 1, 0),
    (3, 2, 0, 1, 1),
    (3, 1, 1, 2, 0),
    (13, 1, 6, 1, 0),
    (4, 3, 2, 1, 1),
]
SIZES = ((2, 5, 37, 41), (1, 5, 16, 16), (1, 3, 7, 100), (1, 3, 21, 27))


def run(operator: str, attributes: str, is_open: bool, shape: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    given = f"n, {shape[1]}, h, w" if is_open else ", ".join(map(str, shape))
    text = f"g (float[{given}] x) => (float[a, b, c, d] y) {{ y = {operator} <{attributes}> (x) }}"
    found: np.ndarray = session_of(text, header='<ir_version: 8, opset_import: ["" : 19]>').run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_max_pool(case: tuple[int, ...], is_open: bool) -> None:
    kernel, stride, pad, dilation, ceil = case
    pairs = ", ".join(
        f"{name} = [{n}, {n}]" for name, n in (("kernel_shape", kernel), ("strides", stride), ("dilations", dilation))
    )
    attributes = f"{pairs}, pads = [{pad}, {pad}, {pad}, {pad}], ceil_mode = {ceil}"
    for shape in SIZES:
        x = normal(*shape)
        expected = torch.nn.functional.max_pool2d(torch.from_numpy(x), kernel, stride, pad, dilation, bool(ceil)).numpy()
        np.testing.assert_array_equal(run("MaxPool", attributes, is_open, shape, x), expected)
    x[:, :, 3, 5] = np.nan
    expected = torch.nn.functional.max_pool2d(torch.from_numpy(x), kernel, stride, pad, dilation, bool(ceil)).numpy()
    np.testing.assert_array_equal(run("MaxPool", attributes, is_open, shape, x), expected)


@pytest.mark.parametrize(
    "pool", ["MaxPool <kernel_shape = [3, 3], strides = [2, 2]>", "MaxPool <kernel_shape = [2, 2]>", "GlobalMaxPool"]
)
@pytest.mark.parametrize("sizes", ["1, 16, 12, 12", "n, 16, h, w"])
def test_nan_in_the_layout_of_convolutions(sizes: str, pool: str) -> None:
    """Between convolutions pools work with channels as neighbours in memory, by kernels of their own."""
    text = f"g (float[{sizes}] x) => (float[a, b, c, d] y) {{ p = Conv(x, v) q = {pool} (p) y = Conv(q, v) }}"
    x = normal(1, 16, 12, 12)
    x[0, [3, 4, 5], [5, 0, 11], [7, 0, 11]] = np.nan
    v = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)
    found = session_of(text, {"v": v}, header='<ir_version: 8, opset_import: ["" : 19]>').run(None, {"x": x})[0]
    kernel = x.shape[2] if pool == "GlobalMaxPool" else int(pool.split("[")[1][0])
    pooled = torch.nn.functional.max_pool2d(torch.from_numpy(x), kernel, 2 if kernel == 3 else 1)
    expected = torch.nn.functional.conv2d(pooled, torch.from_numpy(v)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("case", [c for c in CASES if c[3] == 1], ids=str)
def test_average_pool(case: tuple[int, ...], counted: int, is_open: bool) -> None:
    kernel, stride, pad, _, ceil = case
    attributes = f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], pads = [{pad}, {pad}, {pad}, {pad}]"
    for shape in SIZES:
        x = normal(*shape)
        expected = torch.nn.functional.avg_pool2d(
            torch.from_numpy(x), kernel, stride, pad, bool(ceil), count_include_pad=bool(counted)
        ).numpy()
        found = run("AveragePool", f"{attributes}, ceil_mode = {ceil}, count_include_pad = {counted}", is_open, shape, x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
