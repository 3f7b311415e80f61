"""Casts of floats that no integer holds, and quantisation of NaN: devices have what `primitives.interpreter` says."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from device_graphs import DEVICES, opened, planned, values_of, why_not

from intarsia.device.gpu import Gpu
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

INTEGERS = (
    DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64,
)  # fmt: skip


@pytest.fixture(scope="module", params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    missing = why_not(request.param)
    if missing:
        pytest.skip(missing)
    return opened(request.param)


def numbers(dtype: DType) -> np.ndarray:
    powers = [s * 2.0**p * f for p in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for f in (1, 1 - 2.0**-20, 1 + 2.0**-20)]
    others = [0.0, -0.0, math.nan, math.inf, -math.inf, 0.5, -0.5, 1.5, 2.5, -2.5, 127.5, -128.5, 300.7, -300.7, 3e38, -3e38]
    with np.errstate(all="ignore"):
        return np.array([*powers, *others]).astype(dtype.numpy)


@pytest.mark.parametrize("source", [DType.FLOAT, DType.FLOAT16, DType.BFLOAT16], ids=lambda d: d.onnx_name)
def test_floats_as_integers(gpu: Gpu, source: DType) -> None:
    x = numbers(source)
    operand = k.input(0, source, x.shape)
    roots = [k.cast(operand, target) for target in INTEGERS]
    for target, found, wanted in zip(INTEGERS, values_of(planned(gpu, roots, [x]), [x]), interpret(roots, [x]), strict=True):
        assert np.asarray(found).reshape(-1).tolist() == wanted.tolist(), target.onnx_name


@pytest.mark.parametrize("target", [DType.INT8, DType.UINT8, DType.INT16, DType.UINT16], ids=lambda d: d.onnx_name)
def test_quantised_nan_is_the_lowest(gpu: Gpu, target: DType) -> None:
    x = numbers(DType.FLOAT)
    limits = ml_dtypes.iinfo(target.numpy)
    root = k.limited(k.unary("round", k.input(0, DType.FLOAT, x.shape)), int(limits.min), int(limits.max), target)
    (found,) = values_of(planned(gpu, [root], [x]), [x])
    wanted = np.clip(np.where(np.isnan(x), -np.inf, np.rint(x)), limits.min, limits.max).astype(target.numpy)
    assert np.asarray(found).reshape(-1).tolist() == wanted.tolist()
