"""AttnLSTM beside onnxruntime, and one step of it by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
NAMES = ("X", "W", "R", "B", "sequence_lens", "h", "c", "P", "QW", "MW", "V", "M", "memory_seq_lens", "AW")
SEQ, BATCH, WIDTH, HIDDEN, DEPTH, SIZE, STEPS = 4, 3, 2, 5, 4, 3, 5


def feed_of(directions: int, joined: int | None, optional: bool) -> dict[str, np.ndarray]:
    """Operands; `optional`: those too that may be left out."""
    rng = np.random.default_rng(directions)

    def drawn(*shape: int) -> np.ndarray:
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)

    d, n = directions, HIDDEN
    found = {
        "X": drawn(SEQ, BATCH, WIDTH), "W": drawn(d, 4 * n, WIDTH + (joined or DEPTH)), "R": drawn(d, 4 * n, n),
        "QW": drawn(d, n, SIZE), "MW": drawn(d, DEPTH, SIZE), "V": drawn(d, SIZE), "M": drawn(BATCH, STEPS, DEPTH),
    }  # fmt: skip
    if joined:
        found["AW"] = drawn(d, DEPTH + n, joined)
    if optional:
        found |= {"B": drawn(d, 8 * n), "h": drawn(d, BATCH, n), "c": drawn(d, BATCH, n), "P": drawn(d, 3 * n)}
        found |= {"sequence_lens": np.int32([4, 2, 3]), "memory_seq_lens": np.int32([5, 1, 3])}
    return found


def model_of(feed: dict[str, np.ndarray], **attributes: Any) -> bytes:
    node = helper.make_node(
        "AttnLSTM", [n if n in feed else "" for n in NAMES], ["Y", "Y_h", "Y_c"], "N", domain="com.microsoft", **attributes
    )
    taken = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feed.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", taken, given)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def ours(model: bytes, feed: dict[str, np.ndarray], provider: str) -> list[np.ndarray]:
    return list(intarsia.InferenceSession(model, providers=[provider]).run(None, feed))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_as_onnxruntime(direction: str, provider: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of the operator")
    attributes: tuple[dict[str, Any], ...] = (
        {}, {"input_forget": 1, "clip": 0.4},
        {"activations": ["HardSigmoid", "Softsign", "Relu"] * (2 if direction == "bidirectional" else 1)},
    )  # fmt: skip
    for joined, optional, more in itertools.product((None, 6), (False, True), attributes):
        feed = feed_of(2 if direction == "bidirectional" else 1, joined, optional)
        model = model_of(feed, hidden_size=HIDDEN, direction=direction, **more)
        expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)
        for one, other in zip(ours(model, feed, provider), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_steps_by_hand(provider: str) -> None:
    """The second step's input is joined by what the first one's output attends to."""
    feed = {n: x.astype(np.float32) for n, x in feed_of(1, None, False).items()}
    wide = {n: x.astype(np.float64) for n, x in feed.items()}
    h = c = np.zeros((BATCH, HIDDEN))
    attention = np.zeros((BATCH, DEPTH))
    outputs = []
    for x in wide["X"]:
        gates = np.concatenate([x, attention], 1) @ wide["W"][0].T + h @ wide["R"][0].T
        i, o, f, g = np.split(gates, 4, 1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        scores = np.tanh(wide["M"] @ wide["MW"][0] + (h @ wide["QW"][0])[:, None]) @ wide["V"][0]
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        attention = (weights[..., None] * wide["M"]).sum(1)
        outputs.append(h)
    found = ours(model_of(feed, hidden_size=HIDDEN), feed, provider)
    np.testing.assert_allclose(found[0][:, 0], np.array(outputs), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2][0], c, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("changes", "message"), [
    ({"W": np.zeros((20, 6), np.float32)}, r"W \[20, \d\] and R \[1, 20, 5\]; expected three axes each"),
    ({"V": None}, "QW, MW, V and M are needed"),
    ({"V": np.zeros((1, 9), np.float32)}, r"V has shape \[1, 9\]; expected \[1, 3\]"),
    ({"W": np.zeros((1, 20, 7), np.float32)}, r"W has shape \[1, 20, 7\]; expected \[1, 20, 6\]"),
    ({"memory_seq_lens": np.int32([5, 0, 3])}, r"memory_seq_lens is \[5, 0, 3\]; expected 1 to 5, the steps of M"),
])  # fmt: skip
def test_operands_that_do_not_fit(changes: dict[str, np.ndarray | None], message: str) -> None:
    feed = {n: x for n, x in (feed_of(1, None, False) | changes).items() if x is not None}
    for ranks in (True, False):  # known to the session, or only to the run
        model = onnx.ModelProto.FromString(model_of(feed, hidden_size=HIDDEN))
        for value in model.graph.input:
            if not ranks:
                value.type.tensor_type.ClearField("shape")
        with pytest.raises(IntarsiaError, match=message):
            ours(model.SerializeToString(), feed, PROVIDERS[0])
