"""Control flow, and chains of operators that fuse, run again at other sizes by the same session."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
from drawn_nodes import array, assert_close, drawn, seeds, session_of
from hypothesis import given
from hypothesis import strategies as st

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
STEPS: dict[str, Any] = {  # text of a step from `a` to `b` with [n, 8] operands x, y and vectors v [8]; the same in NumPy
    "b = Add(a, v)": lambda a, x, v: a + v,
    "b = Mul(a, x)": lambda a, x, v: a * x,
    "b = Relu(a)": lambda a, x, v: np.maximum(a, 0),
    "b = Sub(x, a)": lambda a, x, v: x - a,
    "b = Tanh(a)": lambda a, x, v: np.tanh(a),
    "b = Sigmoid(a)": lambda a, x, v: 1 / (1 + np.exp(-a)),
    "b = Softmax(a)": lambda a, x, v: np.exp(a) / np.exp(a).sum(-1, keepdims=True),
    "b = MatMul(a, w)": None,
    "m = ReduceMean<keepdims=1>(a, last)  b = Sub(a, m)": lambda a, x, v: a - a.mean(-1, keepdims=True),
    "b = LayerNormalization(a, v, v)": None,
    "t = Transpose(a)  u = Add(t, one)  b = Transpose(u)": lambda a, x, v: a + 1,
    "p, q = Split<axis=1, num_outputs=2>(a)  b = Concat<axis=1>(q, p)": lambda a, x, v: np.concatenate([a[:, 4:], a[:, :4]], 1),
    "s = Shape(a)  r = Reshape(a, flat)  k = Mul(r, one)  b = Reshape(k, s)": lambda a, x, v: a,
    "c = Greater(a, x)  b = Where(c, a, v)": lambda a, x, v: np.where(a > x, a, v),
    "b = Max(a, v)": lambda a, x, v: np.maximum(a, v),
    "m = ReduceMax<keepdims=0>(a, last)  i = Unsqueeze(m, last)  b = Add(a, i)": lambda a, x, v: a + a.max(-1, keepdims=True),
    "b = Gather<axis=1>(a, order)": lambda a, x, v: a[:, ::-1],
    "b = CumSum(a, axis)": lambda a, x, v: np.cumsum(a, 1),
}


def _numpy(step: str, a: np.ndarray, x: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
    if "MatMul" in step:
        return a @ w
    if "LayerNorm" in step:
        t = a - a.mean(-1, keepdims=True)
        return t / np.sqrt((t * t).mean(-1, keepdims=True) + 1e-5) * v + v
    return STEPS[step](a, x, v)


@drawn
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5),
    st.lists(st.sampled_from([0, 1, 2, 3, 7, 16, 33]), min_size=2, max_size=3),
    seeds,
)
def test_chains(steps: list[str], sizes: list[int], seed: int) -> None:
    body, name = [], "x"
    for i, step in enumerate(steps):
        words = step
        for other in "bmpqtusrkic":
            words = " ".join(_renamed(word, other, f"{other}{i}") for word in words.split(" "))
        body.append(" ".join(_renamed(word, "a", name) for word in words.split(" ")))
        name = f"b{i}"
    text = f"""{HEADER} g (float[n,8] x) => (float[n,8] {name})
        <int64[1] last = {{1}}, int64[1] flat = {{-1}}, float one = {{1}}
        , int64[8] order = {{7,6,5,4,3,2,1,0}}, int64 axis = {{1}}> {{ {"  ".join(body)} }}"""
    model = onnx.parser.parse_model(text)
    v, w = array(5, (8,), np.float32, low=-1, high=1), array(6, (8, 8), np.float32, low=-0.5, high=0.5)
    for constant, value in (("v", v), ("w", w)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, constant))
    data = model.SerializeToString()
    for k, n in enumerate(sizes):
        x = array(seed + k, (n, 8), np.float32, low=-2, high=2)
        expected = x.astype(np.float64)
        wanted = expected
        for step in steps:
            wanted = _numpy(step, wanted, expected, v.astype(np.float64), w.astype(np.float64))
        if any("Greater" in s for s in steps) and (k or n > 8):
            wanted = session_of(data, PROVIDERS[1]).run(None, {"x": x})[0]  # a comparison may go either way within rounding
        for provider in PROVIDERS:
            assert_close(
                session_of(data, provider).run(None, {"x": x})[0],
                wanted,
                4000,
                np.abs(wanted).max(initial=1),
                f"{steps} n={n} {provider}",
            )


def _renamed(word: str, old: str, new: str) -> str:
    """`word` with the name `old` replaced where it stands alone between signs."""
    import re

    return re.sub(rf"(?<![\w.<=]){old}(?![\w=])", new, word)


@drawn
@given(st.integers(0, 7), st.booleans(), st.sampled_from([0, 1, 2, 5]), st.integers(0, 9), seeds)
def test_loop(trips: int, counted: bool, n: int, stop: int, seed: int) -> None:
    """s doubles, then x is added; it ends after `trips` rounds or when the counter reaches `stop`; scans s and the counter."""
    text = f"""{HEADER} g (int64 trips, float[n] x, int64 stop) => (float[n] last, float[t, n] all, int64[t] counts)
        <bool true = {{1}}, float two = {{2}}, int64 one = {{1}}> {{
        last, all, counts = Loop({"trips" if counted else ""}, true, x)
            <body = body (int64 i, bool go, float[k] s)
            => (bool more, float[k] t, float[k] u, int64 j) {{
            d = Mul(s, two)  t = Add(d, x)  u = Identity(t)  j = Add(i, one)  more = Less(j, stop) }}> }}"""
    data = onnx.parser.parse_model(text).SerializeToString()
    x = array(seed, (n,), np.float32)
    rounds = min(trips, max(stop, 1)) if counted else max(stop, 1)
    s, every = x.astype(np.float64), []
    for _ in range(rounds):
        s = 2 * s + x
        every.append(s)
    for provider in PROVIDERS:
        feeds: dict[str, Any] = {"x": x, "stop": np.array(stop), "trips": np.array(trips)}
        found = session_of(data, provider).run(None, feeds)
        assert_close(found[0], s, 20, 0, provider)
        assert found[1].shape == (rounds, n) or not rounds
        if rounds:
            assert_close(found[1], np.stack(every), 20, 0, provider)
        np.testing.assert_array_equal(found[2], np.arange(1, rounds + 1))


@drawn
@given(st.booleans(), st.integers(0, 5), st.integers(0, 5), seeds)
def test_if(condition: bool, n: int, m: int, seed: int) -> None:
    """Branches of different shapes that capture outer names."""
    text = f"""{HEADER} g (bool c, float[n] x, float[m, n] y) => (float[...] z) {{
        t = Neg(x)  z = If(c) <then_branch = th () => (float[n] a) {{ a = Add(t, x) }}
            , else_branch = el () => (float[m, n] b) {{ b = Mul(y, t) }}> }}"""
    model = onnx.parser.parse_model(text.replace("float[...] z", "float z"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    data = model.SerializeToString()
    x, y = array(seed, (n,), np.float32), array(seed + 1, (m, n), np.float32)
    expected = np.zeros(n) if condition else y.astype(np.float64) * -x.astype(np.float64)
    for provider in PROVIDERS:
        assert_close(
            session_of(data, provider).run(None, {"c": np.array(condition), "x": x, "y": y})[0], expected, 4, 0, provider
        )


@drawn
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from([0, 1]), st.sampled_from([0, 1]), seeds)
def test_scan(steps: int, n: int, backward: int, turned: int, seed: int) -> None:
    """A running sum along axis 0, read and written in either direction."""
    text = f"""{HEADER} g (float[n] s, float[t, n] x) => (float[n] last, float[t, n] all) {{
        last, all = Scan<num_scan_inputs=1,
            scan_input_directions=[{backward}], scan_output_directions=[{turned}]
            , body = body (float[n] a, float[n] b) => (float[n] c, float[n] d) {{ c = Add(a, b)  d = Identity(c) }}>(s, x) }}"""
    data = onnx.parser.parse_model(text).SerializeToString()
    s, x = array(seed, (n,), np.float32), array(seed + 1, (steps, n), np.float32)
    order = x[::-1] if backward else x
    every = s.astype(np.float64) + np.cumsum(order.astype(np.float64), 0)
    for provider in PROVIDERS:
        last, all_of = session_of(data, provider).run(None, {"s": s, "x": x})
        assert_close(last, every[-1], 40, 16, provider)
        assert_close(all_of, every[::-1] if turned else every, 40, 16, provider)
