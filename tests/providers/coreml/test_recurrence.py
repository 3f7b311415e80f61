"""Recurrences longer than what is written out step by step: a loop of the program, beside onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.providers.coreml.operators.recurrence import MOST_STEPS

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

NAME = "CoreMLExecutionProvider"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
BATCH, FEATURES, HIDDEN = 2, 4, 3


def model(op: str, steps: int, direction: str, given: dict[str, Any], with_state: bool = False) -> bytes:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return np.float32(rng.standard_normal(shape) * 0.3)

    count = 2 if direction == "bidirectional" else 1
    gates = GATES[op] * HIDDEN
    arrays = {"w": weights(count, gates, FEATURES), "r": weights(count, gates, HIDDEN), "b": weights(count, 2 * gates)}
    inputs, outputs = ["x", "w", "r", "b"], ["y", "h"] + (["c"] if op == "LSTM" else [])
    if with_state:
        arrays["h0"] = weights(count, BATCH, HIDDEN)
        inputs += ["", "h0"]
    node = helper.make_node(op, inputs, outputs, hidden_size=HIDDEN, direction=direction, **given)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, BATCH, FEATURES])
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    constants = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph([node], "g", [x], results, constants)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def session(proto: bytes, **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key in ("partition.keep_islands", "session.disable_cpu_ep_fallback"):
        options.add_session_config_entry(key, "1")
    options.add_session_config_entry("session.cache_weights_mib", "0")
    return ort.InferenceSession(proto, options, providers=[(NAME, given)])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("RNN", {}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("LSTM", {"clip": 0.5}),  # which Core ML's own lstm has not
    ],
)
def test_long_sequences_are_loops(engine: NumPyEngine, op: str, given: dict[str, Any], direction: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime (extra: test)")
    steps = MOST_STEPS + 6
    proto = model(op, steps, direction, given, with_state=op != "LSTM")
    x = np.float32(np.random.default_rng(1).standard_normal((steps, BATCH, FEATURES)))
    made = session(proto)
    found = made.run(None, {"x": x})
    wanted = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    loops = engine.kinds.count("while_loop")
    assert loops == (2 if direction == "bidirectional" else 1)


def test_short_ones_are_written_out(engine: NumPyEngine) -> None:
    proto = model("GRU", 5, "forward", {})
    session(proto).run(None, {"x": np.zeros((5, BATCH, FEATURES), np.float32)})
    assert "while_loop" not in engine.kinds


def test_in_float16(engine: NumPyEngine) -> None:
    steps = MOST_STEPS + 6
    proto = model("GRU", steps, "forward", {})
    x = np.float32(np.random.default_rng(1).standard_normal((steps, BATCH, FEATURES)))
    found = session(proto, Precision="FP16").run(None, {"x": x})[0]
    wanted = ort.InferenceSession(proto, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
    assert "while_loop" in engine.kinds
    assert 1e-6 < np.abs(found - wanted).max() < 1e-2
