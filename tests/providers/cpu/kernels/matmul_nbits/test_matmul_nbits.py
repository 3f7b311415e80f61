"""MatMulNBits and MatMulBnb4 by weights that stay packed, against float64 NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.jit import with_parts
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import kernel_text
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_int8 import takes
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat

SIZES = [
    (1, 64, 40, 32),
    (1, 100, 33, 32),
    (3, 129, 70, 16),
    (4, 256, 32, 128),
    (5, 96, 17, 32),
    (40, 65, 48, 64),
    (96, 512, 640, 32),
    (70, 1500, 150, 16),
]


def packed_bytes(numbers: np.ndarray, bits: int) -> np.ndarray:
    """[.., n] numbers into bytes, low bits first."""
    if bits == 8:
        return numbers.astype(np.uint8)
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.full((*numbers.shape[:-1], 1), 9)], -1)
    return (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8)


def model_of(node: onnx.NodeProto, kind: int, k: int, n: int, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """x [1, M, k] to y [1, M, n]."""
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, [1, "M", k])],
        [helper.make_tensor_value_info("y", kind, [1, "M", n])], [numpy_helper.from_array(v, c) for c, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("m", "k", "n", "size"), SIZES)
def test_matmul_n_bits(m: int, k: int, n: int, size: int, bits: int, zeros: str, half: bool) -> None:
    rng = np.random.default_rng(m * k + n)
    real = np.float16 if half else np.float32
    blocks = -(-k // size)
    q = rng.integers(0, 1 << bits, (n, blocks * size))
    scales = (rng.random((n, blocks)) * 0.1 + 0.01).astype(real)
    zero = rng.integers(0, 1 << bits, (n, blocks)) if zeros != "none" else np.full((n, blocks), 1 << (bits - 1))
    constants = {"b": packed_bytes(q, bits).reshape(n, blocks, -1), "s": scales, "bias": rng.normal(size=n).astype(real)}
    names = ["x", "b", "s", "", "", "bias"]
    if zeros != "none":
        names[3] = "z"
        constants["z"] = packed_bytes(zero, bits).reshape(-1) if zeros == "bytes" else zero.astype(real)
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=size)
    kind = onnx.TensorProto.FLOAT16 if half else onnx.TensorProto.FLOAT
    model = model_of(node, kind, k, n, constants)
    x = rng.normal(size=(1, m, k)).astype(real)
    spread = (q.reshape(n, blocks, size) - zero[..., None]) * scales.astype(np.float64)[..., None]
    weights = spread.reshape(n, -1)[:, :k]
    expected = x.astype(np.float64) @ weights.T + constants["bias"].astype(np.float64)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    actual = made.run(None, {"x": x})[0]
    bound = np.abs(x.astype(np.float64)) @ np.abs(weights.T) * (2e-3 if half else 1e-6) + 1e-5
    assert actual.dtype == real and (np.abs(actual - expected) <= bound).all()
    assert "gemm" in made._model.programs[0].describe("plan")
    sizes = [c.nbytes for s in made._model.programs[0].executable.segments() for c in s.constants.values()]
    assert max(sizes) < 4 * n * k or n * k < 4000, "the weights are kept packed"


@pytest.mark.parametrize("rows", ["M", 64])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "size"), [(1536, 200, 32), (200, 230, 128), (300, 200, 32), (2500, 70, 64)])
def test_few_and_many_rows(k: int, n: int, size: int, bits: int, rows: str | int) -> None:
    """One session: rows by numbers in registers, by panels, and packed rows or rows where they lie by blocks of panels."""
    rng = np.random.default_rng(k)
    blocks = -(-k // size)
    q = rng.integers(0, 1 << bits, (n, blocks * size))
    scales = (rng.random((n, blocks)) * 0.1 + 0.01).astype(np.float32)
    constants = {"b": packed_bytes(q, bits).reshape(n, blocks, -1), "s": scales}
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["p"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=size)
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["p"], ["y"])], "g", [helper.make_tensor_value_info("x", kind, [rows, k])],
        [helper.make_tensor_value_info("y", kind, [rows, n])], [numpy_helper.from_array(v, c) for c, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    spread = (q.reshape(n, blocks, size) - (1 << (bits - 1))) * scales.astype(np.float64)[..., None]
    weights = spread.reshape(n, -1)[:, :k].T
    made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    for m in (3, 130, 31, 56, 7, 1, 64) if rows == "M" else (64,):
        x = rng.standard_normal((m, k)).astype(np.float32)
        exact = np.maximum(x.astype(np.float64) @ weights, 0)
        assert (np.abs(made.run(None, {"x": x})[0] - exact) <= np.abs(x) @ np.abs(weights) * 1e-6 + 1e-5).all()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(
    ("k", "n", "size"), [(64, 40, 64), (192, 33, 64), (256, 70, 16), (100, 24, 64), (36, 8, 12), (1536, 200, 32)]
)
def test_matmul_bnb4(k: int, n: int, size: int, quant_type: int, half: bool) -> None:
    """Codes stay packed where blocks lie along K; where they do not, they are decoded."""
    rng = np.random.default_rng(k + n)
    real, kind = (np.float16, onnx.TensorProto.FLOAT16) if half else (np.float32, onnx.TensorProto.FLOAT)
    codes = rng.integers(0, 16, n * k)
    largest = (rng.random(-(-n * k // size)) + 0.1).astype(real)
    positive = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
    normal = [-1, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0, 0.07958030, 0.16093020,
              0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1]  # fmt: skip
    table = np.array([*positive, *(-v for v in positive)] if quant_type == 0 else normal)
    weights = (table[codes] * np.repeat(largest.astype(np.float64), size)[: n * k]).reshape(n, k)
    constants = {"b": (codes[::2] << 4 | codes[1::2]).astype(np.uint8), "s": largest}
    how = {"K": k, "N": n, "block_size": size, "quant_type": quant_type}
    node = helper.make_node("MatMulBnb4", ["x", "b", "s"], ["y"], domain="com.microsoft", **how)
    model = model_of(node, kind, k, n, constants)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for m in (1, 3, 9, 64):
        x = rng.normal(size=(1, m, k)).astype(real)
        exact = x.astype(np.float64) @ weights.T
        actual = made.run(None, {"x": x})[0]
        bound = np.abs(x.astype(np.float64)) @ np.abs(weights.T) * (1e-3 if half else 1e-6) + 1e-6
        assert actual.dtype == real and (np.abs(actual - exact) <= bound).all()
    sizes = [c.nbytes for s in made._model.programs[0].executable.segments() for c in s.constants.values()]
    assert max(sizes) < 4 * n * k or n * k < 4000 or k % size, "the codes are kept packed"


def rows_in_bytes(x: np.ndarray, size: int) -> np.ndarray:
    """Float64 numbers of what is left of rows when each block is rounded to signed bytes."""
    m, k = x.shape
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, -k % size)]).reshape(m, -1, size)
    scale = np.abs(wide).max(-1, keepdims=True) / 127
    return (np.rint(wide / np.where(scale == 0, 1, scale)) * scale).reshape(m, -1)[:, :k]


BYTE_SIZES = [*SIZES, (1, 2048, 96, 128), (2, 40, 50, 16), (7, 300, 130, 256), (13, 64, 64, 64)]


@pytest.mark.skipif(not takes(BlockFormat(4, 32, False), Target.host()), reason="no products of bytes for this CPU")
@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("m", "k", "n", "size"), BYTE_SIZES)
def test_rows_in_bytes(m: int, k: int, n: int, size: int, bits: int, zeros: str) -> None:
    """accuracy_level 4: against float64 products of the rounded rows, and of the rows themselves."""
    rng = np.random.default_rng(m * k + n)
    blocks = -(-k // size)
    q = rng.integers(0, 1 << bits, (n, blocks * size))
    scales = (rng.random((n, blocks)) * 0.1 + 0.01).astype(np.float32)
    zero = rng.integers(0, 1 << bits, (n, blocks)) if zeros != "none" else np.full((n, blocks), 1 << (bits - 1))
    constants = {"b": packed_bytes(q, bits).reshape(n, blocks, -1), "s": scales, "r": rng.standard_normal((m, n))}
    names = ["x", "b", "s"]
    if zeros != "none":
        names.append("z")
        constants["z"] = packed_bytes(zero, bits).reshape(-1) if zeros == "bytes" else zero.astype(np.float32)
    constants["r"] = constants["r"].astype(np.float32)
    nodes = [
        helper.make_node(
            "MatMulNBits", names, ["p"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=size, accuracy_level=4
        ),
        helper.make_node("Add", ["p", "r"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, ["M", k])], [helper.make_tensor_value_info("y", kind, ["M", n])],
        [numpy_helper.from_array(v, c) for c, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    x = rng.standard_normal((m, k)).astype(np.float32)
    x[0, : min(size, k)] = 0  # a block of zeros
    spread = (q.reshape(n, blocks, size) - zero[..., None]) * scales.astype(np.float64)[..., None]
    weights = spread.reshape(n, -1)[:, :k].T
    rounded = np.maximum(rows_in_bytes(x, size) @ weights + constants["r"], 0)
    terms = rows_in_bytes(np.abs(x), size) @ np.abs(q.reshape(n, -1)[:, :k] * np.repeat(scales, size, 1)[:, :k]).T
    made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    found = made.run(None, {"x": x})[0]
    # One number in some thousands falls to the other side of a rounding, which float32's scale decides: a step of its block.
    step = np.abs(x).max() / 127 * np.abs(weights).max()
    off = np.abs(found - rounded)
    assert (off <= 3e-6 * terms + 2 * step).all() and np.median(off / (terms + 1)) < 1e-6
    exact = np.maximum(x.astype(np.float64) @ weights + constants["r"], 0)
    assert np.sqrt(((found - exact) ** 2).mean()) <= 1.5e-2 * np.sqrt(((np.abs(x) @ np.abs(weights)) ** 2).mean())
    assert "(int8)" in plan(made)


@pytest.mark.skipif(not takes(BlockFormat(4, 32, False), Target.host()), reason="no products of bytes for this CPU")
def test_rows_in_bytes_keep_what_is_not_finite() -> None:
    """A row with NaN or an infinite number says so in every element; other rows are as they were."""
    numbers = np.random.default_rng(0).integers(0, 256, (32, 2, 16), dtype=np.uint8)
    constants = [numpy_helper.from_array(numbers, "b"), numpy_helper.from_array(np.ones((32, 2), np.float32), "s")]
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=64, N=32, bits=4, block_size=32)
    node.attribute.append(helper.make_attribute("accuracy_level", 4))
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, ["M", 64])],
        [helper.make_tensor_value_info("y", kind, ["M", 32])], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    plain = made.run(None, {"x": x})[0]
    x[2, 5], x[4, 40], x[6] = np.nan, np.inf, 1e-38
    found = made.run(None, {"x": x})[0]
    assert not np.isfinite(found[[2, 4]]).any()
    np.testing.assert_array_equal(found[[0, 1, 3, 5, 7]], plain[[0, 1, 3, 5, 7]])
    assert np.abs(found[6]).max() < 1e-34


@pytest.mark.skipif(not takes(BlockFormat(4, 32, False), Target.host()), reason="no products of bytes for this CPU")
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("size", [16, 32, 256])
@pytest.mark.parametrize("bits", [4, 8])
def test_largest_numbers_in_bytes(bits: int, size: int, rows: int) -> None:
    """Rows of one number, which becomes 127, by the largest weights and by the least: sums do not saturate."""
    k, n = 512, 24
    numbers = np.zeros((n, k), np.int64)
    numbers[::2] = (1 << bits) - 1
    constants = {
        "b": packed_bytes(numbers, bits).reshape(n, k // size, -1), "s": np.ones((n, k // size), np.float32),
        "z": packed_bytes(np.zeros((n, k // size), np.int64), bits).reshape(-1),
    }  # fmt: skip
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s", "z"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=size,
        accuracy_level=4,
    )  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, [rows, k])],
        [helper.make_tensor_value_info("y", kind, [rows, n])], [numpy_helper.from_array(v, c) for c, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    for sign in (1, -1):
        x = np.full((rows, k), sign * 0.7, np.float32)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], x.astype(np.float64) @ numbers.T, rtol=1e-6)


def plan(made: ort.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._engine.whole_model().programs)  # type: ignore[attr-defined]


@pytest.mark.parametrize("halving", [True, False])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("kind", ["UINT8", "INT8", "UINT4", "INT4"])
@pytest.mark.parametrize(("m", "k", "n", "size"), [(1, 96, 40, 32), (2, 50, 33, 0), (7, 80, 24, 16), (3, 20, 18, -1)])
def test_dequantised_weights(
    monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int, size: int, kind: str, zero: bool, halving: bool
) -> None:
    """Per block (size > 0), per column (0), or by one scale (-1)."""
    monkeypatch.setattr(targets, "_HALVING", frozenset({Target.host().cpu} if halving else ()))
    rng = np.random.default_rng(k + n)
    bits, signed = int(kind[-1]), kind[0] == "I"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    shape = {0: (n,), -1: ()}.get(size, (-(-k // max(size, 1)), n))
    q, z = rng.integers(low, high + 1, (k, n)), rng.integers(low, high + 1, shape)
    s = (rng.random(shape) * 0.1 + 0.01).astype(np.float32)
    element = getattr(onnx.TensorProto, kind)
    constants = [helper.make_tensor("q", element, q.shape, q.ravel()), numpy_helper.from_array(np.asarray(s), "s")]
    if zero:
        constants.append(helper.make_tensor("z", element, shape, np.ravel(z)))
    attributes = {"axis": 0, "block_size": size} if size > 0 else {"axis": 1} if size == 0 else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", *(["z"] if zero else [])], ["w"], **attributes),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["B", "M", k])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["B", "M", n])], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    spread = (lambda v: np.repeat(v, size, 0)[:k]) if size > 0 else (lambda v: v)
    weights = (q - (spread(z) if zero else 0)) * spread(s).astype(np.float64)
    x = rng.normal(size=(2, m, k)).astype(np.float32)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    product = x.astype(np.float64) @ weights
    bound = np.abs(x.astype(np.float64)) @ np.abs(weights) * 1e-6 + 1e-5
    assert (np.abs(made.run(None, {"x": x})[0] - np.maximum(product, 0)) <= bound).all()
    kernels = {node["kernel"] for node in made.explain().to_dict()["nodes"]}
    by_bytes = Target.host().halves_vectors and kind == "INT8" and not zero and size <= 0
    assert ("MatMul+Mul+Relu (int8 weights)" if by_bytes else "MatMulNBits+Relu") in kernels


@pytest.mark.skipif(not (Target.host().has_pairs and Target.host().halves_vectors), reason="pairs are not faster on this CPU")
@pytest.mark.parametrize("asked", ["level", "session"])
@pytest.mark.parametrize("rows", ["M", 20])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "size"), [(1536, 200, 32), (300, 230, 256), (90, 64, 16)])
def test_rows_in_pairs(k: int, n: int, size: int, bits: int, zeros: bool, rows: str | int, asked: str) -> None:
    """accuracy_level 3, or `session.arithmetic`: many rows and what they meet are rounded to bfloat16, few stay as they are."""
    rng = np.random.default_rng(k + n)
    blocks = -(-k // size)
    q = rng.integers(0, 1 << bits, (n, blocks * size))
    zero = rng.integers(0, 1 << bits, (n, blocks)) if zeros else np.full((n, blocks), 1 << (bits - 1))
    scales = (rng.random((n, blocks)) * 0.1 + 0.01).astype(np.float32)
    constants = {"b": packed_bytes(q, bits).reshape(n, blocks, -1), "s": scales}
    if zeros:
        constants["z"] = packed_bytes(zero, bits).reshape(-1)
    given = {"K": k, "N": n, "bits": bits, "block_size": size, "accuracy_level": 3 if asked == "level" else 0}
    nodes = [
        helper.make_node("MatMulNBits", ["x", *constants], ["p"], domain="com.microsoft", **given),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [rows, k])],
        [helper.make_tensor_value_info("y", kind, [rows, n])], [numpy_helper.from_array(v, c) for c, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    if asked == "session":
        options.add_session_config_entry("session.arithmetic", "bfloat16")
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    weights = ((q.reshape(n, blocks, size) - zero[..., None]) * scales.astype(np.float64)[..., None]).reshape(n, -1)[:, :k].T
    for m in (3, 130, 15, 16, 1, 40) if rows == "M" else (20,):
        x = rng.standard_normal((m, k)).astype(np.float32)
        left, right = (x, weights) if m < 16 else (v.astype(np.float32).astype(ml_dtypes.bfloat16) for v in (x, weights))
        left, right = left.astype(np.float64), right.astype(np.float64)
        difference = np.abs(made.run(None, {"x": x})[0] - np.maximum(left @ right, 0))
        # a weight that float32 rounds once more may become the neighbouring bfloat16
        assert (difference <= np.abs(left) @ np.abs(right) * (1e-6 if m < 16 else 2e-4) + 1e-5).all()
    assert "(bfloat16 by AVX512-BF16)" in made._model.programs[0].describe("plan")


def test_products_by_one_format_have_their_parts_in_common() -> None:
    """What multiplies and unpacks panels is compiled once, whatever is done with the sums."""
    host, accumulator = Target.host(), lang.input(0, DType.FLOAT, ())
    form = BlockFormat(4, 32, zeros=True)
    ends = (None, Epilogue(lang.maximum(accumulator, 0.0)))
    bare, ended = (kernel_text(GemmSpec(b_layout="blocks", blocks=form, epilogue=end), host) for end in ends)
    assert bare.symbol != ended.symbol
    assert {part.symbol for part in bare.parts} == {part.symbol for part in ended.parts}
    other = kernel_text(GemmSpec(b_layout="blocks", blocks=BlockFormat(8, 32, zeros=True)), host)
    assert not with_parts(bare.parts).keys() & with_parts(other.parts).keys()
