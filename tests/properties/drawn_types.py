"""Drawn models in other types: float16 throughout, or with quantisation written around their products."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def as_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` in float16: weights, inputs, outputs and casts. The scales of Resize stay float32, as ONNX has them."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    scales = {node.input[2] for node in made.graph.node if node.op_type == "Resize"}
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in scales:
            wide = np.clip(numpy_helper.to_array(tensor), -60000, 60000)
            tensor.CopyFrom(numpy_helper.from_array(wide.astype(np.float16), tensor.name))
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return made


def as_quantised(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """`model` with QuantizeLinear and DequantizeLinear in front of its products' operands, as quantisers write them.

    Activations have a type, a scale and a zero point for the tensor; weights of int8 a scale for the tensor or for each
    column. Scales fit magnitudes of one: what is larger is cut off, by everyone who runs the model.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in made.graph.initializer}
    signed = bool(rng.integers(2))
    nodes: list[onnx.NodeProto] = []
    quantised: dict[str, str] = {}

    def constant(name: str, array: np.ndarray) -> str:
        made.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def weight(name: str, axis: int) -> str:
        array = numpy_helper.to_array(weights[name])
        by_column = array.ndim > 1 and rng.integers(2)
        others = tuple(a for a in range(array.ndim) if a != axis) if by_column else None
        scale = np.maximum(np.abs(array).max(axis=others, keepdims=bool(by_column)) / 127, 1e-6).astype(np.float32)
        whole = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
        key = f"{name}_{axis}"
        flat = scale.reshape(-1) if by_column else scale.reshape(())
        inputs = [constant(f"{key}_q", whole), constant(f"{key}_s", flat), constant(f"{key}_z", np.zeros(flat.shape, np.int8))]
        more = {"axis": axis} if by_column else {}
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{key}_d"], **more))
        return f"{key}_d"

    def activation(name: str) -> str:
        if name not in quantised:
            scale = constant(f"{name}_s", np.array(rng.uniform(0.01, 0.03), np.float32))
            zero = np.array(rng.integers(-4, 5), np.int8) if signed else np.array(rng.integers(110, 140), np.uint8)
            point = constant(f"{name}_z", zero)
            nodes.append(helper.make_node("QuantizeLinear", [name, scale, point], [f"{name}_q"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", scale, point], [f"{name}_d"]))
            quantised[name] = f"{name}_d"
        return quantised[name]

    for node in made.graph.node:
        if node.op_type in _PRODUCTS and rng.integers(4):
            turned = node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)
            axis = 0 if node.op_type == "Conv" or turned else 1
            for i in range(2):
                name = node.input[i]
                node.input[i] = weight(name, axis) if name in weights else activation(name)
        nodes.append(node)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
