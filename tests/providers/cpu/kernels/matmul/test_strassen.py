"""Products by seven multiplications instead of eight, here also on CPUs that do not take them by themselves."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import pytest

pytest.importorskip("llvmlite", reason="products are compiled with llvmlite")

import intarsia as ort
from intarsia.cache.disk_cache import DiskCache
from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import tiled_rows
from intarsia.providers.cpu.kernels.common.schedule import Candidates
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul.strassen_kernel import cut, saved
from intarsia.providers.cpu.kernels.matmul.strassen_pieces import alike_panels
from intarsia.providers.cpu.program import autotune

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
@pytest.mark.parametrize(("k", "n"), [(768, 768), (514, 500), (1030, 330), (258, 1030)])
def test_against_float64(k: int, n: int, threads: int) -> None:
    rng = np.random.default_rng(k + n)
    w, b = rng.standard_normal((k, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    seven = session(model(w, b), threads)
    for rows in (1, 49, 63, 64, 131, 128, 197, 400, 1500):
        x, r = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal((rows, n)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ w + b, 0) + r
        np.testing.assert_allclose(seven.run(None, {"x": x, "r": r})[0], expected, rtol=0, atol=1.5e-6 * k**0.5 * 8)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("k", "n"), [(384, 768), (768, 768), (1030, 330)])
def test_weights_in_16_bits(k: int, n: int, kind: type, threads: int) -> None:
    """They stay as they are stored for any number of rows, and are widened by the micro-kernels: where half of a block's steps
    are many (768 and 1030 of K, not 384), for the first of several tiles alone."""
    rng = np.random.default_rng(k + n)
    w, b = rng.standard_normal((k, n)).astype(kind).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    entries = {
        "session.arithmetic": "float16_weights" if kind is np.float16 else "bfloat16",
        "session.matrix_unit": "none",
    }
    seven, eight = (session(model(w, b), threads, entries | more) for more in ({}, OFF))
    assert any(f"{DType.of(np.dtype(kind)).name.lower()} weights" in node.kernel for node in seven.explain().nodes)
    for rows in (1, 2, 49, 64, 131, 400):
        x, r = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal((rows, n)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ w + b, 0) + r
        (found,), (other,) = (s.run(None, {"x": x, "r": r}) for s in (seven, eight))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1.5e-6 * k**0.5 * 8)
        assert rows < 400 or threads > 1 or not np.array_equal(found, other)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("k", "n"), [(768, 768), (514, 500)])
def test_dequantised_weights(k: int, n: int, threads: int) -> None:
    """Bytes with a scale for each column: the integers are multiplied, and their sums scaled."""
    rng = np.random.default_rng(k + n)
    q, s = rng.integers(-128, 128, (k, n)).astype(np.int8), (rng.random(n) * 0.02 + 0.001).astype(np.float32)
    nodes = [oh.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1), oh.make_node("MatMul", ["x", "w"], ["y"])]
    kind = onnx.TensorProto.FLOAT
    x, y = (oh.make_tensor_value_info(name, kind, ["rows", size]) for name, size in (("x", k), ("y", n)))
    held = [onnx.numpy_helper.from_array(array, name) for name, array in (("q", q), ("s", s))]
    source = oh.make_model(oh.make_graph(nodes, "g", [x], [y], held), opset_imports=[oh.make_opsetid("", 20)], ir_version=9)
    seven, eight = (session(source.SerializeToString(), threads, entries) for entries in (None, OFF))
    assert any("int8 weights" in node.kernel for node in seven.explain().nodes)
    for rows in (1, 3, 64, 131, 400):
        given = rng.standard_normal((rows, k)).astype(np.float32)
        (found,), (other,) = (made.run(None, {"x": given}) for made in (seven, eight))
        expected = (given.astype(np.float64) @ q) * s
        np.testing.assert_allclose(found, expected, rtol=0, atol=1.5e-6 * k**0.5 * 8)
        assert rows < 400 or threads > 1 or not np.array_equal(found, other)


def convolutions(weights: list[np.ndarray], bias: np.ndarray) -> bytes:
    """Halves of x's channels meet a filter bank each, their results lie beside each other, and a third bank meets these:
    y = relu(that + b + r)."""
    kind = onnx.TensorProto.FLOAT
    nodes = [
        oh.make_node("Split", ["x"], ["x0", "x1"], axis=1, num_outputs=2), oh.make_node("Conv", ["x0", "w0"], ["p0"]),
        oh.make_node("Conv", ["x1", "w1"], ["p1"]), oh.make_node("Concat", ["p0", "p1"], ["p"], axis=1),
        oh.make_node("Conv", ["p", "w2", "b"], ["s"]), oh.make_node("Add", ["s", "r"], ["t"]),
        oh.make_node("Relu", ["t"], ["y"]),
    ]  # fmt: skip
    held = [onnx.numpy_helper.from_array(w[:, :, None, None], f"w{i}") for i, w in enumerate(weights)]
    held.append(onnx.numpy_helper.from_array(bias, "b"))
    channels, filters = 2 * weights[0].shape[1], weights[2].shape[0]
    x, r, y = (
        oh.make_tensor_value_info(name, kind, ["batch", n, "h", "w"])
        for name, n in (("x", channels), ("r", filters), ("y", filters))
    )
    graph = oh.make_graph(nodes, "g", [x, r], [y], held)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("filters", "size"), [(320, (1, 14, 14)), (200, (2, 13, 9))])
def test_pointwise_convolutions_against_float64(filters: int, size: tuple[int, int, int], threads: int) -> None:
    rng = np.random.default_rng(filters)
    shapes = ((192, 384), (filters, 384), (256, 192 + filters))
    w = [(rng.standard_normal(shape) / shape[1] ** 0.5).astype(np.float32) for shape in shapes]
    b = rng.standard_normal(256).astype(np.float32)
    n, *image = size
    x, r = (rng.standard_normal((n, channels, *image)).astype(np.float32) for channels in (768, 256))
    seven, plain = (session(convolutions(w, b), threads, entries) for entries in (None, OFF))

    def product(filters: np.ndarray, image: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.einsum("fc,nchw->nfhw", filters.astype(np.float64), image.astype(np.float64))
        return found

    parts = np.concatenate([product(w[0], x[:, :384]), product(w[1], x[:, 384:])], 1)
    expected = np.maximum(product(w[2], parts) + b[:, None, None] + r, 0)
    found = seven.run(None, {"x": x, "r": r})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert (found != plain.run(None, {"x": x, "r": r})[0]).any()


def test_a_pointwise_convolution_takes_it_by_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where it is the choice of timing, the estimate, which is against it here, is not asked again."""
    rng = np.random.default_rng(7)
    w = (rng.standard_normal((128, 128, 1, 1)) / 128**0.5).astype(np.float32)
    x = rng.standard_normal((1, 128, 14, 14)).astype(np.float32)
    kind = onnx.TensorProto.FLOAT
    graph = oh.make_graph(
        [oh.make_node("Conv", ["x", "w"], ["y"])], "g", [oh.make_tensor_value_info("x", kind, x.shape)],
        [oh.make_tensor_value_info("y", kind, None)], [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    source = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9).SerializeToString()
    found = {}
    for budget, wanted in (("1000", "pointwise-strassen"), ("1001", "pointwise")):

        def times(_: object, template: object, of: Candidates, end: float, best: str = wanted) -> dict[str, int]:
            assert best in of.names
            return {name: 1 if name == best else 1000 for name in of.names}

        cache = DiskCache(tmp_path / wanted)
        monkeypatch.setattr(autotune, "get_cache", lambda cache=cache: cache)
        monkeypatch.setattr(autotune.Chooser, "_times", times)
        found[wanted] = session(source, 1, {"session.schedule_budget_ms": budget}).run(None, {"x": x})[0]
    unasked = session(source, 1).run(None, {"x": x})[0]
    expected = np.einsum("fc,nchw->nfhw", w[:, :, 0, 0].astype(np.float64), x.astype(np.float64))
    for result in found.values():
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(found["pointwise"], unasked)
    assert (found["pointwise-strassen"] != unasked).any()


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
    assert saved(40, 768, 768, 1, TILE) < 0.03, "few rows"
    assert saved(3136, 256, 64, 1, TILE) < 0, "sums of C cost more than multiplications"
    assert saved(128, 768, 767, 1, TILE) < 0, "an odd number of steps"
    assert saved(128, 768, 768, 16, TILE) < 0.03, "each thread makes the sums of A"
    assert saved(3136, 512, 128, 1, TILE) < 0.03, "few steps"


def test_tiles_are_cut_for_threads() -> None:
    assert cut(128, 768, 768, 2, TILE) == (8, 8), "sums of B for each thread would cost more than sums of A twice"
    assert cut(3136, 256, 256, 2, TILE)[0] % 2 == 0, "each thread has rows of its own, as many as the other"
    tiles, chunk = cut(100_000, 512, 256, 3, TILE)
    assert chunk < 64, "a bit of a word for each tile"
    assert 50_000 // tiles >= tiled_rows(TILE)
