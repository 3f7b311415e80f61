"""Weights of the first tier that threads read ahead, and tables of which a run reads rows in the model's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import intarsia as ort
from intarsia.ep.provider import CompileContext
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Constant
from intarsia.providers.cpu.first_tier import kernel_image, movement, weights_ahead
from intarsia.providers.cpu.first_tier.program import FirstTierProvider
from intarsia.providers.cpu.first_tier.weights_ahead import WeightsAhead

TEXT = "g (int64[n] i, float[m, 64] x) => (float y, float z) { y = Gather<axis = 0>(t, i)  z = MatMul(x, w) }"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


TABLE, W = drawn(20_000, 64), drawn(64, 400)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {TEXT}')
    for name, array in (("t", TABLE), ("w", W)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movement, "_LARGE_NBYTES", 1 << 16)
    monkeypatch.setattr(weights_ahead, "_LEAST_NBYTES", 1 << 16)
    monkeypatch.setattr(weights_ahead, "_WORTH_NBYTES", 1)


def test_rows_of_a_constant_in_a_file(model_file: Path) -> None:
    table = load(model_file).constants["t"]
    for constant in (table, table.renamed("u").renamed("v")):
        read = constant.read_row
        assert read is not None
        for row in (0, 17, 19_999):
            room = np.empty(64, np.float32)
            read(row, room)
            np.testing.assert_array_equal(room, TABLE[row])
        with pytest.raises(IndexError, match="bytes"):
            read(1 << 30, np.empty(64, np.float32))
    assert Constant.of("t", TABLE).read_row is None
    assert load(model_file.read_bytes()).constants["t"].read_row is None


@pytest.mark.parametrize("first_tier_only", ["0", "1"])
def test_a_lookup_reads_the_rows_it_needs(model_file: Path, first_tier_only: str) -> None:
    """But of sessions that stay with the first tier, whose file may change."""
    pytest.importorskip("llvmlite", reason="its kernels are compiled with llvmlite")
    if not kernel_image.is_made():
        assert kernel_image.make()
    graph = load(model_file)
    for node in graph.nodes:
        node.version = 13
    context = CompileContext(2, False, {"session.first_tier_only": first_tier_only})
    program = FirstTierProvider().compile(graph, context)
    assert isinstance(program._constants["t"], Constant) == (first_tier_only == "0")  # type: ignore[attr-defined]
    x = drawn(3, 64)
    for places in ([0, 19_999, -1, 5, 5, -20_000], [], [[3], [4]]):
        y, z = program.run([np.array(places, np.int64), x])
        np.testing.assert_array_equal(y, TABLE[np.array(places, np.int64)])
        np.testing.assert_allclose(z, x @ W, rtol=1e-5, atol=1e-5)
    with pytest.raises(ort.Fail, match="20000"):
        program.run([np.array([20_000]), x])


def test_threads_read_what_is_large_in_order(model_file: Path) -> None:
    constants = load(model_file).constants
    arrays = WeightsAhead(constants)
    with arrays.read_by(2, ["w", "t", "w", "missing"]):
        np.testing.assert_array_equal(arrays["t"], TABLE)
        np.testing.assert_array_equal(arrays["w"], W)
        np.testing.assert_array_equal(arrays["w"], W)
    assert set(arrays) == {"t", "w"} and len(arrays) == 2 and arrays.stored("t") is constants["t"]


@pytest.mark.parametrize("ahead", [1, 1 << 30])
def test_what_cannot_be_read_is_an_error_of_who_asks(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who asks in another order, or for less, waits for nothing that does not come."""
    monkeypatch.setattr(weights_ahead, "_AHEAD_NBYTES", ahead)

    def constant(i: int) -> Constant:
        def read() -> np.ndarray:
            if i == 3:
                raise ort.Fail("the file has changed")
            return np.full((1 << 14,), i, np.float32)

        return Constant(str(i), DType.FLOAT, (1 << 14,), read, retained=False)

    order: list[Callable[[int], int]] = [lambda i: i, lambda i: 7 - i, lambda i: (i * 3) % 8]
    for place in order:
        arrays = WeightsAhead({str(i): constant(i) for i in range(8)})
        with arrays.read_by(3, list(map(str, range(8)))):
            for i in map(place, range(6)):
                if i == 3:
                    with pytest.raises(ort.Fail, match="has changed"):
                        arrays[str(i)]
                else:
                    assert arrays[str(i)][0] == i
