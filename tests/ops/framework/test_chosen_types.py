"""Attributes that choose an element type: numbers that ONNX gives no type are errors, on both providers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError

X, LENGTH = np.ones((3, 3), np.float32), np.array(8, np.int32)
CASES = {
    "Cast": ([X], "to"), "EyeLike": ([X], "dtype"), "RandomNormal": ([], "dtype"), "RandomUniform": ([], "dtype"),
    "RandomNormalLike": ([X], "dtype"), "RandomUniformLike": ([X], "dtype"), "Multinomial": ([X], "dtype"),
    "Bernoulli": ([X], "dtype"), "BlackmanWindow": ([LENGTH], "output_datatype"), "HannWindow": ([LENGTH], "output_datatype"),
    "HammingWindow": ([LENGTH], "output_datatype"), "SequenceEmpty": ([], "dtype"),
    "MelWeightMatrix": ([LENGTH, LENGTH, LENGTH, np.float32(0), np.float32(4)], "output_datatype"),
    "LayerNormalization": ([X, X[0]], "stash_type"), "com.microsoft::GemmFloat8": ([X, X], "dtype"),
}  # fmt: skip


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("number", [TensorProto.UNDEFINED, 29, 1000, -1])
@pytest.mark.parametrize("operator", CASES)
def test_no_such_type(operator: str, number: int, provider: str) -> None:
    operands, attribute = CASES[operator]
    domain, _, name = operator.rpartition("::")
    names = [f"x{i}" for i in range(len(operands))]
    more = {"shape": [2]} if operator in ("RandomNormal", "RandomUniform") else {}
    outputs = ["y", "mean"] if name == "LayerNormalization" else ["y"]
    node = helper.make_node(name, names, outputs, domain=domain, **{attribute: number}, **more)
    constants = [numpy_helper.from_array(np.asarray(x), n) for n, x in zip(names, operands, strict=True)]
    graph = helper.make_graph([node], "chosen", [], [onnx.ValueInfoProto(name=n) for n in outputs], constants)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with pytest.raises(IntarsiaError, match=f"{number} is not an ONNX element type"):
        InferenceSession(model.SerializeToString(), providers=[provider]).run(None, {})
