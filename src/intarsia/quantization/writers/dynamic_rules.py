"""Operators on integers whose ranges are found in each run: MatMulInteger, ConvInteger and onnxruntime's own."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.quantization.description.model_editor import attributes_of, tensor_of
from intarsia.quantization.description.parameters import StoredRequest, stored_parameters
from intarsia.quantization.numerics.affine import quantized
from intarsia.quantization.writers.integer_forms import IntegerWriter, QuantizedValue, other_attributes, renamed
from intarsia.quantization.writers.qdq import MICROSOFT
from intarsia.quantization.writers.qlinear_rules import (
    COMMON_RULES,
    Rule,
    matmul_weight,
    weight_request,
    when_float,
    when_product,
)


def _matmul(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    if not all(writer.can_quantize(name) for name in node.input):
        writer.keep(node)
        return
    source, weight = writer.input(node.input[0]), matmul_weight(writer, node.input[1])
    _scaled(writer, node, "MatMulInteger", source, weight, node.output[0])


def _conv(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    bias = node.input[2] if len(node.input) > 2 else ""
    if not all(writer.can_quantize(name) for name in node.input[:2]) or (bias and not writer.is_stored(node.input[1])):
        writer.keep(node)
        return
    source = writer.input(node.input[0])
    stored = writer.is_stored(node.input[1])
    weight = writer.weight(node.input[1], weight_request(writer)) if stored else writer.input(node.input[1])
    result = node.output[0]
    scaled = f"{result}quant_scaled_output" if bias else result
    _scaled(writer, node, "ConvInteger", source, weight, scaled)
    if bias:
        rank = len(writer.array(node.input[1]).shape)
        shape = np.ones(rank, np.int64)
        shape[1] = -1
        writer.names.add(numpy_helper.from_array(shape, f"{result}_bias_reshape_shape"))
        writer.dequantize(bias)
        reshaped = f"{result}_bias_reshape_output"
        writer.emit(helper.make_node("Reshape", [bias, f"{result}_bias_reshape_shape"], [reshaped]))
        writer.emit(helper.make_node("Add", [scaled, reshaped], [result], f"{result}_bias_add"))


def _scaled(
    writer: IntegerWriter, node: onnx.NodeProto, op_type: str, source: QuantizedValue, weight: QuantizedValue, result: str
) -> None:
    """The integer product as floats: cast, and multiplied by both scales."""
    kind = writer.float_type(node.output[0])
    product, name = f"{node.output[0]}_output_quantized", renamed(node)
    reads = [source.q_name, weight.q_name, source.zp_name, weight.zp_name]
    writer.emit(helper.make_node(op_type, reads, [product], name, **attributes_of(node)))
    cast = f"{product}_cast_output"
    wide = kind == TensorProto.FLOAT16 and source.scale_name not in writer.parameters and writer.opset > 10
    to = TensorProto.FLOAT if wide else kind
    writer.emit(helper.make_node("Cast", [product], [cast], f"{product}_cast", to=to))
    both = f"{name}_scales_mul" if name else f"{source.scale_name}_{weight.scale_name}_mul"
    if all(n.name != both for n in writer.nodes):
        second = weight.scale_name
        if wide:
            second = f"{weight.scale_name}_float32"
            writer.names.add(numpy_helper.from_array(writer.parameters[weight.scale_name].scale.astype(np.float32), second))
        writer.emit(helper.make_node("Mul", [source.scale_name, second], [f"{both}:0"], both))
    end = f"{result}_float32" if wide else result
    writer.emit(helper.make_node("Mul", [cast, f"{both}:0"], [end], f"{name}_output_scale_mul" if name else ""))
    if wide:
        writer.emit(helper.make_node("Cast", [end], [result], f"{end}_Cast", to=kind))


def _attention(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    given = attributes_of(node)
    if not writer.settings.wants(node) or node.domain != MICROSOFT or "qkv_hidden_sizes" in given:
        writer.keep(node)  # QAttention has no sizes of its own for queries, keys and values
        return
    source, weight = writer.input(node.input[0]), matmul_weight(writer, node.input[1])
    rest = [*node.input[2:], "", "", ""]
    reads = [source.q_name, weight.q_name, rest[0], source.scale_name, weight.scale_name, rest[1]]
    reads += [source.zp_name, weight.zp_name, rest[2]]
    writer.emit(helper.make_node("QAttention", reads, node.output, renamed(node), domain=MICROSOFT, **given))


def _lstm(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """DynamicQuantizeLSTM: weights transposed, quantised by rows of gates or as a whole."""
    weights = node.input[1:3]
    if not all(writer.is_stored(name) and writer.array(name).ndim == 3 for name in weights):
        writer.keep(node)
        return
    found = [_recurrent_weight(writer, name) for name in weights]
    rest = [*node.input[3:8], *[""] * 5][:5]
    reads = [node.input[0], *(v.q_name for v in found), *rest]
    reads += [name for v in found for name in (v.scale_name, v.zp_name)]
    writer.dequantize(node.input[0])
    given = other_attributes(node, "layout")
    writer.emit(helper.make_node("DynamicQuantizeLSTM", reads, node.output, renamed(node), domain=MICROSOFT, **given))


def _recurrent_weight(writer: IntegerWriter, name: str) -> QuantizedValue:
    """[directions, 4 * hidden, inputs] -> stored int8 [directions, inputs, 4 * hidden]."""
    value = QuantizedValue(name, f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")
    if value.q_name in writer.names.stored:
        return value
    values, settings = writer.array(name), writer.settings
    directions, gates, inputs = values.shape
    request = StoredRequest(TensorProto.INT8, settings.symmetric_weights(TensorProto.INT8), settings.reduce_range, 0)
    rows = values.reshape(directions * gates, inputs) if settings.per_channel else values
    parameters = stored_parameters(name, rows, request, settings)
    codes = quantized(rows, parameters).reshape(values.shape).transpose(0, 2, 1)
    shape = (directions, gates) if settings.per_channel else (directions,)
    writer.names.add(tensor_of(value.q_name, np.ascontiguousarray(codes), TensorProto.INT8))
    writer.names.add(numpy_helper.from_array(parameters.scale.reshape(shape), value.scale_name))
    writer.names.add(tensor_of(value.zp_name, parameters.zero_point.reshape(shape), TensorProto.INT8))
    return value


DYNAMIC_RULES: dict[str, Rule] = {
    "Conv": when_float(_conv),
    "MatMul": when_product(_matmul),
    "Attention": _attention,
    "LSTM": when_float(_lstm),
    **COMMON_RULES,
}
"""Operator -> how its nodes are written with ranges that are found in each run."""
