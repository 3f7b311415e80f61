"""Results without elements cost nothing, however many rows of nothing they have: 2**39 would be walked for minutes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia as ort

ROWS = 1 << 39
PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]
Shape = tuple[int, ...]

# (operator, shapes of its inputs, attributes, shape of its output)
WALKS: list[tuple[str, list[Shape], dict[str, Any], Shape]] = [
    ("Softmax", [(0, ROWS)], {}, (0, ROWS)),
    ("MatMul", [(ROWS, 0, 3), (3, 4)], {}, (ROWS, 0, 4)),
    ("MatMul", [(4, 3), (ROWS, 3, 0)], {}, (ROWS, 4, 0)),
    ("MatMul", [(ROWS, 0, 0), (ROWS, 0, 0)], {}, (ROWS, 0, 0)),
    ("Einsum", [(ROWS, 0, 3), (3, 4)], {"equation": "abc,cd->abd"}, (ROWS, 0, 4)),
    ("Relu", [(ROWS, 0)], {}, (ROWS, 0)),
    ("Add", [(ROWS, 0), (1, 0)], {}, (ROWS, 0)),
    ("Transpose", [(ROWS, 0, 3)], {"perm": [2, 0, 1]}, (3, ROWS, 0)),
    ("Concat", [(ROWS, 0, 3), (ROWS, 0, 3)], {"axis": 2}, (ROWS, 0, 6)),
    ("ReduceSum", [(ROWS, 0, 3)], {"keepdims": 1}, (1, 1, 1)),
    ("ReduceMax", [(0, 3, ROWS)], {"axes": [1]}, (0, 1, ROWS)),
    ("ArgMax", [(ROWS, 0, 3)], {"axis": 2}, (ROWS, 0, 1)),
    ("Conv", [(0, 3, 1 << 16, 1 << 16), (2, 3, 3, 3)], {}, (0, 2, (1 << 16) - 2, (1 << 16) - 2)),
    ("MaxPool", [(0, 3, 1 << 16, 1 << 16)], {"kernel_shape": [2, 2]}, (0, 3, (1 << 16) - 1, (1 << 16) - 1)),
]  # fmt: skip
# Where the reference needs a number for each row, it says how much memory that would be.
ON_THE_CPU: list[tuple[str, list[Shape], dict[str, Any], Shape]] = [
    ("Softmax", [(ROWS, 0)], {}, (ROWS, 0)),
    ("LogSoftmax", [(ROWS, 0)], {}, (ROWS, 0)),
    ("Softmax", [(4, 0, ROWS)], {"axis": 1}, (4, 0, ROWS)),
    ("LpNormalization", [(ROWS, 0)], {}, (ROWS, 0)),
    ("LayerNormalization", [(ROWS, 0), (0,)], {}, (ROWS, 0)),
    ("Hardmax", [(ROWS, 0)], {}, (ROWS, 0)),
]  # fmt: skip


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""


def _session(op: str, shapes: list[Shape], attributes: dict[str, Any], provider: str) -> ort.InferenceSession:
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [f"{name}_{axis}" for axis in range(len(shape))])
        for name, shape in zip(names, shapes, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "rows", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("op", "shapes", "attributes", "shape"), WALKS, ids=_name)
def test_no_walk(op: str, shapes: list[Shape], attributes: dict[str, Any], shape: Shape, provider: str) -> None:
    session = _session(op, shapes, attributes, provider)
    (y,) = session.run(None, {f"x{i}": np.empty(s, np.float32) for i, s in enumerate(shapes)})
    assert y.shape == shape


@pytest.mark.tuned  # as the reference, the first tier makes values as large as a row
@pytest.mark.parametrize(("op", "shapes", "attributes", "shape"), ON_THE_CPU, ids=_name)
def test_no_walk_on_the_cpu(op: str, shapes: list[Shape], attributes: dict[str, Any], shape: Shape) -> None:
    session = _session(op, shapes, attributes, "CPUExecutionProvider")
    (y,) = session.run(None, {f"x{i}": np.empty(s, np.float32) for i, s in enumerate(shapes)})
    assert y.shape == shape
