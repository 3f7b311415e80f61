"""Products by seven multiplications in the place of eight, here also on CPUs that do not take them by themselves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import pytest

pytest.importorskip("llvmlite", reason="products are compiled with llvmlite")

import intarsia as ort
from intarsia.codegen import target as targets
from intarsia.codegen.microkernel import Tile
from intarsia.codegen.strassen import saved
from intarsia.codegen.strassen_parts import alike_panels
from intarsia.codegen.target import Target

TILE = Tile(8, 3, 16, 4)
OFF = {"session.disable_strassen": "1"}


@pytest.fixture(autouse=True)
def halving(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Target.host()
    if host.vector_bytes != 64:
        pytest.skip("vectors of 512 bits are needed")
    monkeypatch.setattr(targets, "_HALVING", frozenset({host.cpu}))


def model(weights: np.ndarray, bias: np.ndarray) -> bytes:
    """y = relu(x W + b) + r, with any number of rows."""
    k, n = weights.shape
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Add", ["p", "b"], ["s"]), oh.make_node("Relu", ["s"], ["t"]),
        oh.make_node("Add", ["t", "r"], ["y"]),
    ]  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    x, r, y = (oh.make_tensor_value_info(name, kind, ["rows", size]) for name, size in (("x", k), ("r", n), ("y", n)))
    held = [onnx.numpy_helper.from_array(array, name) for name, array in (("w", weights), ("b", bias))]
    graph = oh.make_graph(nodes, "g", [x, r], [y], held)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9).SerializeToString()


def session(source: bytes, threads: int, entries: dict[str, str] | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("threads", [1, 2, 3, 6])
@pytest.mark.parametrize(("k", "n"), [(768, 768), (514, 500), (1030, 330)])
def test_against_float64(k: int, n: int, threads: int) -> None:
    rng = np.random.default_rng(k + n)
    w, b = rng.standard_normal((k, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    seven = session(model(w, b), threads)
    for rows in (1, 63, 131, 128, 197, 400):
        x, r = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal((rows, n)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ w + b, 0) + r
        np.testing.assert_allclose(seven.run(None, {"x": x, "r": r})[0], expected, rtol=0, atol=1.5e-6 * k**0.5 * 8)


def test_it_is_taken_unless_refused() -> None:
    rng = np.random.default_rng(5)
    w, b = rng.standard_normal((768, 768)).astype(np.float32), np.zeros(768, np.float32)
    x, r = rng.standard_normal((128, 768)).astype(np.float32), np.zeros((128, 768), np.float32)
    feeds = {"x": x, "r": r}
    plain = session(model(w, b), 2, OFF).run(None, feeds)[0]
    assert (session(model(w, b), 2).run(None, feeds)[0] != plain).any()
    options = ort.SessionOptions()
    options.use_deterministic_compute = True
    ordered = ort.InferenceSession(model(w, b), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    np.testing.assert_array_equal(ordered, plain)


@pytest.mark.parametrize("spoiled", [np.nan, np.inf, 1e6])
def test_a_row_keeps_what_it_has_to_itself(spoiled: float) -> None:
    """Neither what is not finite nor the rounding errors of a large row reach the row that would be added to it."""
    rng = np.random.default_rng(6)
    w, b = rng.standard_normal((768, 768)).astype(np.float32), np.zeros(768, np.float32)
    x, r = rng.standard_normal((128, 768)).astype(np.float32), np.zeros((128, 768), np.float32)
    x[5, 7] = spoiled
    feeds = {"x": x, "r": r}
    found, plain = (session(model(w, b), 2, entries).run(None, feeds)[0] for entries in (None, OFF))
    rows = [5, 64 + 5]
    np.testing.assert_array_equal(found[rows], plain[rows])
    assert (found != plain)[20:30].any(), "other rows are computed by seven products"


def test_columns_that_are_added_are_alike() -> None:
    w = np.random.default_rng(7).standard_normal((300, 300)).astype(np.float32)
    w[:, 10] *= 100  # of the first pair
    w[3, 200] = 1e9  # of the third
    np.testing.assert_array_equal(alike_panels(w, TILE), [0, 1, 0])
    np.testing.assert_array_equal(alike_panels(w.T, TILE), [0, 0, 0])
    np.testing.assert_array_equal(alike_panels(w[:, :50], TILE), [0])


def test_the_estimate() -> None:
    assert saved(128, 768, 768, 2, TILE) > 0.05
    assert saved(40, 768, 768, 1, TILE) < 0, "few rows"
    assert saved(3136, 256, 64, 1, TILE) < 0, "sums of C cost more than multiplications"
    assert saved(128, 768, 767, 1, TILE) < 0, "an odd number of steps"
    assert saved(128, 768, 768, 16, TILE) < 0.03, "each thread makes the sums of A"
