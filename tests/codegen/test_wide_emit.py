"""Exp and Sigmoid as epilogues of products, in whole vectors: errors in units of the last place, and special values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort

WIDTH = 64
SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.7, -88.7, 1e30, -1e30], np.float32)


def behind_product(op: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{
        m = MatMul(x, w)  a = Add(m, b)  y = {op}(a) }}"""
    model = onnx.parser.parse_model(text)
    for name, array in (("w", np.eye(WIDTH, dtype=np.float32)), ("b", bias)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


FUNCTIONS = {"Exp": np.exp, "Sigmoid": lambda x: 1 / (1 + np.exp(-x))}


@pytest.mark.parametrize(("op", "low", "high"), [("Exp", -87.0, 88.7), ("Exp", -103.0, -87.0), ("Sigmoid", -87.0, 90.0)])
def test_error(op: str, low: float, high: float) -> None:
    x = np.linspace(low, high, 20 * WIDTH, dtype=np.float32).reshape(-1, WIDTH)
    wanted = FUNCTIONS[op](x.astype(np.float64))
    found = behind_product(op, x, np.zeros(WIDTH, np.float32))
    units = np.abs(found - wanted) / np.spacing(wanted.astype(np.float32))
    assert units.max() < 3


@pytest.mark.parametrize("op", FUNCTIONS)
def test_special_values(op: str) -> None:
    bias = np.resize(SPECIAL, WIDTH)
    function: Callable[[np.ndarray], np.ndarray] = FUNCTIONS[op]
    with np.errstate(over="ignore"):
        wanted = function(bias.astype(np.float64)).astype(np.float32)
    wanted[np.abs(wanted) < np.finfo(np.float32).tiny] = 0
    found = behind_product(op, np.zeros((3, WIDTH), np.float32), bias)
    found[np.abs(found) < np.finfo(np.float32).tiny] = 0
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-6)
