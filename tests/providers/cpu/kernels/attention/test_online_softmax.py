"""The powers of the softmax kernels against float64, in units of the last place."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.attention.online_softmax import Rows


@functools.cache
def text(name: str, target: Target) -> KernelText:
    """y[i] = exp(x[i]) or 2^x[i] for i < n, whole vectors; arguments: x, y, n."""
    module = Module(target)
    lanes = module.lanes(DType.FLOAT)
    body = module.kernel()
    x, y, n = body.load_pointer(body.args[0], 0), body.load_pointer(body.args[0], 1), body.load_i64(body.args[0], 2)
    rows = Rows(body, lanes)
    with body.loop(0, body.mul(n, 4), lanes * 4) as at:
        body.store(getattr(rows, name)(body.load(body.at(x, at), DType.FLOAT, lanes)), body.at(y, at), DType.FLOAT)
    body.b.ret_void()
    return module.text(name)


def powers(name: str, x: np.ndarray, target: Target) -> np.ndarray:
    padded = np.zeros(-(-x.size // 16) * 16, np.float32)
    padded[: x.size] = x
    out = np.zeros_like(padded)
    t.run(text(name, target), [padded.ctypes.data, out.ctypes.data, padded.size])
    return out[: x.size]


def with_and_without_scaling_instructions() -> list[Target]:
    host = t.host()
    plain = dataclasses.replace(host, features=f"{host.features},-avx512dq")
    return [host, plain] if host.has("avx512dq") else [host]


def numbers(low: float, high: float) -> np.ndarray:
    """A sample of all float32 numbers from low to high, both below 0 or both above."""
    first, last = sorted(int(np.float32(v).view(np.uint32)) for v in (low, high))
    return np.arange(first, last, 251, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("target", with_and_without_scaling_instructions(), ids=lambda target: str(target.has("avx512dq")))
@pytest.mark.parametrize(("name", "exact", "least", "most"), [("exp", np.exp, -86.5, None), ("exp2", np.exp2, -126, 126)])
def test_errors(name: str, exact: np.ufunc, least: float, most: float | None, target: Target) -> None:
    x = np.concatenate([numbers(-1e-30, least), numbers(1e-30, most) if most else np.zeros(1, np.float32)])
    expected = exact(x.astype(np.float64))
    error = np.abs(powers(name, x, target) - expected) / np.spacing(expected.astype(np.float32)).astype(np.float64)
    if name == "exp2":
        assert error.max() < 1.8
    else:
        assert (error < 1.0 + np.abs(x) / 4).all(), "x log2(e) is rounded"


@pytest.mark.parametrize("target", with_and_without_scaling_instructions(), ids=lambda target: str(target.has("avx512dq")))
def test_special_values(target: Target) -> None:
    x = np.array([0.0, -0.0, -np.inf, -127.0, -200.0, -3e38, np.nan, -1.0, 7.0], np.float32)
    np.testing.assert_array_equal(powers("exp2", x, target), np.float32([1, 1, 0, 0, 0, 0, np.nan, 0.5, 128]))
    np.testing.assert_array_equal(powers("exp", x[:7], target), np.float32([1, 1, 0, 0, 0, 0, np.nan]))
