"""Depthwise convolutions of several filters for each channel, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort


@pytest.mark.parametrize("multiplier", [2, 3, 4, 8])
def test_chain(multiplier: int) -> None:
    """A pointwise convolution, which may run together with the depthwise one behind it, and an addition of its own."""
    rng, channels = np.random.default_rng(0), 24
    filters = channels * multiplier
    p, w = (rng.standard_normal(s).astype(np.float32) for s in ((channels, 6, 1, 1), (filters, 1, 3, 3)))
    b, x = rng.standard_normal(filters).astype(np.float32), rng.standard_normal((2, 6, 120, 100)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "p"], ["a"]),
        helper.make_node("Conv", ["a", "w", "b"], ["c"], group=channels, pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    constants = [numpy_helper.from_array(v, n) for n, v in {"p": p, "w": w, "b": b}.items()]
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None)))
    graph = helper.make_graph(nodes, "g", [inputs], [outputs], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    found = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    a = np.einsum("oi,nihw->nohw", p[:, :, 0, 0].astype(np.float64), x)
    seen = np.pad(np.repeat(a, multiplier, 1), ((0, 0), (0, 0), (1, 1), (1, 1)))
    exact = sum(seen[:, :, i : i + 119 : 2, j : j + 99 : 2] * w[:, 0, i, j][:, None, None] for i in range(3) for j in range(3))
    np.testing.assert_allclose(found, np.maximum(exact + b[:, None, None], 0), atol=1e-4)
