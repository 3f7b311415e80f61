"""Sizes that vary: one package for all of a profile, others compiled for a run, tensors without elements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import intarsia as ort

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

NAME, CPU = "CoreMLExecutionProvider", "CPUExecutionProvider"
RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.standard_normal((8, 8)), "s": RNG.standard_normal(8), "b": RNG.standard_normal(8)}
BLOCK = """<ir_version: 8, opset_import: ["": 17]> block (float[batch, tokens, 8] x) => (float[batch, tokens, 8] y)
    <int64[4] heads = {0, 0, 2, 4}, int64[3] whole = {0, 0, 8}> {
        h = LayerNormalization<axis = -1>(x, s, b)  q = MatMul(h, w)  r = Reshape(q, heads)
        t = Transpose<perm = [0, 2, 1, 3]>(r)  k = Transpose<perm = [0, 2, 3, 1]>(r)
        m = MatMul(t, k)  p = Softmax<axis = -1>(m)  o = MatMul(p, t)
        u = Transpose<perm = [0, 2, 1, 3]>(o)  v = Reshape(u, whole)  y = Add(v, x)
    }"""


def block() -> bytes:
    proto = onnx.parser.parse_model(BLOCK)
    proto.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in WEIGHTS.items())
    return proto.SerializeToString()


def expected(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * WEIGHTS["s"] + WEIGHTS["b"]
    t = (h @ WEIGHTS["w"]).reshape(*x.shape[:2], 2, 4).transpose(0, 2, 1, 3)
    m = t @ t.swapaxes(-1, -2)
    e = np.exp(m - m.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ t).transpose(0, 2, 1, 3).reshape(x.shape) + x


def session(model: bytes, **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for name, value in {"partition.keep_islands": "1", "session.cache_weights_mib": "0"}.items():
        options.add_session_config_entry(name, value)
    return ort.InferenceSession(model, options, providers=[(NAME, given), CPU])


@pytest.mark.parametrize("profile", ["batch=1..4; tokens=2..16", "batch=1,2; tokens=4,8"])
def test_one_package_for_a_profile(engine: NumPyEngine, profile: str) -> None:
    made = session(block(), ShapeProfile=profile)
    assert {row.provider for row in made.explain().nodes if row.provider} == {NAME}
    for shape in ((1, 4, 8), (2, 8, 8), (2, 4, 8)):
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-5)
    assert engine.compiled == 1
    x = RNG.standard_normal((5, 3, 8)).astype(np.float32)  # beyond the profile: a package for these sizes
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-5)
    assert engine.compiled == 2


def test_what_cannot_be_translated_for_a_range(engine: NumPyEngine) -> None:
    """An axis that is cut at its end: it is compiled for the sizes of each run, and that is said."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[m, 3] y)
        <int64[1] first = {-2}, int64[1] last = {9223372036854775807}, int64[1] axis = {0}> {
            a = Abs(x)  y = Slice(a, first, last, axis) }"""
    made = session(onnx.parser.parse_model(text).SerializeToString(), ShapeProfile="n=1..8")
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], np.abs(x[-2:]))
    assert "for the sizes of each run" in str(made.explain())


def test_without_elements(engine: NumPyEngine) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[3] y, float[n, 3] z) <int64[1] axes = {0}> {
        y = ReduceSum<keepdims = 0>(x, axes)  z = Exp(x) }"""
    made = session(onnx.parser.parse_model(text).SerializeToString())
    y, z = made.run(None, {"x": np.zeros((0, 3), np.float32)})
    assert y.tolist() == [0, 0, 0] and z.shape == (0, 3) and engine.compiled == 0
    y, _ = made.run(None, {"x": np.ones((2, 3), np.float32)})
    assert y.tolist() == [2, 2, 2] and engine.compiled == 1


class TestConvert:
    def convert(self, tmp_path: Path, **options: str) -> Any:
        from intarsia.conversion.convert import ConversionRequest, convert

        (tmp_path / "block.onnx").write_bytes(block())
        return convert(tmp_path / "block.onnx", ConversionRequest("coreml", options=options))

    def spec(self, path: Path) -> Any:
        from intarsia.providers.coreml import converter

        with converter.quiet():
            return converter.tools().utils.load_spec(str(path))

    def test_ranges_and_lists_are_in_the_package(self, tmp_path: Path) -> None:
        from mil_interpreter import MilFunction

        report = self.convert(tmp_path, profile="batch=1..4; tokens=2..16")
        assert report.complete and str(report).startswith("16 of 16 nodes translated to a Core ML package")
        path = report.parts[0].path
        array = self.spec(path).description.input[0].type.multiArrayType
        assert [(r.lowerBound, r.upperBound) for r in array.shapeRange.sizeRanges] == [(1, 4), (2, 16), (8, 8)]
        x = RNG.standard_normal((3, 5, 8)).astype(np.float32)
        np.testing.assert_allclose(MilFunction(path).run({"x": x})["y"], expected(x), rtol=1e-4, atol=1e-5)

        array = self.spec(self.convert(tmp_path, profile="batch=1; tokens=4,8").parts[0].path).description.input[0]
        assert [list(s.shape) for s in array.type.multiArrayType.enumeratedShapes.shapes] == [[1, 4, 8], [1, 8, 8]]

    def test_sizes_have_to_be_given(self, tmp_path: Path) -> None:
        from intarsia.conversion.convert import ConversionRequest, convert

        with pytest.raises(ort.InvalidArgument, match=r"'batch', 'tokens' .* vary: give --dim batch=SIZE .*--option 'profile"):
            self.convert(tmp_path)
        report = convert(tmp_path / "block.onnx", ConversionRequest("coreml", sizes={"batch": 2, "tokens": 4}))
        feature = self.spec(report.parts[0].path).description.input[0]
        assert list(feature.type.multiArrayType.shape) == [2, 4, 8] and feature.shortDescription == "x"

    def test_half(self, tmp_path: Path) -> None:
        from mil_interpreter import MilFunction

        path = self.convert(tmp_path, profile="batch=1..4; tokens=2..16", half="1").parts[0].path
        x = RNG.standard_normal((2, 4, 8)).astype(np.float32)
        found = MilFunction(path).run({"x": x})["y"]
        assert found.dtype == np.float32 and not np.allclose(found, expected(x), rtol=1e-5, atol=1e-6)
        assert np.abs(found - expected(x)).max() < 1e-2 * np.abs(expected(x)).max()
