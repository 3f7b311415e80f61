"""Sizes of operands that do not fit are errors of the node, whether the model tells them or a run, on both providers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError


@dataclass
class Case:
    """A node; `wrong`: an operand, its shape, and what is said of it; `constant`: operands that are initializers."""

    operator: str
    operands: list[Any]
    wrong: tuple[int, tuple[int, ...], str]
    attributes: dict[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.operator} {self.wrong[:2]}"


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def linear(operand: int, shape: tuple[int, ...], message: str, domain: str = "") -> Case:
    operands = [floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 12), floats(2, 2, 4, 6)]
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    return Case(f"{domain}LinearAttention", operands, (operand, shape, message), attributes)


WORDS = [np.ones((2, 4), np.int32), floats(6, 1, 3, 5), floats(6), floats(20, 5)]
BLOCKS = [floats(2, 36, 16), np.array([5, 6]), np.array([2, 3])]
CACHE = [np.ones((2, 1, 4, 5), np.float32), floats(2, 1, 1, 5), np.array([0, 1])]
REGIONS = [floats(2, 1, 10, 10), floats(3, 4), np.array([0, 1, 0])]
ATTENDED = [floats(2, 1, 32), floats(2, 3, 32), floats(2, 3, 32), floats(96)]
CASES = [
    Case("com.microsoft::UnfoldTensor", [floats(2, 6)], (0, (2, 1), "got 1, expected at least 3"), {"size": 3}),
    Case("com.microsoft::WordConvEmbedding", WORDS, (0, (2, 2), "characters.*got 2, expected at least 3"), {}, (1, 2, 3)),
    Case("Col2Im", BLOCKS, (0, (0, 5, 16), "blocks of 6 elements|5 .*must equal"), {}, (1, 2)),
    Case("Col2Im", BLOCKS, (0, (2, 36, 0), "axis 2 of input|0 .*must equal"), {}, (1, 2)),
    Case("TensorScatter", CACHE, (0, (1, 2, 1, 4, 5), "update is .*expected the rank 5")),
    Case("RoiAlign", REGIONS, (1, (3, 31), "rois"), {"sampling_ratio": 2}),
    Case("com.microsoft::CDist", [floats(4, 3), floats(5, 3)], (1, (5, 1), "columns of B.*got 1|must equal")),
    Case("Multinomial", [floats(2, 3)], (0, (2, 0), "the classes, of which one is drawn|elements -1 to -1")),
    Case("com.microsoft::Irfft", [floats(2, 5, 2)], (0, (2, 0, 2), "frequenc"), {"signal_ndim": 1}),
    Case("com.microsoft::MultiHeadAttention", ATTENDED, (3, (32,), "elements"), {"num_heads": 2}),
    Case("com.microsoft::HyperConnectionPreMix", [floats(2, 3, 4, 8), floats(2, 3, 4)], (0, (2, 3, 0, 8), "number of streams")),
]
for of in ("", "com.microsoft::"):
    CASES += [
        linear(1, (2, 3, 8), "the steps of key: got 3, expected 5", of),
        linear(2, (1, 5, 12), "the batch of value: got 1, expected 2", of),
        linear(2, (2, 5, 13), "the last axis of value, which has 2 heads|13 .*must equal", of),
        linear(1, (2, 5, 10), "the size of a head of key: got 5, expected 4|10 .*must equal", of),
        linear(3, (1, 2, 4, 6), "axis 0 of past_state.*got 1, expected 2", of),
    ]


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "symbols"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_refused(case: Case, known: bool, provider: str) -> None:
    at, shape, message = case.wrong
    operands = list(case.operands)
    operands[at] = np.ones(shape, operands[at].dtype)
    domain, _, name = case.operator.rpartition("::")
    names = [f"x{i}" for i in range(len(operands))]
    outputs = ["y", "state"] if name == "LinearAttention" else ["y"]
    inputs, constants = [], []
    for i, x in enumerate(operands):
        if i in case.constant:
            constants.append(numpy_helper.from_array(x, names[i]))
        else:
            sizes: list[Any] = list(x.shape) if known else [f"d{i}_{axis}" for axis in range(x.ndim)]
            inputs.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(x.dtype), sizes))
    node = helper.make_node(name, names, outputs, domain=domain, **case.attributes)
    made = [onnx.ValueInfoProto(name=y) for y in outputs]
    graph = helper.make_graph([node], "sizes", inputs, made, constants)
    opsets = [helper.make_opsetid("", 27), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13)
    feeds = {n: x for i, (n, x) in enumerate(zip(names, operands, strict=True)) if i not in case.constant}
    with pytest.raises(IntarsiaError, match=message):
        InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)
