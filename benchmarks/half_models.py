"""A float16 copy of a float32 model: weights, constants, casts and declared types; inputs and outputs too."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_half(model: Path, target: Path) -> Path:
    """Write `model` in float16 to `target`."""
    import onnx

    proto = onnx.load(model)
    _graph(proto.graph)
    onnx.save(proto, target)
    return target


def _graph(graph: object) -> None:
    import onnx
    from onnx import TensorProto

    for tensor in graph.initializer:  # type: ignore[attr-defined]
        _tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):  # type: ignore[attr-defined]
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:  # type: ignore[attr-defined]
        if node.op_type == "Constant" and any(a.name in ("value_float", "value_floats") for a in node.attribute):
            array = np.array(onnx.helper.get_attribute_value(node.attribute[0]), np.float32)
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array)))
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            if attribute.HasField("t") and node.op_type != "Resize":
                _tensor(attribute.t)
            if attribute.HasField("g"):
                _graph(attribute.g)
    scales = {n.input[2] for n in graph.node if n.op_type == "Resize" and len(n.input) > 2}  # type: ignore[attr-defined]
    for tensor in graph.initializer:  # type: ignore[attr-defined]
        if tensor.name in scales:  # which are float32 whatever the model's type
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _tensor(tensor: object) -> None:
    import onnx

    if tensor.data_type == onnx.TensorProto.FLOAT:  # type: ignore[attr-defined]
        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))  # type: ignore[attr-defined]
