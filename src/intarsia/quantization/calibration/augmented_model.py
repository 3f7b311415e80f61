"""A model with further outputs, as onnxruntime's calibrators run it: for scripts that look at it, not for calibrating."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

_SHAPE = "intarsia_calibration_one_axis"


def with_value_outputs(model: onnx.ModelProto, tensors: Mapping[str, onnx.ValueInfoProto]) -> onnx.ModelProto:
    """A copy of a model that gives these values, too."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    given = {v.name for v in found.graph.output}
    found.graph.output.extend(value for name, value in tensors.items() if name not in given)
    return found


def with_min_max_outputs(
    model: onnx.ModelProto, tensors: Mapping[str, onnx.ValueInfoProto], per_channel: bool
) -> onnx.ModelProto:
    """A copy of a model that gives the least and greatest element of these values, too: of all, or by index of axis 1."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    opset = next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), 1)
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), _SHAPE))
    for name, value in tensors.items():
        for op_type in ("ReduceMin", "ReduceMax"):
            result = f"{name}_{op_type}"
            reads, extra = [name], {}
            if per_channel:
                axes = [0, *range(2, len(value.type.tensor_type.shape.dim))]
                if opset < 18:
                    extra["axes"] = axes
                else:
                    graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), f"{result}_axes"))
                    reads.append(f"{result}_axes")
            inner = f"{result}_Reshape"
            graph.node.append(helper.make_node(op_type, reads, [inner], result, keepdims=1, **extra))
            graph.node.append(helper.make_node("Reshape", [inner, _SHAPE], [result], inner))
            graph.output.append(helper.make_tensor_value_info(result, value.type.tensor_type.elem_type, [None]))
    return found
