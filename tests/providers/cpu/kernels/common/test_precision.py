"""`session.arithmetic`: products by weights in less than float32, only where it is asked for, and said wherever one looks."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import precision
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions

HALVES = Target.host().has("avx512fp16")
UNIT = precision.pair_unit(LoweringOptions("bfloat16"), Target.host())
BOUNDS = {"float32": 1e-6, "float16_weights": 4e-4, "bfloat16": 3e-3, "float16": 4e-3}  # root mean squares
SAID = {"float32": "", "float16_weights": "float16 weights", "bfloat16": "bfloat16 weights"}
SAID["float16"] = "float16" if HALVES else "float16 weights"
if UNIT:
    SAID["bfloat16"] = precision.described_unit(UNIT, DType.FLOAT)


def model(nodes: list, inputs: dict, constants: dict[str, np.ndarray], kind: int = TensorProto.FLOAT) -> bytes:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)], [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def session(source: bytes, kind: str | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    if kind is not None:
        options.add_session_config_entry("session.arithmetic", kind)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


def plan(made: ort.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._engine.whole_model().programs)  # type: ignore[attr-defined]


PRODUCTS = {
    "MatMul": ([helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])], ["M", 300], (300, 330)),
    "Gemm": ([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1, alpha=0.5)], ["M", 300], (330, 300)),
    "Conv": ([helper.make_node("Conv", ["x", "w"], ["y"])], ["M", 300, 5, 5], (330, 300, 1, 1)),
}


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("operator", PRODUCTS)
def test_products(operator: str, kind: str) -> None:
    nodes, shape, weights = PRODUCTS[operator]
    rng = np.random.default_rng(1)
    w = rng.standard_normal(weights).astype(np.float32)
    made = session(model(nodes, {"x": shape}, {"w": w}), kind)
    for m in (1, 20, 70):
        x = rng.standard_normal((m, *shape[1:])).astype(np.float32)
        wide = x.astype(np.float64), w.astype(np.float64)
        exact = {
            "MatMul": lambda x, w: np.maximum(x @ w, 0),
            "Gemm": lambda x, w: x @ w.T / 2,
            "Conv": lambda x, w: np.einsum("nchw,mc->nmhw", x, w[:, :, 0, 0]),
        }[operator](*wide)
        assert error(made.run(None, {"x": x})[0], exact) < BOUNDS[kind]
    said = SAID[kind] if operator != "Conv" or kind == "float16" and HALVES or kind == "bfloat16" and UNIT else ""
    assert (f"({said})" in plan(made)) if said else "float16" not in plan(made)
    labels = [n.kernel for p in made._engine.whole_model().programs for n in p.nodes()]  # type: ignore[attr-defined]
    assert any(label.endswith(f"({said})") for label in labels) if said else not any("float16" in label for label in labels)


def test_what_is_asked_for_is_kept_apart() -> None:
    """In turn and again, in one process and from the cache."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((5, 80)).astype(np.float32), rng.standard_normal((80, 130)).astype(np.float32)
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [5, 80]}, {"w": w})
    first = {kind: session(source, kind).run(None, {"x": x})[0] for kind in (*BOUNDS, None)}
    again = {kind: session(source, kind).run(None, {"x": x})[0] for kind in (*BOUNDS, None)}
    for kind, found in first.items():
        np.testing.assert_array_equal(found, again[kind])
    np.testing.assert_array_equal(first["float32"], first[None])
    assert len({first[kind].tobytes() for kind in ("float32", "float16_weights", "bfloat16")}) == 3


def test_unknown_kinds_are_errors() -> None:
    with pytest.raises(InvalidArgument, match="expected one of float32,float16,float16_weights,bfloat16, got 'fp16'"):
        ort.SessionOptions().add_session_config_entry("session.arithmetic", "fp16")


def test_weights_that_do_not_fit_stay_in_float32() -> None:
    w = np.full((64, 128), 0.125, np.float32)
    w[3, 7] = 1e6
    x = np.ones((4, 64), np.float32)
    made = session(model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [4, 64]}, {"w": w}), "float16_weights")
    np.testing.assert_allclose(made.run(None, {"x": x})[0], x @ w, rtol=1e-6)
    assert "float16" not in plan(made)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_models_of_16_bits_keep_their_weights(kind: type) -> None:
    """Nothing is lost by that, so no option is needed; sums are float32's."""
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((3, 90)).astype(kind), rng.standard_normal((90, 150)).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    made = session(model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [3, 90]}, {"w": w}, element))
    exact = (x.astype(np.float64) @ w.astype(np.float64)).astype(kind)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], exact)
    assert f"({DType.of(np.dtype(kind)).name.lower()} weights)" in plan(made)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("halving", [True, False])
@pytest.mark.parametrize(("shape", "kept"), [((70,), False), (("n", 70), False), ((63,), True), (("n", 7), True)])
def test_models_of_16_bits_whose_rows_are_always_many(
    monkeypatch: pytest.MonkeyPatch, kind: type, shape: tuple[object, ...], kept: bool, halving: bool
) -> None:
    """In float32 weights are widened for rows that are many, but where the micro-kernel does so in no time."""
    host = Target.host()
    monkeypatch.setattr(targets, "_HALVING", frozenset({host.cpu} if halving else ()))
    rng = np.random.default_rng(4 + halving)
    sizes = [2 if d == "n" else d for d in shape]
    x, w = rng.standard_normal((*sizes, 96)).astype(kind), rng.standard_normal((96, 150)).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [*shape, 96]}, {"w": w}, element)
    made = session(source, "float32")
    exact = x.astype(np.float64) @ w.astype(np.float64)
    found = made.run(None, {"x": x})[0].astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=float(ml_dtypes.finfo(kind).eps), atol=1e-5)
    assert (" weights)" in plan(made)) == (kept or host.halves_vectors)


def test_cpus_without_the_instructions() -> None:
    plain = Target.create("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+f16c,+avx2")
    old = Target.create("x86_64-unknown-linux-gnu", "x86-64", "+sse2")
    asked = LoweringOptions("float16")
    assert not precision.in_halves(asked, plain) and precision.stored_type(asked, plain) is DType.FLOAT16
    assert not precision.in_halves(asked, old) and precision.stored_type(asked, old) is None
    assert precision.stored_type(LoweringOptions("bfloat16"), old) is DType.BFLOAT16
    assert precision.stored_type(LoweringOptions(), plain) is None


def test_profile_names_the_arithmetic(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    options.add_session_config_entry("session.arithmetic", "bfloat16")
    w = np.ones((64, 128), np.float32)
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [4, 64]}, {"w": w})
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    made.run(None, {"x": np.ones((4, 64), np.float32)})
    assert "(bfloat16 weights)" in Path(made.end_profiling()).read_text()
