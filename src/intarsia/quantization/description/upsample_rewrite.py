"""Upsample, which opset 10 deprecates, as Resize."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.quantization.description.model_editor import attributes_of
from intarsia.quantization.description.tensor_marks import opset_of


def upsample_as_resize(model: onnx.ModelProto) -> bool:
    """Write each Upsample of a graph as Resize of opset 11, in place, and let the model import opset 11.

    Upsample takes a pixel's place times the scale and rounds down: "asymmetric" and "floor". Returns whether there were any.
    """
    graph, nodes, found = model.graph, [], False
    for node in graph.node:
        if node.op_type == "Upsample" and not node.domain:
            nodes.append(_resize(model, node))
            found = True
        else:
            nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    if found:
        graph.ClearField("node")
        graph.node.extend(nodes)
        other = opset_of(model)
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx") and other < 11:
                entry.version = 11
    return found


def _resize(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.NodeProto:
    given = attributes_of(node)
    region, scales = f"{node.output[0]}_no_region", node.input[1] if len(node.input) > 1 else f"{node.output[0]}_scales"
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), region))
    if len(node.input) < 2:
        model.graph.initializer.append(numpy_helper.from_array(np.array(given["scales"], np.float32), scales))
    mode = given.get("mode", b"nearest")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    mode = "linear" if mode == "bilinear" else mode
    return helper.make_node(
        "Resize", [node.input[0], region, scales], node.output, node.name, mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
