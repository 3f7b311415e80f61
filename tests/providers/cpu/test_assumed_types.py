"""Results of loops whose types nothing but the model's declarations tell: kernels that read them are made for these, and the
run looks whether they are so. (A trip count or a condition without a type leaves a Loop's results untyped.)"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import intarsia
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
X = np.array([1, 2, 3], np.float32)
LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[3] x, int64 n, bool c) => (float[3] y, {declared} z, float[k] u) <bool yes = {{1}}> {{
    y, z = Loop (n, yes, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t, float[3] o) {{
        on = Identity (go) t = Add (s, x) o = Mul (t, x) }}>
    {reads}
}}"""
READS = {
    "Scan": """u, rows = Scan (x, z) <num_scan_inputs = 1, body = d (float[3] a, float[3] r) => (float[3] b, float[3] v) {
        b = Add (a, r) v = Mul (b, b) }>""",
    "ReduceSum": "u = ReduceSum <keepdims = 0> (z, first)",
    "Abs": "a = Abs (z) u = ReduceSum <keepdims = 0> (a, first)",
}


def model(declared: str, reads: str, typed: bool) -> bytes:
    proto = onnx.parser.parse_model(LOOP.format(declared=declared, reads=READS[reads]))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.int64([0]), "first"))
    if not typed:
        proto.graph.input[1].type.Clear()
        proto.graph.node[0].attribute[0].g.input[0].type.Clear()
    data: bytes = proto.SerializeToString()
    return data


def expected(trips: int) -> np.ndarray:
    rows = np.stack([X * (t + 2) * X for t in range(trips)])
    return rows.sum(0)


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("declared", ["float[k,3]", "float[3]", "float[2,3]", "float[1000,3]", "float[100000000]"])
def test_declared_sizes_are_compared(declared: str, reads: str) -> None:
    for typed in (True, False):
        for trips in (3, 5):
            feeds = {"x": X, "n": np.int64(trips), "c": np.bool_(True)}
            wanted = expected(trips) + (X if reads == "Scan" else 0)
            for provider in PROVIDERS:
                try:
                    session = intarsia.InferenceSession(model(declared, reads, typed), providers=[provider])
                    (u,) = session.run(["u"], feeds)
                except IntarsiaError as error:
                    assert not typed and declared != "float[k,3]", error  # noqa: PT017 (what is told is compared below)
                    continue
                np.testing.assert_allclose(u, wanted, rtol=1e-6)


@pytest.mark.parametrize("declared", ["float[3]", "float[1000,3]", "float[100000000]"])
def test_what_is_told(declared: str) -> None:
    session = intarsia.InferenceSession(model(declared, "Scan", typed=False), providers=["CPUExecutionProvider"])
    with pytest.raises(intarsia.Fail, match=r"its output 'z' is float32\[3, 3\]; expected float of shape"):
        session.run(None, {"x": X, "n": np.int64(3), "c": np.bool_(True)})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("given", [np.int8(3), np.int32(3), np.float32(3), np.int64([]), np.int64([3, 1]), np.int64(3)])
def test_trip_counts_without_a_type(given: np.ndarray, provider: str) -> None:
    """Eight bytes are read where there are eight."""
    data = model("float[k,3]", "Abs", typed=False)
    session = intarsia.InferenceSession(data, providers=[provider])
    if np.asarray(given).dtype == np.int64 and np.asarray(given).size == 1:
        np.testing.assert_allclose(session.run(["u"], {"x": X, "n": given, "c": np.bool_(True)})[0], expected(3), rtol=1e-6)
        return
    try:
        (u,) = session.run(["u"], {"x": X, "n": given, "c": np.bool_(True)})
    except IntarsiaError:
        return
    np.testing.assert_allclose(u, expected(3), rtol=1e-6)  # a number is a number


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("size", [0, 2])
def test_conditions_of_other_sizes(provider: str, size: int) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, bool[m] c) => (float[3] y) {
        y = If (c) <then_branch = a () => (float[3] p) { p = Neg (x) }, else_branch = b () => (float[3] q) { q = Abs (x) }> }"""
    proto = onnx.parser.parse_model(text)
    for declared in ("m", size):
        proto.graph.input[1].type.tensor_type.shape.dim[0].Clear()
        setattr(proto.graph.input[1].type.tensor_type.shape.dim[0], "dim_param" if declared == "m" else "dim_value", declared)
        with pytest.raises(IntarsiaError, match=r"cond|one element|size"):
            _result(proto.SerializeToString(), provider, {"x": X, "c": np.ones(size, bool)})


def _result(data: bytes, provider: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    found: np.ndarray = intarsia.InferenceSession(data, providers=[provider]).run(None, feeds)[0]
    return found
