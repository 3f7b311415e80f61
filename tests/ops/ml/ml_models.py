"""Models of one ai.onnx.ml node, run by Intarsia, onnxruntime and ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from intarsia import InferenceSession

ML = "ai.onnx.ml"


def element_type(array: np.ndarray) -> int:
    return TensorProto.STRING if array.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(
    op: str, feeds: Mapping[str, np.ndarray], outputs: Mapping[str, int], *, domain: str = ML, version: int = 3,
    given: Mapping[str, Any] | None = None, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """`given`: types (ValueInfoProto) of inputs that are no tensors, by name."""
    inputs = [helper.make_tensor_value_info(n, element_type(a), [None] * a.ndim) for n, a in feeds.items()]
    outs = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    node = helper.make_node(op, list(feeds), list(outputs), domain=domain, **attributes)
    graph = helper.make_graph([node], "one", inputs, outs)
    imports = [helper.make_opsetid("", 18)] if domain else []
    return helper.make_model(graph, opset_imports=[*imports, helper.make_opsetid(domain, version)], ir_version=9)


def ours(model: onnx.ModelProto, feeds: Mapping[str, Any], provider: str = "CPUExecutionProvider") -> list[Any]:
    return InferenceSession(model.SerializeToString(), providers=[provider]).run(None, dict(feeds))


def same(found: list[Any], expected: list[Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for f, e in zip(found, expected, strict=True):
        e = np.asarray(e)
        assert f.shape == e.shape
        if e.dtype.kind in "OUS":
            assert f.tolist() == e.tolist()
        else:
            assert f.dtype == e.dtype
            np.testing.assert_allclose(f, e, rtol=rtol, atol=atol)
