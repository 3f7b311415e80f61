"""`session.matrix_unit`: products of bfloat16 and bytes in AMX's tiles (emulated where there are none) and by VDPBF16PS."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import precision
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions

HOST = Target.host()
NAMES = {"amx_emulated": "emulated AMX", "avx512_bf16": "AVX512-BF16", "amx": "AMX"}
PAIRS = ["amx_emulated", *(["avx512_bf16"] * HOST.has_pairs), *(["amx"] * HOST.has_tiles)]
_AVX512 = "+avx2,+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512bf16"
_AMX = f"{_AVX512},+amx-tile,+amx-bf16,+amx-int8"


def model(nodes: list, inputs: dict[str, tuple[int, list]], constants: dict[str, np.ndarray], out: int) -> bytes:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind, s) for n, (kind, s) in inputs.items()],
        [helper.make_tensor_value_info("y", out, None)], [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def session(source: bytes, unit: str, kind: str = "float32") -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.arithmetic", kind)
    options.add_session_config_entry("session.matrix_unit", unit)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def plan(made: ort.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._engine.whole_model().programs)  # type: ignore[attr-defined]


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def assert_close(found: np.ndarray, exact: np.ndarray, terms: np.ndarray) -> None:
    """Within what float32 sums of exact products may be off; `terms`: sums of their magnitudes."""
    assert found.shape == exact.shape and (np.abs(found - exact) <= 3e-6 * terms + 1e-30).all()


@pytest.mark.parametrize("unit", PAIRS)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_by_constants(transposed: bool, unit: str) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((330, 300) if transposed else (300, 330)).astype(np.float32)
    bias = rng.standard_normal(330).astype(np.float32)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["p"], transB=int(transposed))
    nodes = [node, helper.make_node("Relu", ["p"], ["y"])]
    made = session(model(nodes, {"x": (1, ["M", 300])}, {"w": w, "b": bias}, TensorProto.FLOAT), unit, "bfloat16")
    right = rounded(w.T if transposed else w)
    for m in (1, 7, 33, 130):
        x = rng.standard_normal((m, 300)).astype(np.float32)
        exact = np.maximum(rounded(x) @ right + bias, 0)
        assert_close(made.run(None, {"x": x})[0], exact, np.abs(rounded(x)) @ np.abs(right) + np.abs(bias))
    assert f"(bfloat16 by {NAMES[unit]})" in plan(made)
    labels = [n.kernel for p in made._engine.whole_model().programs for n in p.nodes()]  # type: ignore[attr-defined]
    assert any(label.endswith(f"(bfloat16 by {NAMES[unit]})") for label in labels)


CONVOLUTIONS: dict[str, tuple[list, tuple, dict[str, Any]]] = {
    "pointwise": (["N", 48, "H", "W"], (130, 48, 1, 1), {}),
    "3x3": (["N", 48, "H", "W"], (70, 48, 3, 3), {"pads": [1, 1, 1, 1]}),
    "stride": (["N", 32, "H", "W"], (64, 32, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 2]}),
    "dilation": (["N", 64, "H", "W"], (64, 64, 3, 3), {"dilations": [2, 2]}),
    "line": (["N", 48, "W"], (64, 48, 5), {"pads": [2, 2]}),
    "strided pointwise": (["N", 64, "H", "W"], (128, 64, 1, 1), {"strides": [2, 2]}),
}


def reference(x: np.ndarray, w: np.ndarray, given: dict[str, Any]) -> np.ndarray:
    """Convolution of float64 images by sums over the kernel's places."""
    rank = w.ndim - 2
    pads, ones = given.get("pads", [0] * (2 * rank)), [1] * rank
    strides, dilations = given.get("strides", ones), given.get("dilations", ones)
    x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    sizes = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    for place in np.ndindex(*w.shape[2:]):
        cut = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilations, sizes, strides, strict=True)
        )
        out += np.einsum("nc...,mc->nm...", x[(slice(None), slice(None), *cut)], w[(slice(None), slice(None), *place)])
    return out


@pytest.mark.parametrize("unit", PAIRS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, unit: str) -> None:
    shape, weights, given = CONVOLUTIONS[name]
    rng = np.random.default_rng(4)
    w = rng.standard_normal(weights).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **given)]
    made = session(model(nodes, {"x": (1, shape)}, {"w": w}, TensorProto.FLOAT), unit, "bfloat16")
    x = rng.standard_normal([{"N": 2, "H": 9, "W": 11}.get(d, d) for d in shape]).astype(np.float32)
    found = made.run(None, {"x": x})[0]
    if name not in ("3x3", "dilation") or unit != "avx512_bf16":
        assert f"(bfloat16 by {NAMES[unit]})" in plan(made)
        assert_close(found, reference(rounded(x), rounded(w), given), reference(np.abs(rounded(x)), np.abs(rounded(w)), given))
    else:  # by Winograd's method, of float32 or of pairs
        assert "winograd" in plan(made)
        exact = reference(x.astype(np.float64), w, given)
        assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 5e-3


@pytest.mark.parametrize("unit", PAIRS)
@pytest.mark.parametrize("kernel", [(7, 7), (4, 4)])
def test_few_channels(kernel: tuple[int, int], unit: str) -> None:
    """An image's first layer: lines of a window that fill a line of words, or are too short to be filled up."""
    rng = np.random.default_rng(14)
    w = rng.standard_normal((64, 3, *kernel)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2])]
    made = session(model(nodes, {"x": (1, ["N", 3, "H", "W"])}, {"w": w}, TensorProto.FLOAT), unit, "bfloat16")
    x = rng.standard_normal((1, 3, 21, 25)).astype(np.float32)
    exact = reference(x.astype(np.float64), w, {"strides": [2, 2]})
    assert np.sqrt(((made.run(None, {"x": x})[0] - exact) ** 2).mean() / (exact**2).mean()) < 4e-3


@pytest.mark.skipif(not HOST.has_pairs, reason="this CPU has no products of pairs of bfloat16 in vectors")
@pytest.mark.parametrize(("width", "causal"), [(64, 0), (24, 1), (15, 0)])
def test_attention(width: int, causal: int) -> None:
    """Many queries: in pairs where a head has an even number of elements, and 16 at least."""
    rng = np.random.default_rng(6)
    heads, length = 3, 150
    given = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": causal}
    inputs = {n: (1, ["N", "L", heads * width]) for n in "qkv"}
    graph = helper.make_graph(
        [helper.make_node("Attention", ["q", "k", "v"], ["y"], **given)], "g",
        [helper.make_tensor_value_info(n, kind, s) for n, (kind, s) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()
    made = session(source, "avx512_bf16", "bfloat16")
    feeds = {n: rng.standard_normal((2, length, heads * width)).astype(np.float32) for n in "qkv"}
    q, k, v = (feeds[n].astype(np.float64).reshape(2, length, heads, width).transpose(0, 2, 1, 3) for n in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(width)
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    exact = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, length, -1)
    found = made.run(None, feeds)[0]
    in_pairs = width % 2 == 0
    assert ("(bfloat16 by AVX512-BF16)" in plan(made)) is in_pairs
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < (6e-3 if in_pairs else 1e-5)


@pytest.mark.parametrize("unit", PAIRS)
def test_small_products_are_left_alone(unit: str) -> None:
    for shape, rows in (((300, 16), 20), ((8, 300), 20), ((300, 300), 3)):
        w = np.ones(shape, np.float32)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        made = session(model(nodes, {"x": (1, [rows, shape[0]])}, {"w": w}, TensorProto.FLOAT), unit, "bfloat16")
        np.testing.assert_allclose(made.run(None, {"x": np.ones((rows, shape[0]), np.float32)})[0], shape[0])
        assert NAMES[unit] not in plan(made)


def test_weights_that_do_not_fit_stay_in_float32() -> None:
    w = np.full((64, 128), 0.125, np.float32)
    w[3, 7] = np.finfo(np.float32).max
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = session(model(nodes, {"x": (1, [9, 64])}, {"w": w}, TensorProto.FLOAT), "amx_emulated", "bfloat16")
    x = np.full((9, 64), 0.5, np.float32)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], x @ w, rtol=1e-6)
    assert "bfloat16" not in plan(made)


# --- bytes ----------------------------------------------------------------------------------------------------------

_KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


@pytest.mark.parametrize("unit", [u for u in PAIRS if u != "avx512_bf16"])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
def test_integer_products(a_type: type, b_type: type, unit: str) -> None:
    """The same integers as without tiles, whatever the zero points."""
    rng = np.random.default_rng(5)

    def whole(kind: type, *shape: int) -> np.ndarray:
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)

    for narrow in (False, True):
        w = whole(b_type, 200, 130)
        w = w // 4 + 64 if narrow and b_type is np.uint8 else w // 4 if narrow else w
        constants = {
            "w": w.astype(b_type),
            "za": np.array(113 if a_type is np.uint8 else -7, a_type),
            "zw": np.array(3, b_type),
        }
        nodes = [helper.make_node("MatMulInteger", ["x", "w", "za", "zw"], ["y"])]
        made = session(model(nodes, {"x": (_KINDS[a_type], ["M", 200])}, constants, TensorProto.INT32), unit)
        for m in (1, 40):
            x = whole(a_type, m, 200)
            exact = (x.astype(np.int32) - int(constants["za"])) @ (constants["w"].astype(np.int32) - 3)
            np.testing.assert_array_equal(made.run(None, {"x": x})[0], exact)
        assert (f"by {NAMES[unit]}" in plan(made)) is narrow, "weights less their zero point fit into eight bits"


@pytest.mark.parametrize("unit", [u for u in PAIRS if u != "avx512_bf16"])
@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("name", ["pointwise", "3x3", "dilation", "line", "strided pointwise"])
def test_integer_convolutions(name: str, a_type: type, unit: str) -> None:
    shape, weights, given = CONVOLUTIONS[name]
    rng = np.random.default_rng(6)
    w = rng.integers(-128, 128, weights).astype(np.int8)
    zero = 100 if a_type is np.uint8 else -30
    nodes = [helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **given)]
    source = model(nodes, {"x": (_KINDS[a_type], shape)}, {"w": w, "z": np.array(zero, a_type)}, TensorProto.INT32)
    made = session(source, unit)
    sizes = [{"N": 2, "H": 9, "W": 11}.get(d, d) for d in shape]
    x = rng.integers(np.iinfo(a_type).min, np.iinfo(a_type).max + 1, sizes).astype(a_type)
    np.testing.assert_array_equal(
        made.run(None, {"x": x})[0], reference(x.astype(np.float64) - zero, w.astype(np.float64), given).astype(np.int32)
    )
    assert f"by {NAMES[unit]}" in plan(made)


@pytest.mark.parametrize("unit", [u for u in PAIRS if u != "avx512_bf16"])
def test_quantised_layers_give_the_same_bytes(unit: str) -> None:
    """QLinearMatMul with an epilogue: bit for bit what the vector instructions give."""
    rng = np.random.default_rng(7)
    constants = {
        "w": rng.integers(-100, 100, (96, 80)).astype(np.int8), "sx": np.float32(0.02), "zx": np.uint8(120),
        "sw": (rng.random(80) / 50).astype(np.float32), "zw": np.zeros(80, np.int8), "sy": np.float32(0.5), "zy": np.uint8(9),
    }  # fmt: skip
    nodes = [helper.make_node("QLinearMatMul", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["y"])]
    source = model(nodes, {"x": (2, [3, 17, 96])}, {n: np.asarray(v) for n, v in constants.items()}, TensorProto.UINT8)
    x = rng.integers(0, 256, (3, 17, 96)).astype(np.uint8)
    made = session(source, unit)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], session(source, "none").run(None, {"x": x})[0])
    assert f"by {NAMES[unit]}" in plan(made)


# --- which unit -----------------------------------------------------------------------------------------------------


def chosen(cpu: str, features: str, kind: str, unit: str = "auto") -> tuple[str, str]:
    target = Target.create("x86_64-unknown-linux-gnu", cpu, features)
    options = LoweringOptions(kind, unit)
    return precision.pair_unit(options, target), precision.byte_unit(options, target)


def test_the_unit_follows_from_the_cpu() -> None:
    assert chosen("sapphirerapids", _AMX, "bfloat16") == ("amx", "amx")
    assert chosen("sapphirerapids", _AMX, "float32") == ("", "amx"), "integers are the same with tiles, so that needs no option"
    assert chosen("sapphirerapids", _AMX, "bfloat16", "none") == ("", "")
    assert chosen("sapphirerapids", _AMX, "bfloat16", "avx512_bf16") == ("avx512_bf16", "")
    assert chosen("sapphirerapids", _AVX512, "bfloat16") == ("", ""), "VDPBF16PS has half of float32's rate on Intel's CPUs"
    assert chosen("znver4", _AVX512, "bfloat16") == chosen("znver5", _AVX512, "bfloat16") == ("avx512_bf16", "")
    assert chosen("znver4", _AVX512, "float16") == ("", "")
    assert chosen("znver3", "+avx2,+fma", "bfloat16") == ("", "")
    assert chosen("x86-64-v3", "+avx2,+fma", "bfloat16", "amx_emulated") == ("amx_emulated", "amx_emulated")


def test_what_is_not_known_to_be_fast_may_be_timed() -> None:
    def may(cpu: str, features: str, **config: str) -> bool:
        target = Target.create("x86_64-unknown-linux-gnu", cpu, features)
        return precision.may_try_pairs(LoweringOptions(**config), target)

    assert may("sapphirerapids", _AVX512, arithmetic="bfloat16")
    assert not may("sapphirerapids", _AVX512, arithmetic="float32")
    assert not may("sapphirerapids", _AVX512, arithmetic="bfloat16", matrix_unit="none")
    assert not may("sapphirerapids", _AMX, arithmetic="bfloat16")
    assert not may("znver4", _AVX512, arithmetic="bfloat16"), "taken without timing"


def test_units_that_are_not_there_are_errors() -> None:
    with pytest.raises(InvalidArgument, match=r"session.matrix_unit is 'amx', but this process cannot use AMX: .*'auto'"):
        chosen("znver4", _AVX512, "bfloat16", "amx")
    with pytest.raises(InvalidArgument, match=r"session.matrix_unit is 'avx512_bf16', but the CPU .* has no avx512bf16"):
        chosen("x86-64-v3", "+avx2,+fma", "bfloat16", "avx512_bf16")
    with pytest.raises(InvalidArgument, match="expected one of auto,none,amx,avx512_bf16,amx_emulated, got 'tiles'"):
        ort.SessionOptions().add_session_config_entry("session.matrix_unit", "tiles")


def test_nothing_changes_without_the_option() -> None:
    """Float32 products stay float32's, whatever the unit."""
    rng = np.random.default_rng(8)
    w, x = rng.standard_normal((200, 200)).astype(np.float32), rng.standard_normal((60, 200)).astype(np.float32)
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, [60, 200])}, {"w": w}, TensorProto.FLOAT)
    first = session(source, "auto").run(None, {"x": x})[0]
    for unit in ("none", *PAIRS):
        np.testing.assert_array_equal(session(source, unit).run(None, {"x": x})[0], first)


def test_names_of_units() -> None:
    assert {precision.described_unit(unit, DType.FLOAT) for unit in NAMES} == {f"bfloat16 by {n}" for n in NAMES.values()}
    assert precision.described_unit("amx", DType.UINT8) == "", "integers are what their types say"


# --- whole models ---------------------------------------------------------------------------------------------------


def network() -> tuple[bytes, dict[str, np.ndarray]]:
    """Convolutions, a residual sum, attention over the pixels, and a classifier."""
    rng = np.random.default_rng(9)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])).astype(np.float32)

    constants = {
        "w1": weights(64, 3, 3, 3), "w2": weights(96, 64, 3, 3), "w3": weights(96, 96, 1, 1), "wq": weights(96, 96),
        "wk": weights(96, 96), "wv": weights(96, 96), "wo": weights(96, 70), "b": weights(1, 70)[0], "s": np.array([0, 96, -1]),
        "scale": np.float32(96**-0.5),
    }  # fmt: skip
    lines = (
        ("Conv", ["x", "w1"], "c1", {"pads": [1] * 4}), ("Relu", ["c1"], "r1", {}),
        ("Conv", ["r1", "w2"], "c2", {"pads": [1] * 4, "strides": [2, 2]}), ("Conv", ["c2", "w3"], "c3", {}),
        ("Add", ["c2", "c3"], "sum", {}), ("Relu", ["sum"], "r2", {}), ("Reshape", ["r2", "s"], "flat", {}),
        ("Transpose", ["flat"], "t", {"perm": [0, 2, 1]}), ("MatMul", ["t", "wq"], "q", {}), ("MatMul", ["t", "wk"], "k", {}),
        ("MatMul", ["t", "wv"], "v", {}), ("Transpose", ["k"], "kt", {"perm": [0, 2, 1]}), ("MatMul", ["q", "kt"], "a", {}),
        ("Mul", ["a", "scale"], "as", {}), ("Softmax", ["as"], "p", {}), ("MatMul", ["p", "v"], "o", {}),
        ("MatMul", ["o", "wo"], "l", {}), ("Add", ["l", "b"], "y", {}),
    )  # fmt: skip
    nodes = [helper.make_node(op, inputs, [out], **given) for op, inputs, out, given in lines]
    source = model(
        nodes, {"x": (1, ["N", 3, "H", "W"])}, {n: np.asarray(v) for n, v in constants.items()}, TensorProto.FLOAT
    )  # fmt: skip
    return source, {"x": rng.standard_normal((2, 3, 14, 14)).astype(np.float32)}


@pytest.mark.parametrize("unit", PAIRS)
def test_a_network_stays_within_the_error_of_bfloat16(unit: str) -> None:
    """Rounding to bfloat16 is 2^-9 at most of a number, 2^-10.8 in the mean; some six products follow each other here."""
    source, feeds = network()
    exact = session(source, "none").run(None, feeds)[0].astype(np.float64)
    made = session(source, unit, "bfloat16")
    for _ in range(2):
        found = made.run(None, feeds)[0]
        assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 6 * 2.0**-9
    text = plan(made)
    steps = [line for line in text.splitlines() if f"by {NAMES[unit]})" in line]
    assert len(steps) >= (6 if unit != "avx512_bf16" else 4), text
    small = {"x": feeds["x"][:1, :, :9, :11]}  # other sizes, bound anew
    exact = session(source, "none").run(None, small)[0].astype(np.float64)
    found = made.run(None, small)[0]
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 6 * 2.0**-9


@pytest.mark.parametrize("unit", PAIRS)
def test_a_session_from_the_cache_goes_by_the_same_unit(unit: str) -> None:
    source, feeds = network()
    first = session(source, unit, "bfloat16").run(None, feeds)[0]
    again = session(source, unit, "bfloat16")
    np.testing.assert_array_equal(again.run(None, feeds)[0], first)
    assert not np.array_equal(first, session(source, "none", "bfloat16").run(None, feeds)[0])


@pytest.mark.parametrize("unit", PAIRS)
def test_bits_do_not_depend_on_threads(unit: str) -> None:
    source, feeds = network()
    found = []
    for threads in (1, 2, 3):
        options = ort.SessionOptions()
        options.use_deterministic_compute, options.intra_op_num_threads = True, threads
        options.add_session_config_entry("session.arithmetic", "bfloat16")
        options.add_session_config_entry("session.matrix_unit", unit)
        found.append(ort.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0])
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
