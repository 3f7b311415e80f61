"""An If whose untaken branch has no result for the sizes of a run: every way to run a session answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import NodeFailed

TEXT = """<ir_version: 10, opset_import: ["": 20]>
g (float[a,n] x, float[m,b] y, float[a,b] z, bool flag) => (float[a,b] v, float[a,b] e) <float w = {1.0}> {
    v = If (flag) <then_branch = t () => (float[a,b] p) { p = MatMul(x, y) },
                   else_branch = f () => (float[a,b] q) { q = Neg(z) }>
    d = Exp(z)
    e = Mul(d, w)
}"""


def feeds(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (7, 4), (2, 4)))
    return {"x": x, "y": y, "z": z, "flag": np.array(False), **more}


@pytest.fixture
def session() -> ort.InferenceSession:
    model = onnx.parser.parse_model(TEXT)
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, []))  # may be overridden
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_some_outputs(session: ort.InferenceSession) -> None:
    given = feeds()
    for _ in range(3):
        for names in (None, ["v"], ["e"], ["e", "v"]):
            found = dict(zip(names or ["v", "e"], session.run(names, given), strict=True))
            if "v" in found:
                np.testing.assert_array_equal(found["v"], -given["z"])
            if "e" in found:
                np.testing.assert_allclose(found["e"], np.exp(given["z"]), rtol=1e-6)


def test_the_branch_that_is_taken(session: ort.InferenceSession) -> None:
    for names in (None, ["v"]):
        with pytest.raises(NodeFailed, match="MatMul"):
            session.run(names, feeds(flag=np.array(True)))


def test_an_overridden_initializer(session: ort.InferenceSession) -> None:
    given = feeds(w=np.float32(2))
    np.testing.assert_allclose(session.run(["e"], given)[0], 2 * np.exp(given["z"]), rtol=1e-6)
    np.testing.assert_array_equal(session.run(None, given)[0], -given["z"])


def test_taps_values_and_profiles(session: ort.InferenceSession) -> None:
    given = feeds()
    found = session.run(None, given, taps=["d"])
    np.testing.assert_allclose(found.taps["d"], np.exp(given["z"]), rtol=1e-6)  # type: ignore[attr-defined]
    values = {name: ort.OrtValue.ortvalue_from_numpy(np.asarray(value)) for name, value in given.items()}
    np.testing.assert_array_equal(session.run_with_ort_values(["v"], values)[0].numpy(), -given["z"])
    assert session.profile(given, runs=2).by_kernel()


@pytest.mark.parametrize("names", [["v", "e"], ["v"]])
def test_bindings(session: ort.InferenceSession, names: list[str]) -> None:
    given, binding = feeds(), session.io_binding()
    for name, value in given.items():
        binding.bind_cpu_input(name, np.asarray(value))
    for name in names:
        binding.bind_output(name)
    for _ in range(4):  # prepared after some
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -given["z"])


def test_a_window_that_spans_more_than_there_is() -> None:
    """Of sizes that ask for a model of their own, some outputs too."""
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[1,1,n] x) => (float[1,1,k] y, float[1,1,n] z) {
        y = MaxPool<kernel_shape=[3], ceil_mode=1>(x)  z = Relu(x) }"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.float32([[[1, -2]]])
    try:
        whole = session.run(None, {"x": x})
    except ort.Fail:
        with pytest.raises(ort.Fail):
            session.run(["z"], {"x": x})
        return
    np.testing.assert_array_equal(session.run(["z"], {"x": x})[0], whole[1])
