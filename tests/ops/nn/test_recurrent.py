"""LSTM, GRU, RNN against torch, and by their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.errors import InvalidGraph
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.primitives.lang import DefinitionError

RNG = np.random.default_rng(3)
ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # ONNX's gates in torch's order


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluate(op: str, version: int, inputs: list[Any], **attributes: Any) -> list[Any]:
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    return evaluate_node(Node(op, names, outputs, attributes, version=version), inputs, registry())


def torch_layer(op: str, inputs: int, hidden: int, bidirectional: bool) -> tuple[Any, list[np.ndarray]]:
    """A torch module with random weights, and those weights as ONNX's W, R, B."""
    torch = pytest.importorskip("torch", reason="the reference of recurrent layers")
    module = getattr(torch.nn, op)(inputs, hidden, bidirectional=bidirectional)
    found = []
    for stem in ("weight_ih", "weight_hh", ("bias_ih", "bias_hh")):
        rows = []
        for suffix in ("_l0", "_l0_reverse")[: 2 if bidirectional else 1]:
            names = (stem,) if isinstance(stem, str) else stem
            parts = []
            for name in names:
                gates = getattr(module, name + suffix).detach().numpy().reshape(len(ORDER[op]), hidden, -1)
                parts.append(gates[list(ORDER[op])].reshape(len(ORDER[op]) * hidden, -1))
            rows.append(np.concatenate(parts) if isinstance(stem, tuple) else parts[0])
        array = np.stack(rows)
        found.append(array[..., 0] if isinstance(stem, tuple) else array)
    return module, found


@pytest.mark.parametrize("version", [7, 14, 22])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_as_torch(op: str, bidirectional: bool, version: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of recurrent layers")
    module, weights = torch_layer(op, 3, 4, bidirectional)
    x, directions = floats(6, 2, 3), 2 if bidirectional else 1
    h, c = floats(directions, 2, 4), floats(directions, 2, 4)
    state = tuple(map(torch.from_numpy, (h, c))) if op == "LSTM" else torch.from_numpy(h)
    with torch.no_grad():
        want, finals = module(torch.from_numpy(x), state)
    attributes: dict[str, Any] = {"hidden_size": 4, "direction": "bidirectional" if bidirectional else "forward"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1
    outputs = evaluate(op, version, [x, *weights, None, h, *([c] if op == "LSTM" else [])], **attributes)
    np.testing.assert_allclose(outputs[0].transpose(0, 2, 1, 3).reshape(6, 2, -1), want.numpy(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(outputs[1:], finals if op == "LSTM" else (finals,), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_shorter_sequences_stop_at_their_length(op: str) -> None:
    gates = len(ORDER[op])
    w, r, b = floats(2, gates * 4, 3), floats(2, gates * 4, 4), floats(2, 2 * gates * 4)
    x = floats(5, 2, 3)
    both = evaluate(op, 14, [x, w, r, b, np.array([5, 2], np.int32)], direction="bidirectional")
    short = evaluate(op, 14, [x[:2, 1:], w, r, b], direction="bidirectional")
    np.testing.assert_allclose(both[0][:2, :, 1:], short[0], rtol=1e-5, atol=1e-6)
    assert not both[0][2:, :, 1].any()
    for whole, part in zip(both[1:], short[1:], strict=True):
        np.testing.assert_allclose(whole[:, 1:], part, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_layout_1_is_batch_first(op: str) -> None:
    gates = len(ORDER[op])
    w, r = floats(1, gates * 4, 3), floats(1, gates * 4, 4)
    x, h = floats(5, 2, 3), floats(1, 2, 4)
    y, y_h, *_ = evaluate(op, 14, [x, w, r, None, None, h])
    first, first_h, *_ = evaluate(op, 14, [x.transpose(1, 0, 2), w, r, None, None, h.transpose(1, 0, 2)], layout=1)
    np.testing.assert_array_equal(first, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(first_h, y_h.transpose(1, 0, 2))


def test_reverse_is_forward_of_the_mirrored_sequence() -> None:
    w, r, x = floats(1, 16, 3), floats(1, 16, 4), floats(5, 2, 3)
    back, *_ = evaluate("LSTM", 7, [x, w, r], direction="reverse")
    forward, *_ = evaluate("LSTM", 7, [x[::-1], w, r])
    np.testing.assert_allclose(back, forward[::-1], rtol=1e-6)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_lstm_equations_with_peepholes_clip_and_coupled_gates() -> None:
    x, w, r, b = floats(1, 1, 3), floats(1, 16, 3), floats(1, 16, 4), floats(1, 32)
    h, c, p = floats(1, 1, 4), floats(1, 1, 4), floats(1, 12)
    y, _, y_c = evaluate("LSTM", 14, [x, w, r, b, None, h, c, p], clip=0.5, input_forget=1)
    z = (x[0] @ w[0].T + h[0] @ r[0].T + b[0, :16] + b[0, 16:]).astype(np.float64)
    zi, zo, _, zc = np.split(z, 4, 1)
    pi, po, _ = np.split(p[0], 3)
    i = sigmoid(np.clip(zi + pi * c[0], -0.5, 0.5))
    cell = (1 - i) * c[0] + i * np.tanh(np.clip(zc, -0.5, 0.5))
    o = sigmoid(np.clip(zo + po * cell, -0.5, 0.5))
    np.testing.assert_allclose(y_c[0], cell, rtol=1e-5)
    np.testing.assert_allclose(y[0, 0], o * np.tanh(cell), rtol=1e-5)


def test_activations_consume_alpha_and_beta_in_order() -> None:
    x, w, r = floats(1, 2, 3), floats(1, 12, 3), floats(1, 12, 4)
    y, _ = evaluate(
        "GRU", 14, [x, w, r], activations=["HardSigmoid", "ScaledTanh"], activation_alpha=[0.3, 0.7], activation_beta=[0.4, 0.9]
    )
    z, _, candidate = np.split(x[0].astype(np.float64) @ w[0].T, 3, 1)
    update = np.clip(0.3 * z + 0.4, 0, 1)
    np.testing.assert_allclose(y[0, 0], (1 - update) * 0.7 * np.tanh(0.9 * candidate), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions(dtype: type) -> None:
    arrays = [floats(3, 2, 3), floats(1, 4, 3), floats(1, 4, 4)]
    y, _ = evaluate("RNN", 14, [a.astype(dtype) for a in arrays])
    want, _ = evaluate("RNN", 14, arrays)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=5e-3, atol=2e-3)


def test_types_follow_symbols_and_layout() -> None:
    record = registry().find("", "LSTM", 14)
    assert record is not None
    assert record.infer is not None
    n, s = symbol("n"), symbol("s")
    weights = (TensorType(DType.FLOAT, (2, 16, 3)), TensorType(DType.FLOAT, (2, 16, 4)))
    y, y_h, y_c = record.infer(TensorType(DType.FLOAT, (n, s, 3)), *weights, layout=1)
    assert y.shape == (n, s, 2, 4)
    assert y_h.shape == y_c.shape == (n, 2, 4)


def test_refusals() -> None:
    x, w, r = floats(1, 2, 3), floats(1, 16, 3), floats(1, 16, 4)
    with pytest.raises(InvalidGraph, match="direction is 'backward'; expected forward, reverse or bidirectional"):
        evaluate("LSTM", 7, [x, w, r], direction="backward")
    with pytest.raises(InvalidGraph, match=r"W is \[1, 16, 3\] and R is \[1, 16, 4\]; expected \[2, 16, ...\]"):
        evaluate("LSTM", 7, [x, w, r], direction="bidirectional")
    with pytest.raises(InvalidGraph, match="activation 'Gelu' is not known; expected one of Sigmoid"):
        evaluate("LSTM", 7, [x, w, r], activations=["Sigmoid", "Gelu", "Tanh"])
    for op, weights, known in (("LSTM", w, r), ("GRU", floats(1, 12, 3), floats(1, 12, 4)), ("RNN", r, r)):
        with pytest.raises(InvalidGraph, match=r"X has shape \[1, 2, 3\], W \[.*\] and R \[.*\]; expected three axes each"):
            evaluate(op, 7, [x, weights, known[0]])
    record = registry().find("", "LSTM", 14)
    assert record is not None
    assert record.infer is not None
    with pytest.raises(DefinitionError, match=r"X has shape \[2, 3\], W \[1, 16, 3\]"):
        record.infer(*(TensorType(DType.FLOAT, a.shape) for a in (x[0], w, r)))
    with pytest.raises(InvalidGraph, match="activations has 2 names; expected 3"):
        evaluate("LSTM", 7, [x, w, r], activations=["Sigmoid", "Tanh"])


REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([], {"hidden_size": 5}, "hidden_size is 5; R has 4 hidden units"),
    ([], {"layout": 7}, "layout is 7; expected 0 or 1"),
    ([], {"clip": -1.0}, "clip is -1.0; expected a number that is not negative"),
    ([floats(1, 3)], {}, r"B has shape \[1, 3\]; expected \[1, 32\]"),
    ([None, np.ones(3, np.int32)], {}, r"sequence_lens has shape \[3\]; expected \[2\]"),
    ([None, None, floats(2, 2, 4)], {}, r"initial_h has shape \[2, 2, 4\]; expected \[1, 2, 4\]"),
    ([None, None, None, floats(2, 1, 4)], {}, r"initial_c has shape \[2, 1, 4\]; expected \[1, 2, 4\]"),
    ([None, None, None, None, floats(1, 4)], {}, r"P has shape \[1, 4\]; expected \[1, 12\]"),
]


@pytest.mark.parametrize(("others", "attributes", "message"), REFUSED, ids=[c[2].split()[0] for c in REFUSED])
def test_operands_that_do_not_fit(others: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        evaluate("LSTM", 14, [floats(1, 2, 3), floats(1, 16, 3), floats(1, 16, 4), *others], **attributes)
