"""Costly values that a reduction and the output share are computed once."""

from __future__ import annotations

import numpy as np
import pytest
from loop_kernels import check_loops, compiled

from intarsia.codegen.loops.reuse_in_output import reused_value
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.ops.nn.softmax import log_softmax_over, softmax_over
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor


def exponentials(root: Tensor) -> int:
    """How often exp is written in the kernel, by the first constant that it multiplies by, 1 / ln 2."""
    (scale,) = np.array([1 / np.log(2)], np.float32).astype(np.float64).view(np.uint64)
    return compiled([root]).text.ir.lower().count(f"0x{scale:x}")


def operand(*shape: int) -> tuple[Tensor, np.ndarray]:
    x = (np.random.default_rng(0).standard_normal(shape) * 5).astype(np.float32)
    return k.input(0, DType.FLOAT, shape), x


@pytest.mark.parametrize("shape", [(3, 5), (7,), (2, 3, 5000), (1, 9001), (4, 1), (2, 1, 33, 1)], ids=str)
def test_softmax_over_the_last_axis(shape: tuple[int, ...]) -> None:
    t, x = operand(*shape)
    root = softmax_over(t, [len(shape) - 1])
    check_loops([root], [x])
    check_loops([log_softmax_over(t, [len(shape) - 1])], [x])


def test_its_powers_are_computed_once() -> None:
    t, _ = operand(6, 50)
    assert exponentials(softmax_over(t, [1])) == 1
    assert exponentials(softmax_over(t, [0])) == 2
    for shape in ((1, 50), (50,), (1, 50, 1)):
        assert exponentials(softmax_over(operand(*shape)[0], [shape.index(50)])) == 1


def test_two_axes_and_axes_of_unknown_size() -> None:
    t, x = operand(3, 4, 5)
    root = softmax_over(k.transpose(t, [1, 0, 2]), [0, 2])
    check_loops([root], [x])
    sizes = (symbol("a"), symbol("b"))
    for shape in ((3, 40), (1, 1), (2, 5000)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        check_loops([softmax_over(k.input(0, DType.FLOAT, sizes), [1])], [x], dict(zip("ab", shape, strict=True)))


def test_other_types() -> None:
    for dtype in (DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16):
        x = np.random.default_rng(0).standard_normal((4, 30)).astype(dtype.numpy)
        check_loops([softmax_over(k.input(0, dtype, (4, 30)), [1])], [x])


def test_values_that_are_not_the_same_element_are_not_kept() -> None:
    t, x = operand(6, 6)
    powers = k.exp(t)
    crossed = k.transpose(powers, [1, 0]) / k.reduce_sum(powers, [1], keepdims=True)
    assert reused_value(crossed, ["i0", "i1"]) is None
    check_loops([crossed], [x])
    shared = k.exp(t) / k.reduce_sum(k.broadcast(k.exp(t), (2, 6, 6)), [0, 2])
    check_loops([shared], [x])
    half, _ = operand(6, 6)
    part = k.strided_slice(k.exp(half), [0, 3], [1, 1], [6, 3])
    check_loops([part / k.reduce_sum(part, [1], keepdims=True)], [x])


def test_rows_of_a_larger_output() -> None:
    t, x = operand(4, 20)
    check_loops([k.concat([softmax_over(t, [1]), t, softmax_over(-t, [1])], 1)], [x])
    check_loops([k.concat([t, softmax_over(t, [1])], 0)], [x])


def test_a_value_that_is_needed_outside_of_its_reduction_only_in_parts() -> None:
    t, x = operand(4, 20)
    powers = k.exp(t)
    gelu = k.unary("tanh", powers) * k.reduce_sum(k.unary("tanh", powers) * powers, [1], keepdims=True)
    check_loops([gelu + powers], [x])
