"""NonZero, Compress, Unique and Range by what computes them on the CPU provider: the same as their definitions give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, session_of

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidGraph
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.cpu.kernels.selection.host_selection import compress, non_zero, range_of, unique

TARGET = Target.host()
DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64")


def same(node: Node, inputs: list[Any], found: list[Any] | None) -> None:
    assert found is not None
    expected = evaluate_node(node, inputs, registry())
    assert len(found) == len(expected)
    for name, a, b in zip(node.outputs, found, expected, strict=True):
        if name:
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (8,), (1000,), (3, 5), (5, 0), (4, 17), (2, 3, 9), (65, 1), (2, 2, 2, 3)])
def test_non_zero(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(shape))
    for share in (0, 0.1, 0.5, 1):
        x = np.where(rng.random(shape) < share, rng.integers(1, 100, shape), 0).astype(dtype)
        node = Node("NonZero", ["x"], ["y"])
        same(node, [x], non_zero(node, [x], TARGET))


def test_non_zero_of_signed_zeros_and_no_numbers() -> None:
    for dtype in ("float16", "float32", "float64"):
        x = np.array([0.0, -0.0, np.nan, np.inf, np.finfo(dtype).smallest_subnormal], dtype)
        node = Node("NonZero", ["x"], ["y"])
        (found,) = non_zero(node, [x], TARGET) or [None]
        np.testing.assert_array_equal(found, [[2, 3, 4]])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [0, 2, 4, 6, 24, 40])
def test_compress(axis: int | None, length: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    condition = np.random.default_rng(length).random(length) < 0.5
    node = Node("Compress", ["x", "c"], ["y"], attributes={} if axis is None else {"axis": axis})
    same(node, [x, condition], compress(node, [x, condition], TARGET))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis", "length"),
    [
        ((300,), None, 300),
        ((41, 29), None, 900),
        ((40, 33), 1, 33),
        ((40, 33), -1, 20),
        ((40, 33), 0, 40),
        ((5, 17, 11), 1, 16),
        ((5, 17, 11), 0, 5),
        ((400, 1), 1, 1),
        ((2, 513), 1, 600),
        ((19, 64), 1, 0),
    ],
)
def test_compress_of_many_elements(dtype: str, shape: tuple[int, ...], axis: int | None, length: int) -> None:
    """By the kernel: elements one by one where the axis is the last, blocks of bytes else."""
    rng = np.random.default_rng(length)
    x = rng.integers(0, 100, shape).astype(dtype)
    node = Node("Compress", ["x", "c"], ["y"], attributes={} if axis is None else {"axis": axis})
    for condition in (rng.random(length) < 0.5, np.zeros(length, bool), np.ones(length, bool)):
        same(node, [x, condition], compress(node, [x, condition], TARGET))


def test_compress_by_bytes_that_are_no_bools() -> None:
    """Any byte but 0 holds, for the count as for the kernel: nothing is written behind the result."""
    x = np.arange(4096, dtype=np.float32)
    condition = np.full(4096, 255, np.uint8)
    condition[::3] = 0
    node = Node("Compress", ["x", "c"], ["y"])
    found = compress(node, [x, condition.view(bool)], TARGET)
    assert found is not None
    np.testing.assert_array_equal(found[0], x[condition != 0])


@pytest.mark.parametrize("ascending", [0, 1])
@pytest.mark.parametrize("outputs", [("y", "i", "v", "c"), ("y",), ("y", "", "v"), ("y", "i")], ids=str)
@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), None), ((300,), None), ((30, 4), None), ((30, 4), 0), ((4, 30), 1), ((6, 3, 2), -2)]
)
def test_unique(shape: tuple[int, ...], axis: int | None, outputs: tuple[str, ...], ascending: int) -> None:
    attributes = {"sorted": ascending} | ({} if axis is None else {"axis": axis})
    node = Node("Unique", ["x"], list(outputs), attributes=attributes)
    rng = np.random.default_rng(0)
    for dtype in ("int64", "float32", "uint8"):
        x = rng.integers(0, 3 if axis is not None else 20, shape).astype(dtype)
        same(node, [x], unique(node, [x], TARGET))


def test_unique_keeps_no_numbers_apart_and_leaves_wide_slices_and_none_to_the_definition() -> None:
    node = Node("Unique", ["x"], ["y", "i", "v", "c"])
    x = np.array([2.0, np.nan, 1.0, np.nan, 2.0], np.float32)
    same(node, [x], unique(node, [x], TARGET))
    assert unique(node, [np.zeros(0, np.float32)], TARGET) is None
    assert unique(Node("Unique", ["x"], ["y"], attributes={"axis": 0}), [np.zeros((3, 40))], TARGET) is None


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    "bounds", [(0, 10, 1), (3, -8, -2), (5, 5, 1), (5, 2, 1), (1, 100, 7), (-4, 4, 3), (10, 0, -3)], ids=str
)
def test_range(bounds: tuple[int, int, int], dtype: str) -> None:
    inputs = [np.array(v, dtype) for v in bounds]
    node = Node("Range", ["a", "b", "c"], ["y"])
    same(node, inputs, range_of(node, inputs, TARGET))


def test_range_of_fractions() -> None:
    inputs = [np.array(v, np.float32) for v in (0.5, 3.25, 0.25)]
    node = Node("Range", ["a", "b", "c"], ["y"])
    same(node, inputs, range_of(node, inputs, TARGET))


def test_in_models_and_errors_of_the_definition() -> None:
    check("g (bool[n, m] x) => (int64[2, k] y) { y = NonZero(x) }", *({"x": np.eye(n, n + 1) > 0} for n in (1, 4, 30)))
    session = session_of("g (float a, float b, float c) => (float[n] y) { y = Range(a, b, c) }")
    with pytest.raises(InvalidGraph, match="the step of Range must not be 0"):
        session.run(None, {name: np.array(0, np.float32) for name in "abc"})
