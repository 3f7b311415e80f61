"""Exp, Sigmoid and x Sigmoid(x) as epilogues of products, in whole vectors and (on CPUs that halve these) in vectors of half
the width: errors in units of the last place, and special values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm.target import Target

WIDTH = 64
SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.7, -88.7, 1e30, -1e30], np.float32)


OPERATORS = {"Exp": "y = Exp(a)", "Sigmoid": "y = Sigmoid(a)", "Silu": "s = Sigmoid(a) y = Mul(a, s)"}
FEW = 24  # filters that are one and a half vectors


def run(text: str, x: np.ndarray, **weights: np.ndarray) -> np.ndarray:
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def behind_product(op: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{
        m = MatMul(x, w)  a = Add(m, b)  {OPERATORS[op]} }}"""
    return run(text, x, w=np.eye(WIDTH, dtype=np.float32), b=bias)


def behind_few_filters(op: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same of [pixels, FEW], by a pointwise convolution."""
    shape = f"float[1, {FEW}, 1, {len(x)}]"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({shape} x) => ({shape} y) {{
        a = Conv(x, w, b)  {OPERATORS[op]} }}"""
    weights = np.eye(FEW, dtype=np.float32)[:, :, None, None]
    return run(text, x.T[None, :, None, :].copy(), w=weights, b=bias)[0, :, 0].T


FUNCTIONS = {"Exp": np.exp, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Silu": lambda x: x / (1 + np.exp(-x))}
RANGES = [
    ("Exp", -87.0, 88.7, 3), ("Exp", -103.0, -87.0, 3), ("Sigmoid", -40.0, 90.0, 3), ("Sigmoid", -87.0, -40.0, 6),
    ("Silu", -40.0, 90.0, 4), ("Silu", -87.0, -40.0, 6),
]  # fmt: skip


@pytest.mark.parametrize(("op", "low", "high", "most"), RANGES)
def test_error(op: str, low: float, high: float, most: float) -> None:
    x = np.linspace(low, high, 20 * WIDTH, dtype=np.float32).reshape(-1, WIDTH)
    wanted = FUNCTIONS[op](x.astype(np.float64))
    found = behind_product(op, x, np.zeros(WIDTH, np.float32))
    units = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert units.max() < most


@pytest.mark.parametrize(("op", "low", "high", "most"), RANGES)
def test_error_behind_few_filters(op: str, low: float, high: float, most: float) -> None:
    x = np.linspace(low, high, 60 * FEW, dtype=np.float32).reshape(-1, FEW)
    wanted = FUNCTIONS[op](x.astype(np.float64))
    found = behind_few_filters(op, x, np.zeros(FEW, np.float32))
    units = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert units.max() < most


@pytest.mark.parametrize("op", FUNCTIONS)
def test_special_values(op: str) -> None:
    bias = np.resize(SPECIAL, WIDTH)
    function: Callable[[np.ndarray], np.ndarray] = FUNCTIONS[op]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = function(bias.astype(np.float64)).astype(np.float32)
    # Where sigmoids are no quotients, one below the smallest normal number is 0, and so is what -87.4 and less are times it.
    least = np.finfo(np.float32).tiny * (90 if op == "Silu" and not Target.host().halves_vectors else 1)
    wanted[np.abs(wanted) < least] = 0
    found = behind_product(op, np.zeros((3, WIDTH), np.float32), bias)
    found[np.abs(found) < least] = 0
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-6)
