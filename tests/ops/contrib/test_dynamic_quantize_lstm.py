"""DynamicQuantizeLSTM against the quantised network's formulas in float64, step by step, and against onnxruntime.

X is quantised once as a whole, the state in each step, all rows of the batch by one scale. Rounding a state may fall to another
level where two computations differ by a float32's last bits, so sizes are such that this does not happen here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
Arrays = dict[str, np.ndarray]
CASES: dict[str, dict[str, Any]] = {
    "one row": {},
    "a scale per column": {"per_column": True},
    "uint8": {"dtype": np.uint8},
    "a zero point": {"zero": 3},
    "a zero point per column": {"zero": 3, "per_column": True},
    "both directions": {"directions": 2},
    "backwards": {"direction": "reverse"},
    "rows": {"batch": 4},
    "many rows": {"batch": 11, "hidden": 24},
    "ends": {"batch": 4, "ends": True},
    "ends, both directions": {"batch": 3, "directions": 2, "ends": True, "initial": True},
    "one row that ends": {"ends": True, "directions": 2},
    "initial states": {"initial": True, "dtype": np.uint8, "zero": -2},
    "peepholes": {"peepholes": True, "batch": 5, "directions": 2, "per_column": True},
    "input_forget": {"more": {"input_forget": 1}},
    "clip": {"more": {"clip": 0.3}},
    "no bias": {"bias": False},
    "odd sizes": {"hidden": 35, "features": 33, "steps": 12, "batch": 2},
    "one step": {"steps": 1, "hidden": 7, "features": 5},
    "zeros": {"amplitude": 0.0},
}


class Layer:
    """A node, its constants and what it is fed."""

    def __init__(
        self, steps: int = 10, batch: int = 1, features: int = 20, hidden: int = 16, directions: int = 1,
        per_column: bool = False, dtype: Any = np.int8, zero: int = 0, ends: bool = False, initial: bool = False,
        peepholes: bool = False, bias: bool = True, amplitude: float = 1.0, direction: str = "forward",
        more: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        rng = self.rng = np.random.default_rng(3)
        self.steps, self.batch, self.hidden, self.directions = steps, batch, hidden, directions
        self.direction, self.more = "bidirectional" if directions == 2 else direction, more or {}
        self.constants: Arrays = {}
        self.lift = 128 if dtype is np.uint8 else 0
        for name, rows in (("w", features), ("r", hidden)):
            self.weights(name, rng.standard_normal((directions, rows, 4 * hidden)) * 0.1, per_column, dtype, zero)
        if bias:
            self.constants["b"] = (rng.standard_normal((directions, 8 * hidden)) * 0.1).astype(np.float32)
        if peepholes:
            self.constants["p"] = (rng.standard_normal((directions, 3 * hidden)) * 0.1).astype(np.float32)
        self.feeds: Arrays = {"x": (rng.standard_normal((steps, batch, features)) * amplitude).astype(np.float32)}
        if ends:
            self.feeds["n"] = rng.integers(1, steps + 1, batch).astype(np.int32)
        if initial:
            for name in ("h0", "c0"):
                self.feeds[name] = (rng.standard_normal((directions, batch, hidden)) * 0.3).astype(np.float32)

    def weights(self, name: str, numbers: np.ndarray, per_column: bool, dtype: Any, zero: int) -> None:
        largest = np.abs(numbers).max(1 if per_column else (1, 2))
        scale = (largest / 120).astype(np.float32)
        point = np.full(scale.shape, zero + self.lift).astype(dtype)
        spread = (scale[:, None, :], point[:, None, :]) if per_column else (scale[:, None, None], point[:, None, None])
        levels = np.rint(numbers / spread[0]) + spread[1].astype(np.int64)
        limits = np.iinfo(dtype)
        self.constants |= {
            name: np.clip(levels, limits.min, limits.max).astype(dtype), f"{name}s": scale, f"{name}z": point
        }  # fmt: skip

    def model(self, constant: bool = True) -> bytes:
        kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}
        kinds |= {np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
        arrays = {**self.feeds, **({} if constant else self.constants)}
        names = [n if n in self.feeds or n in self.constants else "" for n in ("x", "w", "r", "b", "n", "h0", "c0", "p")]
        node = helper.make_node(
            "DynamicQuantizeLSTM", [*names, "ws", "wz", "rs", "rz"], ["y", "h", "c"], domain="com.microsoft",
            hidden_size=self.hidden, direction=self.direction, **self.more,
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "quantised",
            [helper.make_tensor_value_info(n, kinds[x.dtype], x.shape) for n, x in arrays.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "h", "c")],
            [numpy_helper.from_array(x, n) for n, x in self.constants.items()] if constant else [],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def expected(self) -> list[np.ndarray]:
        """Y, the last h and c, in float64."""
        shape = (self.directions, self.batch, self.hidden)
        h0, c0 = (self.feeds.get(n, np.zeros(shape)).astype(float) for n in ("h0", "c0"))
        ends = self.feeds.get("n", np.full(self.batch, self.steps))
        y = np.zeros((self.steps, *shape))
        for d in range(self.directions):
            backwards = self.direction == "reverse" or d == 1
            x = quantised(self.feeds["x"].astype(float)) @ self.real("w", d)
            for number in range(self.steps):
                # A sequence that has ended stands still; the scale is that of the others, and of its last state once more.
                seen = quantised(np.where((number <= ends)[:, None], h0[d], 0)) @ self.real("r", d)
                for row in np.flatnonzero(number < ends):
                    t = ends[row] - 1 - number if backwards else number
                    h0[d, row], c0[d, row] = self.step(d, x[t, row] + seen[row], c0[d, row])
                    y[t, d, row] = h0[d, row]
        return [y, h0, c0]

    def real(self, name: str, d: int) -> np.ndarray:
        scale, zero = (self.constants[f"{name}{x}"][d].astype(float) for x in "sz")
        return np.asarray((self.constants[name][d] - zero) * scale)

    def step(self, d: int, z: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, limit = self.hidden, self.more.get("clip", np.inf)
        if "b" in self.constants:
            b = self.constants["b"][d].astype(float)
            z = z + b[: 4 * n] + b[4 * n :]
        p = self.constants.get("p", np.zeros((self.directions, 3 * n)))[d].astype(float)

        def gate(x: np.ndarray) -> np.ndarray:
            return np.asarray(1 / (1 + np.exp(-np.clip(x, -limit, limit))))

        i = gate(z[:n] + p[:n] * cell)
        forget = 1 - i if self.more.get("input_forget") else gate(z[2 * n : 3 * n] + p[2 * n :] * cell)
        cell = forget * cell + i * np.tanh(np.clip(z[3 * n :], -limit, limit))
        return gate(z[n : 2 * n] + p[n : 2 * n] * cell) * np.tanh(cell), cell


def quantised(a: np.ndarray) -> np.ndarray:
    """`a` in the steps that DynamicQuantizeLinear gives it."""
    low, high = np.float32(min(0.0, a.min())), np.float32(max(0.0, a.max()))
    scale = float((high - low) / np.float32(255)) or 1.0
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.asarray((np.clip(np.rint(a / scale) + zero, 0, 255) - zero) * scale)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_steps(provider: str, case: str) -> None:
    layer = Layer(**CASES[case])
    session = ort.InferenceSession(layer.model(), providers=[provider])
    if provider == PROVIDERS[0]:
        assert all(node.kind != "host" for node in session.explain().nodes)
    for found, want in zip(session.run(None, layer.feeds), layer.expected(), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if case != "a zero point per column"])  # which it does not take
@pytest.mark.parametrize("provider", PROVIDERS)
def test_as_onnxruntime(provider: str, case: str) -> None:
    """By one thread: more of them quantise the rows of a batch apart there."""
    peer = pytest.importorskip("onnxruntime", reason="is the reference")
    layer, options = Layer(**CASES[case]), peer.SessionOptions()
    options.intra_op_num_threads = 1
    wanted = peer.InferenceSession(layer.model(), options, providers=["CPUExecutionProvider"]).run(None, layer.feeds)
    found = ort.InferenceSession(layer.model(), providers=[provider]).run(None, layer.feeds)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads(threads: int) -> None:
    layer, options = Layer(batch=5, directions=2, ends=True, steps=20), ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(layer.model(), options, providers=["CPUExecutionProvider"])
    for found, want in zip(session.run(None, layer.feeds), layer.expected(), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-6)


def test_weights_that_a_run_gives() -> None:
    layer = Layer(batch=2, per_column=True)
    session = ort.InferenceSession(layer.model(constant=False), providers=["CPUExecutionProvider"])
    found = session.run(None, {**layer.feeds, **layer.constants})
    for ours, want in zip(found, layer.expected(), strict=True):
        np.testing.assert_allclose(ours, want, atol=1e-6)
