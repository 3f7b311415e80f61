"""Casts from and to numbers of 8 bits and fewer, compiled, against ml_dtypes and the interpreter: bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia.graph.dtypes import DType

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
FLOATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1")
INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")
SOURCES = ("FLOAT", "DOUBLE", "BFLOAT16", "INT32", "BOOL")


def dtype_of(name: str) -> np.dtype[Any]:
    return DType(TensorProto.DataType.Value(name)).numpy


def ran(node: onnx.NodeProto, x: np.ndarray, to: int, provider: str, opset: int = 25) -> np.ndarray:
    """What the node makes of x; on the CPU it is compiled."""
    given = helper.make_tensor_value_info("x", int(DType.of(x.dtype)), x.shape)
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", to, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    if provider == CPU:
        assert {n.kind for n in session.explain().nodes} == {"compiled"}
    (y,) = session.run(None, {"x": x})
    return y


def every(name: str) -> np.ndarray:
    dtype = dtype_of(name)
    return np.arange(1 << DType.of(dtype).bits, dtype=np.uint8).view(dtype)


def numbers(name: str) -> np.ndarray:
    """float32: of all sizes, special ones, and those half way between two of the type, with their neighbours."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(20_000) * np.exp(rng.uniform(-12, 12, 20_000))).astype(np.float32)
    exact = every(name).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = (exact[1:] + exact[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    special = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])
    return np.concatenate([drawn, near, exact, 2 * exact, middle, *beside, special])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", FLOATS)
def test_to_floats(name: str, source: str, saturate: int) -> None:
    x = numbers(name)
    if source in ("INT32", "BOOL"):
        x = np.arange(-500 if source == "INT32" else 0, 2 if source == "BOOL" else 256)
    x = x.astype(dtype_of(source))
    to = TensorProto.DataType.Value(name)
    attributes = {} if name == "FLOAT4E2M1" else {"saturate": saturate}
    node = helper.make_node("Cast", ["x"], ["y"], to=to, **attributes)
    found, expected = (ran(node, x, to, provider) for provider in (CPU, REFERENCE))
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("target", ["FLOAT", "DOUBLE", "BFLOAT16", "INT32", "BOOL", "FLOAT8E5M2", "INT4"])
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_from_all_of_them(name: str, target: str) -> None:
    if name == target:
        return
    x, to = every(name), TensorProto.DataType.Value(target)
    if target in ("INT32", "INT4"):
        x = x[np.isfinite(x.astype(np.float32))]
    found = ran(helper.make_node("Cast", ["x"], ["y"], to=to), x, to, CPU)
    if target == "INT4":  # the low bits, where numbers are larger
        expected = ran(helper.make_node("Cast", ["x"], ["y"], to=to), x, to, REFERENCE)
    else:
        expected = x.astype(np.float32) != 0 if target == "BOOL" else x.astype(np.float32).astype(dtype_of(target))
    wide = np.float64
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))


@pytest.mark.parametrize("source", [*SOURCES, "INT64", "FLOAT8E4M3FN"])
@pytest.mark.parametrize("name", INTEGERS)
def test_to_integers(name: str, source: str) -> None:
    x = np.random.default_rng(0).standard_normal(500) * 30
    x = np.abs(x) if source == "BOOL" else x
    x, to = x.astype(np.float32).astype(dtype_of(source)), TensorProto.DataType.Value(name)
    node = helper.make_node("Cast", ["x"], ["y"], to=to)
    found, expected = (ran(node, x, to, provider) for provider in (CPU, REFERENCE))
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_denormals_as_zero_leave_narrow_floats() -> None:
    """The steps below a type's smallest normal number are float32's normal numbers, also where others are flushed."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    x = every("FLOAT8E5M2")[:8]
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=1)], "g", [helper.make_tensor_value_info("x", 19, [8])],
        [helper.make_tensor_value_info("y", 1, [8])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    (y,) = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    np.testing.assert_array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E8M0", "INT4", "FLOAT4E2M1"])
def test_they_are_moved_as_bytes(name: str) -> None:
    x = np.resize(every(name), (6, 40))
    to = TensorProto.DataType.Value(name)
    np.testing.assert_array_equal(
        ran(helper.make_node("Transpose", ["x"], ["y"]), x, to, CPU).view(np.uint8), x.T.view(np.uint8)
    )


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_padding_is_of_their_type(dtype: Any) -> None:
    x = np.arange(6).astype(dtype).reshape(2, 3)
    pads = helper.make_node("Constant", [], ["p"], value_ints=[0, 1, 0, 2])
    kind = int(DType.of(x.dtype))
    graph = helper.make_graph(
        [pads, helper.make_node("Pad", ["x", "p", "c"], ["y"])], "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)], [helper.make_tensor("c", kind, [], [3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    session = ort.InferenceSession(model.SerializeToString())
    assert "host" not in {n.kind for n in session.explain().nodes}
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y.astype(np.float32), np.pad(x.astype(np.float32), ((0, 0), (1, 2)), constant_values=3))
