"""Convolutions and pooling that write parts of a concatenation, or read parts of a split, where these lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import check, normal, session_of

import intarsia as ort
from intarsia.graph.dims import product


def labels(session: ort.InferenceSession) -> list[str]:
    (program,) = session._model.programs
    return [step.label for segment in program.executable.segments() for step in segment.steps]


def copies(session: ort.InferenceSession) -> list[str]:
    return [n for n in labels(session) if n.startswith(("Concat", "Split", "Slice", "channels"))]


CONSTANTS = {
    "a": normal(20, 12, 1, 1), "b": normal(24, 12, 3, 3, seed=1), "c": normal(12, 1, 3, 3, seed=2),
    "d": normal(40, 12, 5, 5, seed=3), "e": normal(3, 12, 3, 3, seed=4), "f": normal(32, 12, 3, 3, seed=5),
    "k": normal(20, 20, 3, 3, seed=6), "kk": normal(20, 20, 1, 1, seed=6), "bias": normal(20, seed=7),
    "s": normal(36, 96, 1, 1, seed=8), "g": normal(20, 5, 3, 3, seed=9), "w": normal(64, 16, 3, 3, seed=10),
    "one": np.array([1], np.int64),
}  # fmt: skip
PARTS = {  # what computes a part of 15 x 13 pixels
    "pointwise": "Conv(x, a)",
    "pointwise, few pixels apart": "Conv(x, a, bias)",
    "windows": "Conv <pads = [2, 2, 2, 2]> (x, d)",
    "strided window": "Conv <pads = [1, 1, 1, 1]> (x, f)",
    "3x3": "Conv <pads = [1, 1, 1, 1]> (x, b)",
    "depthwise": "Conv <pads = [1, 1, 1, 1], group = 12> (x, c)",
    "few filters": "Conv <pads = [1, 1, 1, 1]> (x, e)",
    "largest": "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)",
    "average": "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x)",
}


def used(text: str) -> dict[str, np.ndarray]:
    words = set(text.replace(",", " ").replace("(", " ").replace(")", " ").split())
    return {name: array for name, array in CONSTANTS.items() if name in words}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("part", PARTS)
def test_parts_are_computed_where_the_whole_lies(part: str, threads: int) -> None:
    text = f"""g (float[2, 12, 15, 13] x) => (float[2, m, 15, 13] z) {{
        p = {PARTS[part]}  q = Conv <pads = [1, 1, 1, 1]> (x, b)  r = Relu(q)
        y = Concat <axis = 1> (p, r, x)  z = Relu(y) }}"""
    x = {"x": normal(2, 12, 15, 13)}
    constants = used(text)
    session = check(text, x, constants=constants, rtol=2e-5)
    assert not [n for n in copies(session) if n.startswith("Concat")]
    of_threads = session_of(text, constants, threads=threads)
    np.testing.assert_allclose(of_threads.run(None, x)[0], session.run(None, x)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("reader", [
    "Conv(p, kk)", "Conv <pads = [1, 1, 1, 1]> (p, k)",
    "Conv <pads = [2, 2, 2, 2], strides = [2, 1], dilations = [2, 2]> (p, k)",
    "Conv <group = 4, pads = [1, 1, 1, 1]> (p, g)", "MaxPool <kernel_shape = [3, 3]> (p)",
])  # fmt: skip
def test_others_read_a_part_there(reader: str) -> None:
    text = f"""g (float[n, 12, 15, 13] x) => (float[n, 44, 15, 13] y, float[n, m, h, w] z) {{
        p = Conv(x, a)  q = Conv <pads = [1, 1, 1, 1]> (x, b)  y = Concat <axis = 1> (p, q)  z = {reader} }}"""
    constants = used(text)
    session = check(text, {"x": normal(2, 12, 15, 13)}, {"x": normal(5, 12, 15, 13)}, constants=constants, rtol=2e-5)
    assert copies(session) == (["channels of a concatenation"] if "group" in reader else []), "narrow groups read a copy"


def test_parts_of_a_split_are_read_there() -> None:
    text = """g (float[n, 12, h, w] x) => (float[n, m, h, w] y) {
        p = Conv <pads = [2, 2, 2, 2]> (x, d)  u, v, t = Split <axis = 1> (p, sizes)
        q = Conv <pads = [1, 1, 1, 1]> (u, k)  r = Conv <group = 12, pads = [1, 1, 1, 1]> (v, c)
        o = Concat <axis = 1> (q, r, t) y = Relu(o) }"""
    constants = used(text) | {"sizes": np.array([20, 12, 8], np.int64)}
    session = check(text, {"x": normal(2, 12, 15, 13)}, {"x": normal(1, 12, 9, 18)}, constants=constants, rtol=2e-5)
    assert copies(session) == ["channels of a concatenation"], "of the part that nothing computes"


def test_a_part_of_a_part() -> None:
    text = """g (float[1, 12, 15, 13] x) => (float[1, m, 15, 13] y) {
        p = Conv <pads = [2, 2, 2, 2]> (x, d)  u, v = Split <axis = 1> (p)  q = Conv <pads = [1, 1, 1, 1]> (u, k)
        r = Conv <pads = [1, 1, 1, 1]> (v, k)  i = Concat <axis = 1> (q, r)  y = Concat <axis = 1> (i, p) }"""
    session = check(text, {"x": normal(1, 12, 15, 13)}, constants=used(text), rtol=2e-5)
    assert copies(session) == ["channels of a concatenation"], "of the inner one; the rest is read as part of a part"


@pytest.mark.parametrize("nodes", [
    "y = Concat <axis = 1> (p, p)  z = Relu(p)", "y = Concat <axis = 1> (p, x)  z = Relu(p)",
    "y = Concat <axis = 2> (p, q)  z = Relu(p)",
    "y = Concat <axis = 1> (p, q)  z = Add(p, q)", "y = Concat <axis = 1> (p, q)  z = Conv(x, a)  p2 = Relu(z)",
    "y = Concat <axis = 1> (p, q)  o = Conv(p, kk)  z = Add(o, p)",
])  # fmt: skip
def test_others_that_read_parts(nodes: str) -> None:
    text = f"""g (float[2, 12, 15, 13] x) => (float[i, j, k1, l] y, float[a1, b1, c1, d1] z) {{
        p = Conv(x, a)  q = Conv(x, a, bias)  {nodes} }}"""
    constants = used(text)
    check(text, {"x": normal(2, 12, 15, 13)}, constants=constants, rtol=2e-5)


def test_a_part_that_is_an_output() -> None:
    text = """g (float[2, 12, 15, 13] x) => (float[2, 20, 15, 13] p, float[2, 44, 15, 13] y) {
        p = Conv(x, a)  q = Conv <pads = [1, 1, 1, 1]> (x, b)  y = Concat <axis = 1> (p, q) }"""
    check(text, {"x": normal(2, 12, 15, 13)}, constants=used(text), rtol=2e-5)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    sizes, ones = [[30], [9, 7], [9, 7, 8]][rank - 1], [1] * rank
    dims, kernel, pads = ", ".join(map(str, sizes)), [3] * rank, [1] * (2 * rank)
    text = f"""g (float[2, 12, {dims}] x) => (float[2, m, {dims}] y) {{
        p = Conv(x, a1)  q = Conv <pads = {pads}> (x, b1)  r = Conv <pads = {pads}> (p, k1)
        y = Concat <axis = 1> (p, q, r) }}"""
    constants = {"a1": normal(20, 12, *ones), "b1": normal(24, 12, *kernel, seed=1), "k1": normal(16, 20, *kernel, seed=2)}
    assert not copies(check(text, {"x": normal(2, 12, *sizes)}, constants=constants, rtol=2e-5))


def test_large_batches_go_in_parts() -> None:
    """Which rows a step takes is no concern of where its channels lie."""
    text = """g (float[n, 16, 64, 64] x) => (float[n, 36, 1, 1] y) {
        p = Conv <pads = [1, 1, 1, 1]> (x, w)  q = Conv <pads = [1, 1, 1, 1]> (x, w2)  o = Concat <axis = 1> (p, q)
        r = Conv(o, s)  y = GlobalAveragePool(r) }"""
    constants = used(text) | {"w2": normal(32, 16, 3, 3, seed=11)}
    assert product(constants["s"].shape) == 36 * 96
    check(text, {"x": normal(24, 16, 64, 64)}, constants=constants, rtol=2e-5)


def test_operands_without_axes() -> None:
    """A number is no part that channels could be put beside."""
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 2, 3, 4)), ("value", ()))]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    pads = helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 2, 0, 0, 0, 1])
    model = helper.make_model(helper.make_graph([node], "g", infos, [out], [pads]), opset_imports=[helper.make_opsetid("", 21)])
    x = normal(1, 2, 3, 4)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = np.pad(x, [(0, 0), (0, 0), (1, 0), (2, 1)], constant_values=7)
    np.testing.assert_array_equal(made.run(None, {"x": x, "value": np.array(7, np.float32)})[0], expected)
