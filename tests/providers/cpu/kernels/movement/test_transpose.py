"""Transpose on the CPU provider: which nodes the kernel takes, and that sizes are bound at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

from onnx import helper

from intarsia.ep.provider import CompileContext
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.providers.cpu.program.cpu_program import CpuProgram


def program(shape: Sequence[int | str], perm: Sequence[int] | None, dtype: str = "float32") -> CpuProgram:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Transpose", ["x"], ["y"], **({"perm": perm} if perm else {}))
    inputs, outputs = ([helper.make_tensor_value_info(n, kind, s)] for n, s in (("x", shape), ("y", None)))
    model = helper.make_model(helper.make_graph([node], "t", inputs, outputs), opset_imports=[helper.make_opsetid("", 21)])
    return CpuProgram.compile(load(model), registry(), CompileContext(intra_op_num_threads=2))


def by_kernel(made: CpuProgram) -> bool:
    return any(g.template is not None for g in made.lowered.grouping.groups)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "int64"])
def test_element_types(dtype: str) -> None:
    made = program(["n", 40, "w"], [0, 2, 1], dtype)
    assert by_kernel(made)
    for shape in ((2, 40, 70), (1, 40, 5), (3, 40, 1)):
        x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        (y,) = made.run([x])
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_few_rows_of_open_sizes(dtype: str) -> None:
    for shape, perm in ((["n", 3, "c"], [0, 2, 1]), (["n", "h", 3], [0, 2, 1])):
        made = program(shape, perm, dtype)
        assert by_kernel(made)
        for n, long in ((1, 4000), (3, 40), (700, 5), (2, 1), (0, 9)):
            x = np.random.default_rng(0).integers(-9, 9, (n, 3, long) if shape[1] == 3 else (n, long, 3)).astype(dtype)
            np.testing.assert_array_equal(made.run([x])[0], x.transpose(perm))


def test_tables_of_open_length_join_what_is_around_them() -> None:
    """Their transposes are loops, of which one kernel is made with element-wise neighbours."""
    made = program(["n", 8], [1, 0])
    assert not by_kernel(made)
    assert by_kernel(program([4000, 8], [1, 0]))
    x = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    np.testing.assert_array_equal(made.run([x])[0], x.T)


def test_axes_are_reversed_by_default() -> None:
    x = np.random.default_rng(0).standard_normal((20, 30, 40)).astype(np.float32)
    made = program(x.shape, None)
    assert by_kernel(made)
    np.testing.assert_array_equal(made.run([x])[0], x.T)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((20, 30), (1, 0)), ((9, 64, 64), (1, 2, 0)), ((2, 30, 12, 64), (0, 2, 1, 3))],
    ids=["small", "narrow", "rows"],
)
def test_loops_take_the_others(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    made = program(shape, perm)
    assert not by_kernel(made)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(made.run([x])[0], x.transpose(perm))
