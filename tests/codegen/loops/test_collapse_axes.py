"""Merging axes: how far, and that results stay."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.codegen.loops.collapse_axes import collapse
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

F = DType.FLOAT
N, M = symbol("n"), symbol("m")
X = k.input(0, F, (N, 2, 3, 4))


def vector(*shape: object) -> k.Tensor:
    return k.input(1, F, shape)  # type: ignore[arg-type]


CASES = {
    "elementwise": (k.exp(X) * 2.0, (24 * N,)),
    "last_axis_apart": (X + vector(4), (6 * N, 4)),
    "middle_axis_apart": (X + vector(3, 1), (2 * N, 3, 4)),
    "first_axes_apart": (X + vector(3, 4), (2 * N, 12)),
    "sum_of_the_last_two": (k.reduce_sum(X, [2, 3]), (2 * N,)),
    "sum_of_the_second": (k.reduce_sum(X, [1]), (N, 12)),
    "transposed_together": (k.transpose(X, (2, 3, 0, 1)) + 1.0, (12, 2 * N)),
    "transposed_apart": (k.transpose(X, (0, 2, 1, 3)), (N, 3, 2, 4)),
    "sliced": (k.strided_slice(X, (0, 0, 0, 1), (1, 1, 1, 1), (N, 2, 3, 2)), (6 * N, 2)),
    "sliced_in_the_middle": (k.strided_slice(X, (0, 1, 0, 0), (1, 1, 1, 1), (N, 1, 3, 4)), (N, 12)),
    "sliced_backwards": (k.strided_slice(X, (0, 1, 0, 0), (1, -1, 1, 1), (N, 2, 3, 4)), (N, 2, 12)),
    "sliced_twice": (k.strided_slice(X, (0, 1, 0, 2), (1, 1, 1, 1), (N, 1, 3, 2)), (N, 1, 3, 2)),
    "function_of_a_slice": (k.exp(k.strided_slice(X, (0, 1, 0, 0), (1, 1, 1, 1), (N, 1, 3, 4))), (N, 1, 12)),
    "padded": (k.pad(X, (0, 1, 0, 0), (0, 2, 0, 0), 0.5), (N, 60)),
    "padded_by_a_function": (k.pad(k.exp(X), (0, 0, 0, 1), (0, 0, 0, 0), 0.0), (6 * N, 5)),
    "concatenated": (k.concat([X, vector(N, 5, 3, 4), X], 1), (N, 108)),
    "concatenated_functions": (k.concat([k.exp(X), vector(N, 5, 3, 4)], 1), (N, 7, 12)),
    "concatenated_last": (k.concat([X, vector(N, 2, 3, 1)], -1), (6 * N, 5)),
    "concatenated_with_a_row": (k.concat([X, vector(N, 2, 3, 4) + k.input(2, F, (4,))], 1), (N, 4, 3, 4)),
    "taken": (k.take(X, k.minimum(k.iota((5,), 0), k.scalar(2, DType.INT64)), 2), (2 * N, 5, 4)),
    "taken_by_a_table": (k.take(X, k.constant(np.array([[0, 1, 1], [1, 0, 0]])), 1), (N, 2, 3, 12)),
    "reshaped": (k.reshape(k.exp(X), (N, 24)) + 1.0, (N, 24)),
    "ones": (k.reshape(k.exp(X), (N, 1, 2, 3, 1, 4)) + 1.0, None),
    "maybe_one": (k.input(0, F, (N, 5)) + vector(M, 5), None),
    "iota": (k.iota((4, 5), 1), (4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_merged_shapes(name: str) -> None:
    root, shape = CASES[name]
    (found,) = collapse([root])
    if shape is not None:
        assert found.shape == shape
    assert found.dtype == root.dtype


@pytest.mark.parametrize("name", sorted(CASES))
def test_results_stay(name: str) -> None:
    pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")
    from loop_kernels import check_loops

    root, _ = CASES[name]
    env = {"n": 3, "m": 1}
    shapes = {
        t.attrs[0]: [d if isinstance(d, int) else d.evaluate(env) for d in t.shape] for t in k.walk([root]) if t.prim == "input"
    }
    arrays = [np.random.default_rng(i).standard_normal(shapes[i]).astype(np.float32) for i in sorted(shapes)]
    check_loops([root], arrays, env)


def test_roots_are_merged_alike() -> None:
    first, second = collapse([k.exp(X), X + vector(4)])
    assert first.shape == second.shape == (6 * N, 4)
