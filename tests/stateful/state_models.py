"""Small models with states, and what NumPy says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

RNG = np.random.default_rng(7)
WX, WH, WY = (RNG.standard_normal(shape).astype(np.float32) / 2 for shape in ((3, 4), (4, 4), (4, 2)))
WK = RNG.standard_normal((3, 4)).astype(np.float32)


def parsed(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def recurrent(state: str = "state", next_state: str = "stateN") -> onnx.ModelProto:
    """tanh(x wx + state wh) is the next state; y is of it. `scale` multiplies y."""
    return parsed(
        f"""g (float[batch, 3] x, float[batch, 4] {state}, float scale) => (float[batch, 2] y, float[batch, 4] {next_state}) {{
            a = MatMul(x, wx)  b = MatMul({state}, wh)  c = Add(a, b)  {next_state} = Tanh(c)
            d = MatMul({next_state}, wy)  y = Mul(d, scale) }}""",
        wx=WX, wh=WH, wy=WY,
    )  # fmt: skip


def recurrent_in_numpy(
    blocks: np.ndarray, scale: float = 1.0, state: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """y of each block [blocks, batch, 2], and the last state, in float64."""
    h = np.zeros((blocks.shape[1], 4)) if state is None else state.astype(np.float64)
    ys = []
    for x in blocks.astype(np.float64):
        h = np.tanh(x @ WX + h @ WH)
        ys.append(h @ WY * scale)
    return np.stack(ys), h


def growing(kind: str = "concat") -> onnx.ModelProto:
    """Attention of one head over all that was seen: keys and values are the same products of x. [batch, 1, length, 4] each."""
    past = "float[batch, 1, past_len, 4] past_key_values.0.key, float[batch, 1, past_len, 4] past_key_values.0.value"
    present = "float[batch, 1, total, 4] present.0.key, float[batch, 1, total, 4] present.0.value"
    text = f"""g (float[batch, seq, 3] x, {past}) => (float[batch, 1, seq, 4] y, {present}) {{
        a = MatMul(x, wk)  k = Unsqueeze(a, one)
        present.0.key = Concat<axis = 2>(past_key_values.0.key, k)
        present.0.value = Concat<axis = {2 if kind == "concat" else -2}>(past_key_values.0.value, k)
        t = Transpose<perm = [0, 1, 3, 2]>(present.0.key)  s = MatMul(k, t)  p = Softmax<axis = -1>(s)
        y = MatMul(p, present.0.value) }}"""
    for name in ("past_key_values.0.key", "past_key_values.0.value", "present.0.key", "present.0.value"):
        text = text.replace(name, name.replace(".", "_DOT_"))
    model = parsed(text, wk=WK, one=np.array([1]))
    for values in (model.graph.input, model.graph.output):
        for value in values:
            value.name = value.name.replace("_DOT_", ".")
    for node in model.graph.node:
        node.input[:] = [n.replace("_DOT_", ".") for n in node.input]
        node.output[:] = [n.replace("_DOT_", ".") for n in node.output]
    return model


def growing_in_numpy(xs: list[np.ndarray]) -> list[np.ndarray]:
    """y of each run, in float64."""
    seen: Any = None
    ys = []
    for x in xs:
        k = (x.astype(np.float64) @ WK)[:, None]
        seen = k if seen is None else np.concatenate([seen, k], 2)
        s = k @ seen.transpose(0, 1, 3, 2)
        p = np.exp(s - s.max(-1, keepdims=True))
        ys.append(p / p.sum(-1, keepdims=True) @ seen)
    return ys
