"""Operands that are not dense: views with steps, transposed, reversed, repeated; results are those of dense copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, drawn, model_of, reference, seeds, session_of
from hypothesis import given
from hypothesis import strategies as st

FAMILIES: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "Add": ([(3, 4, 5), (3, 1, 5)], {}),
    "Where": ([(3, 4, 5), (3, 4, 5), (4, 5)], {}),
    "Tanh": ([(3, 4, 5)], {}),
    "ReduceMean": ([(3, 4, 5)], {}),
    "Softmax": ([(3, 4, 5)], {"axis": 1}),
    "LayerNormalization": ([(3, 4, 5), (5,)], {}),
    "MatMul": ([(3, 4, 5), (5, 7)], {}),
    "Gemm": ([(6, 8), (5, 8), (5,)], {"transB": 1}),
    "Einsum": ([(3, 4), (4, 5)], {"equation": "ij,jk->ki"}),
    "Conv": ([(1, 3, 6, 5), (4, 3, 3, 3)], {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": ([(1, 3, 6, 5), (3, 4, 3, 3)], {"strides": [2, 1]}),
    "AveragePool": ([(1, 3, 6, 5)], {"kernel_shape": [2, 2]}),
    "InstanceNormalization": ([(2, 3, 4), (3,), (3,)], {}),
    "PRelu": ([(3, 4, 5), (5,)], {}),
    "Expand": ([(3, 1, 5)], {}),
    "Tile": ([(3, 4)], {}),
    "Pad": ([(3, 4)], {}),
    "DepthToSpace": ([(1, 8, 2, 3)], {"blocksize": 2}),
    "GridSample": ([(1, 2, 4, 4), (1, 3, 3, 2)], {}),
    "RotaryEmbedding": ([(1, 2, 3, 4), (1, 3, 2), (1, 3, 2)], {}),
    "Trilu": ([(3, 4, 5)], {}),
    "DFT": ([(2, 8, 1)], {}),
    "MaxPool": ([(1, 3, 6, 5)], {"kernel_shape": [2, 2]}),
    "Transpose": ([(3, 4, 5)], {"perm": [2, 0, 1]}),
    "Concat": ([(3, 4), (3, 2)], {"axis": 1}),
    "Reshape": ([(3, 4, 5)], {}),
    "Gather": ([(6, 5)], {"axis": 0}),
    "TopK": ([(3, 6)], {}),
    "CumSum": ([(3, 6)], {}),
    "Attention": ([(1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8)], {}),
    "LSTM": ([(4, 2, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 4}),
}
EXTRA = {"Reshape": np.array([5, -1]), "Gather": np.array([[1, -2], [0, 3]]), "TopK": np.array([2]), "CumSum": np.array(1)}
EXTRA |= {"Expand": np.array([2, 3, 4, 5]), "Tile": np.array([2, 3]), "Pad": np.array([1, 0, 0, 2])}
OUTPUTS = {"TopK": 2, "LSTM": 3}
LAYOUTS = ("dense", "fortran", "steps", "reversed", "inside", "repeated")


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """The same elements (of "repeated": those of the first along the first axis) in memory of another layout."""
    if layout == "fortran":
        return np.asfortranarray(x)
    if layout == "steps":
        wide = np.full([3 * d for d in x.shape], 99, x.dtype)
        wide[tuple(slice(1, None, 3) for _ in x.shape)] = x
        return wide[tuple(slice(1, None, 3) for _ in x.shape)]
    if layout == "reversed":
        back = tuple(slice(None, None, -1) for _ in x.shape)
        return np.ascontiguousarray(x[back])[back]
    if layout == "inside":
        around = np.pad(x, 2, constant_values=99)
        return around[tuple(slice(2, 2 + d) for d in x.shape)]
    return np.broadcast_to(x[:1], x.shape) if layout == "repeated" else x


@drawn
@given(
    st.sampled_from(sorted(FAMILIES)), st.lists(st.sampled_from(LAYOUTS), min_size=4, max_size=4),
    st.sampled_from(["CPUExecutionProvider", "ReferenceExecutionProvider"]), seeds,
)  # fmt: skip
def test_operands_that_are_not_dense(op: str, layouts: list[str], provider: str, seed: int) -> None:
    sizes, attributes = FAMILIES[op]
    operands = [array(seed + i, s, np.bool_ if op == "Where" and not i else np.float32) for i, s in enumerate(sizes)]
    operands += [EXTRA[op]] if op in EXTRA else []
    views = [
        laid_out(x, "steps" if layout == "repeated" and i >= len(sizes) else layout) if x.ndim else x
        for i, (x, layout) in enumerate(zip(operands, layouts, strict=False))
    ]
    dense = [np.ascontiguousarray(v).reshape(v.shape) for v in views]
    node = Drawn(op, dense, attributes, OUTPUTS.get(op, 1))
    expected = reference(node)
    session = session_of(model_of(node, [e.dtype for e in expected]).SerializeToString(), provider)
    found = session.run(None, {f"x{i}": v for i, v in enumerate(views)})
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (e.shape, e.dtype), op
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5, err_msg=f"{op} {layouts}")
    for view, copy in zip(views, dense, strict=True):
        np.testing.assert_array_equal(view, copy, err_msg=f"{op} wrote to its operands")
