"""Pools whose window is larger than the map and its pads, beside onnxruntime's; sizes are known, or only a run gives them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import onnx
from cpu_models import session_of
from onnx import parser

import intarsia
from intarsia.errors import IntarsiaError

onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of pools")

REFERENCE = "ReferenceExecutionProvider"
CASES = [  # size, kernel, stride, dilation, pads, ceil_mode
    (2, 3, 1, 1, 0, 0),
    (2, 3, 1, 1, 0, 1),
    (2, 3, 2, 1, 0, 0),
    (2, 3, 2, 1, 0, 1),
    (1, 4, 2, 1, 0, 0),
    (1, 6, 2, 1, 0, 0),
    (1, 6, 2, 1, 0, 1),
    (2, 3, 3, 2, 0, 0),
    (2, 3, 5, 2, 0, 0),
    (2, 3, 1, 2, 0, 0),
    (1, 4, 2, 1, 1, 0),
    (3, 3, 2, 1, 0, 0),
]
OPERATORS = ("MaxPool", "AveragePool", "AveragePool counting", "LpPool")


def text_of(operator: str, case: tuple[int, ...], is_open: bool) -> str:
    size, kernel, stride, dilation, pad, ceil = case
    given = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
    pairs = "".join(f"{name} = [{n}, {n}], " for name, n in given.items())
    counted = ", count_include_pad = 1" if operator.endswith("counting") else ""
    shape = "n, 3, h, w" if is_open else f"1, 3, {size}, {size + 4}"
    attributes = f"{pairs}pads = [{pad}, {pad}, {pad}, {pad}], ceil_mode = {ceil}{counted}"
    return f"g (float[{shape}] x) => (float[a, b, c, d] y) {{ y = {operator.split()[0]} <{attributes}> (x) }}"


def found(run: object, x: np.ndarray) -> np.ndarray | None:
    """The result, None where there is none."""
    try:
        return run(x)  # type: ignore[no-any-return, operator]
    except (IntarsiaError, onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        return None


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows_larger_than_maps(case: tuple[int, ...], operator: str, is_open: bool) -> None:
    header = '<ir_version: 10, opset_import: ["" : 22]>'
    text = text_of(operator, case, is_open)
    model = parser.parse_model(header + text).SerializeToString()
    x = np.random.default_rng(3).standard_normal((1, 3, case[0], case[0] + 4)).astype(np.float32)

    def peer(x: np.ndarray) -> np.ndarray:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session.run(None, {"x": x})[0]  # type: ignore[no-any-return]

    def own(x: np.ndarray) -> np.ndarray:
        return session_of(text, header=header).run(None, {"x": x})[0]  # type: ignore[no-any-return]

    def reference(x: np.ndarray) -> np.ndarray:
        return intarsia.InferenceSession(model, providers=[REFERENCE]).run(None, {"x": x})[0]  # type: ignore[no-any-return]

    expected = found(peer, x)
    for got in (found(own, x), found(reference, x)):
        assert (got is None) == (expected is None)
        if got is not None and expected is not None:
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_session_that_met_a_tiny_map_serves_others() -> None:
    """Two pools between convolutions, whose layout differs: maps that the second window does not fit into, and others."""
    text = """g (float[n, 2, h, w] x, float[4, 2, 3, 3] k) => (float[a, b, c, d] y) {
        p = Conv <pads = [1, 1, 1, 1]> (x, k)
        q = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
        y = AveragePool <kernel_shape = [3, 3], strides = [2, 2]> (q)
    }"""
    header = '<ir_version: 10, opset_import: ["" : 22]>'
    session = session_of(text, header=header)
    model = onnx.parser.parse_model(header + text).SerializeToString()
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(5)
    kernel = draw.standard_normal((4, 2, 3, 3)).astype(np.float32)
    for height, width in ((16, 16), (4, 9), (4, 9), (5, 5), (16, 16), (7, 12), (4, 9)):
        feed = {"x": draw.standard_normal((1, 2, height, width)).astype(np.float32), "k": kernel}
        got, expected = session.run(None, feed)[0], peer.run(None, feed)[0]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool", "LpPool", "NhwcMaxPool", "QLinearAveragePool"])
def test_maps_whose_size_a_run_computes(pool: str) -> None:
    """A map that an operator cuts to a size of the run: as large as the window, smaller by less than a stride, and by more."""
    microsoft = pool.startswith(("Nhwc", "QLinear"))
    kind, axis = "uint8" if microsoft else "float", 1 if pool == "NhwcMaxPool" else 2
    operands = "(v, one, zero, one, zero)" if pool == "QLinearAveragePool" else "(v)"
    text = f"""g ({kind}[a, b, c, d] x, int64[1] size) => ({kind}[e, f, g, h] y)
        <int64[1] first = {{0}}, int64[1] axis = {{{axis}}}, float one = {{1}}, uint8 zero = {{0}}> {{
        v = Slice (x, first, size, axis)
        y = {"com.microsoft." * microsoft}{pool} <kernel_shape = [4, 2], strides = [2, 2]> {operands}
    }}"""
    header = '<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>'
    model = parser.parse_model(header + text).SerializeToString()
    x = np.random.default_rng(1).integers(0, 255, (1, 6, 6, 6)).astype(np.uint8 if microsoft else np.float32)
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    own, reference = session_of(text, header=header), intarsia.InferenceSession(model, providers=[REFERENCE])
    for size in (4, 3, 2, 6, 3):
        feed = {"x": x, "size": np.array([size])}
        expected = peer.run(None, feed)[0]
        for session in (own, reference):
            got = session.run(None, feed)[0]
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=int(pool == "QLinearAveragePool"))
    for session in (own, reference):
        with pytest.raises(IntarsiaError, match=r"the kernel spans 4 elements of spatial axis 0|windows along axis"):
            session.run(None, {"x": x, "size": np.array([0])})
