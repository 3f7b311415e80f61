"""Values that a model calls as the provider calls what it makes beside them: they stay values of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.model.single_program_model import DirectModel
from intarsia.providers.cpu.value_names import MARK, without_mark

pytest.importorskip("llvmlite", reason="kernels are compiled with llvmlite")

RNG = np.random.default_rng(0)
A = RNG.integers(0, 255, (2, 3, 5), dtype=np.uint8)
B = RNG.integers(-127, 127, (2, 5, 4), dtype=np.int8)
BIAS = RNG.integers(0, 9, (4,), dtype=np.int32)
SUMS = (A.astype(np.int64) - 7) @ B.astype(np.int64)
NAMES = ("q%sums", "y%sums", "m%packed", "y%packed", "y%rowsums", "%depth", "%m", "%y", "y%0", "a%last1", "m%last/b", "100%")
PRODUCT = """g (uint8[2,K,L] a, int8[2,L,4] b, uint8 z, int32[4] q) => (int32[2,K,4] y) {
    m = MatMulInteger(a, b, z)  y = Add(m, q) }"""
BRANCHES = """g (bool c, float[N] x) => (float[N] y) { t = Neg(x)  y = If(c) <
    then_branch = then () => (float[N] p) { v = Mul(x, t)  p = Add(v, t) },
    else_branch = other () => (float[N] q) { v = Add(x, t)  q = Sub(v, x) }> }"""


def model(text: str, **renames: str) -> onnx.ModelProto:
    """A model of this text in which names of values are others, in bodies too."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    graphs = [made.graph]
    for graph in graphs:
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = renames.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [renames.get(n, n) for n in node.input]
            node.output[:] = [renames.get(n, n) for n in node.output]
            graphs += [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("renamed", ["q", "m"])
def test_a_product_beside_a_value_of_such_a_name(name: str, renamed: str) -> None:
    session = ort.InferenceSession(model(PRODUCT, **{renamed: name}).SerializeToString())
    feeds = {"a": A.copy(), "b": B.copy(), "z": np.uint8(7), (name if renamed == "q" else "q"): BIAS.copy()}
    for _ in range(3):  # by a plan, and by the calls that it is given
        np.testing.assert_array_equal(session.run(None, feeds)[0], SUMS + BIAS)
    for given, kept in zip(feeds.values(), (A, B, 7, BIAS), strict=True):
        np.testing.assert_array_equal(given, kept)  # nothing was written into


@pytest.mark.parametrize("name", ["y%sums", "%y", "y%last0"])
def test_outputs_and_inputs_keep_their_names(name: str) -> None:
    session = ort.InferenceSession(model(PRODUCT, y=name, a="a%b").SerializeToString())
    assert [v.name for v in session.get_outputs()] == [name]
    assert [v.name for v in session.get_inputs()] == ["a%b", "b", "z", "q"]
    feeds = {"a%b": A, "b": B, "z": np.uint8(7), "q": BIAS}
    np.testing.assert_array_equal(session.run([name], feeds)[0], SUMS + BIAS)
    binding = session.io_binding()
    for key, value in feeds.items():
        binding.bind_cpu_input(key, np.asarray(value))
    result = np.zeros((2, 3, 4), np.int32)
    binding.bind_output(name, "cpu", 0, np.int32, result.shape, result.ctypes.data)
    for _ in range(2):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(result, SUMS + BIAS)
    with pytest.raises(ort.InvalidArgument, match="a%b"):
        session.run(None, {"b": B, "z": np.uint8(7), "q": BIAS})


def test_a_program_of_the_cache_has_the_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE", raising=False)
    data = model(PRODUCT, y="y%sums", q="y%packed").SerializeToString()
    for warm in (False, True):
        session = ort.InferenceSession(data)
        assert isinstance(session._model, DirectModel) == warm
        found = session.run(["y%sums"], {"a": A, "b": B, "z": np.uint8(7), "y%packed": BIAS})
        np.testing.assert_array_equal(found[0], SUMS + BIAS)
        del session


@pytest.mark.parametrize("renames", [{"x": "x%1"}, {"t": "y%then/v"}, {"v": "v%", "t": "%t", "p": "%", "y": "y%"}])
@pytest.mark.parametrize("condition", [True, False])
def test_bodies(renames: dict[str, str], condition: bool) -> None:
    session = ort.InferenceSession(model(BRANCHES, **renames).SerializeToString())
    x = np.float32([1, -2, 3])
    expected = -x * x - x if condition else -x
    (found,) = session.run(None, {"c": np.array(condition), renames.get("x", "x"): x})
    np.testing.assert_array_equal(found, expected)


def test_names_without_the_mark_are_left_alone() -> None:
    graph = load(model(PRODUCT))
    assert without_mark(graph) is graph


def test_new_names_are_of_no_other_value() -> None:
    graph = load(model(BRANCHES, x="a%", t="a_", c="a__", v="b%"))
    made = without_mark(graph)
    names = [*made.input_names(), *(n for node in made.nodes for n in (*node.inputs, *node.outputs))]
    assert not any(MARK in n for n in names)
    assert made.input_names()[0] == "a__"
    assert made.input_names()[1] not in ("a_", "a__")
    assert any(MARK in n for n in graph.input_names()), "the graph itself is as it was"
