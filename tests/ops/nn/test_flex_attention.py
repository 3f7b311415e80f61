"""FlexAttention, by the function that ONNX defines it with, against float64 NumPy: grouped heads, subgraphs, precisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia import InferenceSession

DOMAIN = "ai.onnx.preview"
both = pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])


def body(op: str, operand: np.ndarray, kind: int) -> onnx.GraphProto:
    """x op operand"""
    return helper.make_graph(
        [helper.make_node(op, ["x", "operand"], ["y"])], op, [helper.make_tensor_value_info("x", kind, [None] * 4)],
        [helper.make_tensor_value_info("y", kind, [None] * 4)], [numpy_helper.from_array(operand, "operand")],
    )  # fmt: skip


def run(arrays: Sequence[np.ndarray], provider: str = "CPUExecutionProvider", **attributes: Any) -> np.ndarray:
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    inputs = [helper.make_tensor_value_info(n, kind, [None] * a.ndim) for n, a in zip("QKV", arrays, strict=True)]
    node = helper.make_node("FlexAttention", list("QKV"), ["Y"], domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("Y", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)], ir_version=10)
    found: np.ndarray = InferenceSession(model.SerializeToString(), providers=[provider]).run(
        None, dict(zip("QKV", arrays, strict=True))
    )[0]
    return found


def operands(dtype: Any = np.float32, kv_heads: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(dtype) for s in ((2, 4, 3, 8), (2, kv_heads, 5, 8), (2, kv_heads, 5, 6))]


def expected(arrays: Sequence[np.ndarray], bias: Any = 0.0, factor: Any = 1.0, scale: float = 8**-0.5) -> np.ndarray:
    q, key, value = (a.astype(np.float64) for a in arrays)
    group = q.shape[1] // key.shape[1]
    key, value = key.repeat(group, 1), value.repeat(group, 1)
    scores = q @ key.swapaxes(2, 3) * scale + bias
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True) * factor) @ value


# ONNX's function holds the default scale as float32, for doubles too.
@both
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_plain(kv_heads: int, dtype: Any, rtol: float, provider: str) -> None:
    arrays = operands(dtype, kv_heads)
    found = run(arrays, provider)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected(arrays), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(run(arrays, provider, scale=0.25), expected(arrays, scale=0.25), rtol=rtol, atol=rtol)


@both
def test_subgraphs(provider: str) -> None:
    """A causal mask of -inf on the scores, half of the probabilities dropped."""
    arrays = operands()
    mask = np.where(np.tril(np.ones((3, 5))) > 0, 0, -np.inf).astype(np.float32)
    keep = np.float32([2, 0, 2, 0, 2])
    found = run(arrays, provider, score_mod=body("Add", mask, TensorProto.FLOAT), prob_mod=body("Mul", keep, TensorProto.FLOAT))
    np.testing.assert_allclose(found, expected(arrays, mask, keep), rtol=1e-5, atol=1e-6)


def test_subgraphs_see_the_softmax_precision() -> None:
    arrays = operands(np.float16)
    found = run(arrays, softmax_precision=TensorProto.DOUBLE, score_mod=body("Add", np.array(1.0), TensorProto.DOUBLE))
    np.testing.assert_allclose(found, expected(arrays), rtol=2e-3, atol=2e-3)
