"""Products of 8-bit integers on the CPU provider, against NumPy's int64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

TYPES = {np.uint8: onnx.TensorProto.UINT8, np.int8: onnx.TensorProto.INT8}


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def session(nodes: list, inputs: dict, outputs: dict, constants: dict, **kwargs: object) -> intarsia.InferenceSession:
    def infos(given: dict) -> list:
        return [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), s) for n, (d, s) in given.items()
        ]

    graph = helper.make_graph(
        nodes, "g", infos(inputs), infos(outputs), [numpy_helper.from_array(v, n) for n, v in constants.items()]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"], **kwargs)


def plan_of(made: intarsia.InferenceSession) -> str:
    return made._model.programs[0].describe("plan")


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", ["none", "scalar", "vector", "run time"])
def test_matmul_integer(a_type: type, b_type: type, zeros: str, constant: bool) -> None:
    rng = np.random.default_rng(7)
    m, k, n = 5, 67, 39
    a, b = values(rng, (m, k), a_type), values(rng, (k, n), b_type)
    a_zero, b_zero = values(rng, (), a_type), values(rng, (), b_type)
    if zeros == "vector":
        a_zero, b_zero = values(rng, (m,), a_type), values(rng, (n,), b_type)
    feeds, constants = {"a": a}, {}
    (constants if constant else feeds)["b"] = b
    names = ["a", "b"]
    if zeros != "none":
        names += ["za", "zb"]
        (feeds if zeros == "run time" else constants).update(za=a_zero, zb=b_zero)
    else:
        a_zero = b_zero = np.int64(0)
    node = helper.make_node("MatMulInteger", names, ["y"])
    made = session([node], {n: (x.dtype, x.shape) for n, x in feeds.items()}, {"y": (np.int32, (m, n))}, constants)
    left = a.astype(np.int64) - (a_zero.astype(np.int64)[:, None] if zeros == "vector" else int(a_zero))
    expected = left @ (b.astype(np.int64) - b_zero.astype(np.int64))
    (y,) = made.run(None, feeds)
    np.testing.assert_array_equal(y, expected)
    assert "byte gemm" in plan_of(made)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 8, 16), (3, 0, 16), (3, 8, 0), (3, 0, 0)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_nothing_to_multiply(m: int, k: int, n: int, batch: tuple[int, ...]) -> None:
    b = np.ones((*batch, k, n), np.int8)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    made = session([node], {"a": (np.dtype(np.uint8), ("M", k))}, {"y": (np.int32, (*batch, "M", n))}, {"b": b})
    np.testing.assert_array_equal(made.run(None, {"a": np.ones((m, k), np.uint8)})[0], np.zeros((*batch, m, n), np.int32))


@pytest.mark.parametrize("deviation", [20, 90])
@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", ["none", "scalar", "run time", "of weights"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 32), (6, 70, 48), (33, 129, 40)])
def test_constant_weights(m: int, k: int, n: int, zeros: str, a_type: type, deviation: int) -> None:
    """Weights of which few are near the largest, or many: CPUs without VNNI multiply these in different ways."""
    rng, info = np.random.default_rng(8), np.iinfo(a_type)
    a = rng.choice(np.array([info.min, info.max], a_type), (m, k))
    a[0] = info.max
    b = np.clip(np.rint(rng.normal(0, deviation, (k, n))), -128, 127).astype(np.int8)
    a_zero, b_zero = values(rng, (), a_type), np.array(-100 if zeros == "of weights" else 0, np.int8)
    feeds, constants, names = {"a": a}, {"b": b, "zb": b_zero}, ["a", "b", "za", "zb"]
    if zeros == "none":
        a_zero, names = np.array(0, a_type), names[:2]
    else:
        (feeds if zeros == "run time" else constants)["za"] = a_zero
    node = helper.make_node("MatMulInteger", names, ["y"])
    made = session([node], {x: (v.dtype, v.shape) for x, v in feeds.items()}, {"y": (np.int32, (m, n))}, constants)
    expected = (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - int(b_zero))
    np.testing.assert_array_equal(made.run(None, feeds)[0], expected)


@pytest.mark.parametrize("deviation", [20, 90])
def test_constant_weights_and_any_rows(deviation: int) -> None:
    """Few rows and many by the same session."""
    rng = np.random.default_rng(9)
    b = np.clip(np.rint(rng.normal(0, deviation, (67, 40))), -128, 127).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["a", "b", "za"], ["y"])
    given = {"a": (np.uint8, ("m", 67))}
    made = session([node], given, {"y": (np.int32, ("m", 40))}, {"b": b, "za": np.array(128, np.uint8)})
    for m in (1, 3, 12, 13, 40, 2):
        a = values(rng, (m, 67), np.uint8)
        np.testing.assert_array_equal(made.run(None, {"a": a})[0], (a.astype(np.int64) - 128) @ b.astype(np.int64))


@pytest.mark.parametrize(("a_shape", "b_shape"), [
    ((2, 3, 5, 18), (2, 3, 18, 33)), ((4, 7, 20), (20, 17)), ((3, 1, 6, 9), (1, 2, 9, 4)), ((9,), (9, 5)), ((6, 9), (9,)),
    ((3, 4, 8), (3, 8, 16)), ((1, 130), (130, 70)),
])  # fmt: skip
@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int8, np.int8)])
def test_batches(a_shape: tuple[int, ...], b_shape: tuple[int, ...], types: tuple[type, type]) -> None:
    rng = np.random.default_rng(3)
    a, b = values(rng, a_shape, types[0]), values(rng, b_shape, types[1])
    za, zb = values(rng, (), types[0]), values(rng, (), types[1])
    expected = (a.astype(np.int64) - int(za)) @ (b.astype(np.int64) - int(zb))
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    feeds = {"a": a, "b": b, "za": za, "zb": zb}
    symbolic = [f"d{i}" for i in range(len(a_shape) - 1)]
    inputs = {n: (x.dtype, x.shape) for n, x in feeds.items()}
    inputs["a"] = (a.dtype, [*symbolic, "K"])
    inputs["b"] = (b.dtype, [*symbolic[: len(b_shape) - 2], "K", b_shape[-1]] if len(b_shape) == len(a_shape) else b_shape)
    if any(x != y for x, y in zip(a_shape[:-2], b_shape[:-2], strict=False)):
        inputs["a"], inputs["b"] = (a.dtype, a_shape), (b.dtype, b_shape)
    made = session([node], inputs, {"y": (np.int32, [None] * expected.ndim)}, {})
    np.testing.assert_array_equal(made.run(None, feeds)[0], expected)


@pytest.mark.parametrize(("dtype", "low", "high"), [(DType.UINT8, 0.0, 255.0), (DType.INT8, -128.0, 127.0)])
def test_a_byte_that_is_dequantised_at_once_is_not_made(dtype: DType, low: float, high: float) -> None:
    acc, zero = k.input(0, DType.INT32, (4,)), k.input(1, dtype, (4,))

    def dequantised(value: k.Tensor) -> k.Tensor:
        byte = k.cast(k.minimum(k.maximum(value, low), high), dtype)
        return k.cast(k.cast(byte, DType.INT32) - k.cast(zero, DType.INT32), DType.FLOAT) * 0.5

    def finished(value: k.Tensor) -> Epilogue:
        epilogue, _ = Correction(
            Epilogue(dequantised(value), ("scalar",), (dtype,)), [FusedOperand("z", "scalar", dtype)]
        ).finish()
        assert epilogue is not None
        return epilogue

    scaled = k.cast(acc, DType.FLOAT) * 0.3
    made = finished(k.unary("round", scaled) + k.cast(zero, DType.FLOAT)).root
    assert not [t for t in k.walk([made]) if t.prim == "cast" and t.dtype is dtype]
    assert [t for t in k.walk([finished(scaled).root]) if t.prim == "cast" and t.dtype is dtype]  # not whole numbers
    sums = np.array([-(2**31), -5, 400, 2**31 - 1], np.int32)
    given = [sums, np.full(4, 3, dtype.numpy)]
    expected = (np.clip(np.round(sums * np.float32(0.3)) + 3, low, high) - 3) * 0.5
    (found,) = interpret([made], given)
    np.testing.assert_array_equal(found, expected)
