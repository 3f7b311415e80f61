"""LSTM, GRU and RNN over drawn sizes, directions, lengths and omitted inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, wide
from hypothesis import given
from hypothesis import strategies as st
from test_movement import constants

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _step(
    op: str,
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    wb: np.ndarray,
    rb: np.ndarray,
    p: np.ndarray,
    before: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The equations of ONNX's text, with its default activations."""
    n = h.shape[1]
    if op == "RNN":
        return np.tanh(x @ w.T + h @ r.T + wb + rb), c
    if op == "LSTM":
        t = x @ w.T + h @ r.T + wb + rb
        i, o, f, g = (t[:, k * n : (k + 1) * n] for k in range(4))
        pi, po, pf = (p[k * n : (k + 1) * n] for k in range(3))
        i, f = _sigmoid(i + pi * c), _sigmoid(f + pf * c)
        c = f * c + i * np.tanh(g)
        return _sigmoid(o + po * c) * np.tanh(c), c
    a, b = x @ w.T + wb, h @ r.T + rb
    z, s = _sigmoid(a[:, :n] + b[:, :n]), _sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
    late = s * b[:, 2 * n :] if not before else (s * h) @ r[2 * n :].T + rb[2 * n :]
    g = np.tanh(a[:, 2 * n :] + late)
    return (1 - z) * g + z * h, c


@drawn
@given(
    st.sampled_from(["LSTM", "GRU", "RNN"]),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.sampled_from((np.float32, np.float64)),
    seeds,
    st.data(),
)
def test_recurrence(op: str, direction: str, dtype: Any, seed: int, data: st.DataObject) -> None:
    steps, batch = data.draw(st.sampled_from([0, 1, 2, 5])), data.draw(st.sampled_from([0, 1, 2, 3]))
    inputs, hidden = data.draw(st.sampled_from([1, 3, 8])), data.draw(st.sampled_from([1, 4, 17]))
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    x = array(seed, (steps, batch, inputs), dtype, low=-1, high=1)
    w, r = (
        array(seed + 1, (ways, gates * hidden, inputs), dtype, low=-1, high=1),
        array(seed + 2, (ways, gates * hidden, hidden), dtype, low=-1, high=1),
    )
    some = [data.draw(st.booleans()) for _ in range(5)]
    bias = array(seed + 3, (ways, 2 * gates * hidden), dtype) if some[0] else None
    lengths = np.random.default_rng(seed).integers(0, steps + 1, batch).astype(np.int32) if some[1] else None
    h0 = array(seed + 4, (ways, batch, hidden), dtype, low=-1, high=1) if some[2] else None
    c0 = array(seed + 5, (ways, batch, hidden), dtype, low=-1, high=1) if some[3] and op == "LSTM" else None
    peep = array(seed + 6, (ways, 3 * hidden), dtype) if some[4] and op == "LSTM" else None
    before = not data.draw(st.booleans())
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = int(not before)
    y = np.zeros((steps, ways, batch, hidden))
    last_h, last_c = np.zeros((ways, batch, hidden)), np.zeros((ways, batch, hidden))
    for d in range(ways):
        for b in range(batch):
            count = steps if lengths is None else int(lengths[b])
            h = np.zeros((1, hidden)) if h0 is None else wide(h0)[d, b : b + 1]
            c = np.zeros((1, hidden)) if c0 is None else wide(c0)[d, b : b + 1]
            both = np.zeros(2 * gates * hidden) if bias is None else wide(bias)[d]
            p = np.zeros(3 * hidden) if peep is None else wide(peep)[d]
            order = range(count)[::-1] if d or direction == "reverse" else range(count)
            for t in order:
                h, c = _step(
                    op,
                    wide(x)[t, b : b + 1],
                    h,
                    c,
                    wide(w)[d],
                    wide(r)[d],
                    both[: gates * hidden],
                    both[gates * hidden :],
                    p,
                    before,
                )
                y[t, d, b] = h[0]
            if count:  # without steps there is no last state: 0, as of onnxruntime
                last_h[d, b], last_c[d, b] = h[0], c[0]
    if data.draw(st.booleans()):  # the batch comes first
        attributes["layout"] = 1
        x, h0, c0 = (None if t is None else np.ascontiguousarray(t.swapaxes(0, 1)) for t in (x, h0, c0))
        y, last_h, last_c = y.transpose(2, 0, 1, 3), last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
    operands = [x, w, r, bias, lengths, h0]
    if op == "LSTM":
        node = Drawn(op, [*operands, c0, peep], attributes, outputs=3)
        expected = [y, last_h, last_c]
    else:
        node, expected = Drawn(op, operands, attributes, outputs=2), [y, last_h]
    while node.inputs and node.inputs[-1] is None:
        node.inputs = node.inputs[:-1]
    node.opset, node.constant = 22, constants(data, 1, 2, 3)
    check(node, expected, 100, scale=1)
