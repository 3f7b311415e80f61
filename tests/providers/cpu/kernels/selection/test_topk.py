"""TopK on the CPU provider: which nodes the kernel takes, sizes known at run time, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

from onnx import TensorProto, helper, numpy_helper

from intarsia.ep.provider import CompileContext
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.cpu.program.cpu_program import CpuProgram


def program(
    shape: Sequence[int | str], k: int | None, outputs: Sequence[str] = ("v", "i"), dtype: str = "float32", opset: int = 11,
    **attributes: Any,
) -> CpuProgram:  # fmt: skip
    """TopK of x; where `k` is None, of an input k."""
    node = helper.make_node("TopK", ["x", "k"], list(outputs), **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    constants = []
    if k is None:
        inputs.append(helper.make_tensor_value_info("k", TensorProto.INT64, [1]))
    else:
        constants = [numpy_helper.from_array(np.array([k], np.int64), "k")]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in zip(outputs, (kind, TensorProto.INT64), strict=False) if n]
    graph = helper.make_graph([node], "t", inputs, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return CpuProgram.compile(load(model), registry(), CompileContext(intra_op_num_threads=2))


def by_kernel(made: CpuProgram) -> bool:
    return any(g.template is not None for g in made.lowered.grouping.groups)


def check(made: CpuProgram, x: np.ndarray, k: int, *given: np.ndarray) -> None:
    (node,) = made.lowered.graph.nodes
    expected = evaluate_node(node, [x, np.array([k], np.int64)], registry())
    wanted = [e for e, name in zip(expected, node.outputs, strict=True) if name]
    for found, right in zip(made.run([x, *given]), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("opset", [10, 11, 24])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes(opset: int, axis: int) -> None:
    made = program([6, 40, 9], 5, axis=axis, opset=opset)
    assert by_kernel(made)
    check(made, np.random.default_rng(0).integers(0, 30, (6, 40, 9)).astype(np.float32), 5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("largest", [0, 1])
def test_element_types(dtype: str, largest: int) -> None:
    made = program(["n", 50], 7, dtype=dtype, largest=largest, sorted=0)
    assert by_kernel(made)
    for rows in (1, 4):
        check(made, np.random.default_rng(0).integers(-9, 9, (rows, 50)).astype(dtype), 7)


@pytest.mark.parametrize("outputs", [("v", ""), ("v",), ("", "i")], ids=["values", "values only", "indices"])
def test_one_output(outputs: tuple[str, ...]) -> None:
    made = program([3, 50], 7, outputs)
    assert by_kernel(made)
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    order = np.argsort(-x, axis=1)[:, :7]
    (found,) = made.run([x])
    np.testing.assert_array_equal(found, order if outputs[0] == "" else np.take_along_axis(x, order, 1))


def test_k_known_at_run_time() -> None:
    made = program(["a", "b"], None)
    assert by_kernel(made)
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float32)
    for count in (0, 1, 20, 200):
        check(made, x, count, np.array([count], np.int64))


def test_k_beyond_the_axis() -> None:
    made = program(["a", "b"], 7)
    check(made, np.ones((2, 7), np.float32), 7)
    with pytest.raises(InvalidArgument, match="wanted of axis 1: got 6, expected at least 7"):
        made.run([np.ones((2, 6), np.float32)])
