"""Operators on integers with calibrated ranges: QLinearConv and its like, of ONNX and of onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import attributes_of
from intarsia.quantization.description.parameters import StoredRequest
from intarsia.quantization.numerics.affine import rounded
from intarsia.quantization.numerics.quant_types import FLOAT8
from intarsia.quantization.writers.integer_forms import IntegerWriter, QuantizedValue, other_attributes, renamed
from intarsia.quantization.writers.qdq import MICROSOFT

Rule = Callable[[IntegerWriter, onnx.NodeProto], None]


def when_float(rule: Rule) -> Rule:
    """The rule for nodes that are to be quantised and whose first input is of floats; others stay."""

    def guarded(writer: IntegerWriter, node: onnx.NodeProto) -> None:
        if writer.settings.wants(node) and writer.is_float(node.input[0]):
            rule(writer, node)
        else:
            writer.keep(node)

    return guarded


def when_product(rule: Rule) -> Rule:
    """The rule for products of floats that are to be quantised: with MatMulConstBOnly, those by stored tensors."""

    def guarded(writer: IntegerWriter, node: onnx.NodeProto) -> None:
        wanted = writer.settings.wants(node) and any(writer.is_float(name) for name in node.input[:2])
        if wanted and writer.settings.option("MatMulConstBOnly"):
            wanted = writer.names.tensor(node.input[1]) is not None
        if wanted:
            rule(writer, node)
        else:
            writer.keep(node)

    return guarded


def triple(value: QuantizedValue) -> list[str]:
    """What QLinear operators read of a tensor: values, scale and zero point."""
    return [value.q_name, value.scale_name, value.zp_name]


def _finish(
    writer: IntegerWriter, node: onnx.NodeProto, op_type: str, reads: Sequence[str], result: QuantizedValue,
    domain: str = MICROSOFT, **attributes: Any,
) -> None:  # fmt: skip
    writer.emit(
        helper.make_node(op_type, list(reads), [result.q_name], renamed(node), domain=domain, **attributes)
    )  # fmt: skip
    writer.values[node.output[0]] = result


def _elementwise(operands: Sequence[int], **fixed: Any) -> Rule:
    """QLinearX of inputs and an output with ranges of their own."""

    def rule(writer: IntegerWriter, node: onnx.NodeProto) -> None:
        _linear(writer, node, operands, writer.output(node.output[0]), **fixed)

    return rule


def _linear(
    writer: IntegerWriter, node: onnx.NodeProto, operands: Sequence[int], result: QuantizedValue | None, **fixed: Any
) -> None:
    if result is None or not all(writer.can_quantize(node.input[i]) for i in operands):
        writer.keep(node)
        return
    reads = [name for i in operands for name in triple(writer.input(node.input[i]))]
    attributes = {**attributes_of(node), **fixed}
    _finish(writer, node, f"QLinear{node.op_type}", [*reads, result.scale_name, result.zp_name], result, **attributes)


def _sigmoid(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    nnapi = node.op_type == "Sigmoid" and writer.settings.option("extra.Sigmoid.nnapi")
    name = node.output[0]
    _linear(writer, node, [0], writer.fixed_output(name, 1 / 256.0, 0) if nnapi else writer.output(name))


def _softmax(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """What Softmax gives is between 0 and 1: its scale is 1/256 whatever was calibrated."""
    point = 0 if writer.settings.activation_type == TensorProto.UINT8 else -128
    result = writer.fixed_output(node.output[0], 1 / 256.0, point)
    _linear(writer, node, [0], result, opset=writer.opset)


def _bounded(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """Relu and Clip: what computes the input has the range of the output, and clips so."""
    value = writer.values.get(node.input[0])
    if value is None or writer.settings.symmetric_activations:
        writer.keep(node)
    else:
        writer.values[node.output[0]] = value


def _argmax(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    value = writer.value(node.input[0])
    if value is not None:
        node.input[0] = value.q_name
    writer.emit(node)


def moved(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """What only moves elements moves quantised ones, where its input is quantised already, or where that is forced."""
    name = node.input[0]
    value = writer.value(name)
    if value is None and writer.settings.forced and writer.is_stored(name):
        value = writer.input(name)
    if value is None:
        writer.keep(node)
        return
    result = QuantizedValue(
        node.output[0], f"{node.output[0]}_quantized", value.scale_name, value.zp_name, value.value_type
    )  # fmt: skip
    node.input[0], node.output[0] = value.q_name, result.q_name
    writer.emit(node)
    writer.values[result.original_name] = result


def _moved_since(opset: int) -> Rule:
    def rule(writer: IntegerWriter, node: onnx.NodeProto) -> None:
        if writer.opset < opset or (node.op_type == "MaxPool" and writer.settings.activation_type == FLOAT8):
            writer.keep(node)
        else:
            moved(writer, node)

    return rule


def gather(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """Rows of a stored table."""
    if not (writer.settings.wants(node) and writer.is_stored(node.input[0])):
        writer.keep(node)
        return
    value = writer.input(node.input[0])
    result = QuantizedValue(node.output[0], f"{node.output[0]}_quantized", value.scale_name, value.zp_name)
    node.input[0], node.output[0] = value.q_name, result.q_name
    writer.emit(node)
    writer.values[result.original_name] = result


def _split(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    if not writer.can_quantize(node.input[0]):
        writer.keep(node)
        return
    value = writer.input(node.input[0])
    results = [f"{name}quantized" for name in node.output]
    reads = [value.q_name, *node.input[1:]]
    writer.emit(helper.make_node("Split", reads, results, renamed(node), **attributes_of(node)))
    for name, result in zip(node.output, results, strict=True):
        writer.values[name] = QuantizedValue(name, result, value.scale_name, value.zp_name)


def _global_average(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    source = writer.values.get(node.input[0])
    if source is None:
        writer.keep(node)
        return
    name = node.output[0]
    result = writer.output(name) or QuantizedValue(name, f"{name}_quantized", source.scale_name, source.zp_name)
    reads = [*triple(source), result.scale_name, result.zp_name]
    _finish(writer, node, "QLinearGlobalAveragePool", reads, result, channels_last=0)


def _concat(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    result = writer.output(node.output[0])
    if result is None or not all(writer.can_quantize(name) for name in node.input):
        writer.keep(node)
        return
    reads = [name for source in node.input for name in triple(writer.input(source))]
    _finish(writer, node, "QLinearConcat", [result.scale_name, result.zp_name, *reads], result, **attributes_of(node))


def _where(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    result = writer.output(node.output[0])
    ready = result is not None and all(writer.can_quantize(name) for name in node.input[1:])
    if result is None or not (ready and writer.settings.wants(node) and writer.settings.forced):
        writer.keep(node)
        return
    reads = [name for source in node.input[1:] for name in triple(writer.input(source))]
    reads = [node.input[0], *reads, result.scale_name, result.zp_name]
    _finish(writer, node, "QLinearWhere", reads, result, **attributes_of(node))


def _pad(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """Pads with the quantised form of the constant: the zero point where it is 0."""
    source = writer.values.get(node.input[0])
    if writer.opset < 11 or source is None:
        writer.keep(node)
        return
    if attributes_of(node).get("mode", b"constant") == b"constant":
        filler = _pad_value(writer, node, source)
        if filler is None:
            writer.keep(node)
            return
        while len(node.input) < 3:
            node.input.append("")
        node.input[2] = filler
    name = node.output[0]
    result = QuantizedValue(name, f"{name}_quantized", source.scale_name, source.zp_name)
    node.input[0], node.output[0] = source.q_name, result.q_name
    writer.emit(node)
    writer.values[name] = result


def _pad_value(writer: IntegerWriter, node: onnx.NodeProto, source: QuantizedValue) -> str | None:
    name = node.input[2] if len(node.input) > 2 else ""
    if not name:
        return source.zp_name
    parameters = writer.parameters.get(source.scale_name)
    if parameters is None:
        return None
    result = f"{name}_quantized"
    if writer.is_stored(name):
        value = rounded(writer.array(name), parameters.scale.reshape(()), parameters.zero_point.reshape(()), parameters.kind)
        writer.names.add(numpy_helper.from_array(value, result))
    else:
        reads = [name, source.scale_name, source.zp_name]
        writer.emit(helper.make_node("QuantizeLinear", reads, [result], f"{name}_QuantizeLinear"))
    return result


def weight_request(writer: IntegerWriter, axis: int | None = None, kind: int | None = None) -> StoredRequest:
    """What products ask of their weights."""
    settings = writer.settings
    kind = settings.weight_type if kind is None else kind
    return StoredRequest(kind, settings.symmetric_weights(kind), settings.reduce_range, axis)


def _conv(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    by_channel = writer.settings.per_channel and writer.is_stored(node.input[1])
    request = weight_request(writer, 0, TensorProto.INT8) if by_channel else weight_request(writer)
    result = writer.output(node.output[0])
    if not _is_ready(writer, node, result) or result is None:
        writer.keep(node)
        return
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias and writer.settings.weight_type == FLOAT8:
        raise InvalidArgument(
            "Quantization to FLOAT8E4M3FN for operator Conv is not supported: exclude Conv, or use 8-bit integers"
        )
    source, weight, found = _operands(writer, node, request, bias, 1.0)
    reads = [*triple(source), *triple(weight), result.scale_name, result.zp_name, *([found] if found else [])]
    _finish(writer, node, "QLinearConv", reads, result, "", **attributes_of(node))


def _is_ready(writer: IntegerWriter, node: onnx.NodeProto, result: QuantizedValue | None) -> bool:
    biased = len(node.input) > 2 and node.input[2]
    readable = all(writer.can_quantize(name) for name in node.input[:2])
    return result is not None and readable and (not biased or writer.is_stored(node.input[2]))


def _operands(
    writer: IntegerWriter, node: onnx.NodeProto, request: StoredRequest, bias: str, beta: float
) -> tuple[QuantizedValue, QuantizedValue, str]:
    """The two factors of a product and the name of its bias, all quantised."""
    source = writer.input(node.input[0])
    if writer.is_stored(node.input[1]):
        weight = writer.weight(node.input[1], request, (source, bias) if bias else None)
    else:
        weight = writer.input(node.input[1])
    return source, weight, writer.bias(bias, source, weight, beta) if bias else ""


def _gemm(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    given = attributes_of(node)
    by_channel = writer.settings.per_channel and writer.is_stored(node.input[1])
    axis = (0 if given.get("transB") else 1) if by_channel else None
    result = writer.output(node.output[0])
    if not _is_ready(writer, node, result) or result is None:
        writer.keep(node)
        return
    bias = node.input[2] if len(node.input) > 2 else ""
    request = weight_request(writer, axis)
    source, weight, found = _operands(writer, node, request, bias, given.get("beta", 1.0))
    reads = [*triple(source), *triple(weight), found, result.scale_name, result.zp_name]
    _finish(writer, node, "QGemm", reads, result, **other_attributes(node, "beta"))


def matmul_weight(writer: IntegerWriter, name: str) -> QuantizedValue:
    """The second factor of a MatMul, by columns where channels are wanted."""
    if not writer.is_stored(name):
        return writer.input(name)
    axis = -1 if writer.settings.per_channel and writer.array(name).ndim > 1 else None
    return writer.weight(name, weight_request(writer, axis))


def _matmul(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    result = writer.output(node.output[0])
    if result is None or not all(writer.can_quantize(name) for name in node.input):
        writer.keep(node)
        return
    source, weight = writer.input(node.input[0]), matmul_weight(writer, node.input[1])
    reads = [*triple(source), *triple(weight), result.scale_name, result.zp_name]
    domain = MICROSOFT if writer.settings.weight_type == FLOAT8 else ""
    _finish(writer, node, "QLinearMatMul", reads, result, domain)


def embed_layer_norm(writer: IntegerWriter, node: onnx.NodeProto) -> None:
    """Tables of embeddings, and what scales and shifts their sum."""
    tables = list(node.input[2:7])
    if len(node.output) > 2 or not writer.settings.wants(node) or not all(writer.can_quantize(n) for n in tables):
        writer.keep(node)
        return
    found = [writer.input(name) for name in tables]
    mask = node.input[7] if len(node.input) > 7 else ""
    reads = [*node.input[:2], *(v.q_name for v in found), mask]
    reads += [*(v.scale_name for v in found), *(v.zp_name for v in found)]
    writer.emit(
        helper.make_node(
            "QEmbedLayerNormalization", reads, node.output, renamed(node), domain=MICROSOFT, **attributes_of(node)
        )
    )  # fmt: skip


COMMON_RULES: dict[str, Rule] = {
    "Gather": gather,
    "Transpose": when_float(moved),
    "EmbedLayerNormalization": embed_layer_norm,
}
"""Operators whose quantised form does not depend on where ranges come from."""

QLINEAR_RULES: dict[str, Rule] = {
    "ArgMax": when_float(_argmax),
    "Conv": when_float(_conv),
    "Gemm": when_product(_gemm), "MatMul": when_product(_matmul),
    **dict.fromkeys(("Add", "Mul"), when_float(_elementwise([0, 1]))),
    **dict.fromkeys(("Relu", "Clip"), when_float(_bounded)),
    **dict.fromkeys(("LeakyRelu", "Sigmoid"), when_float(_sigmoid)),
    "MaxPool": when_float(_moved_since(12)), "Resize": when_float(_moved_since(11)),
    "GlobalAveragePool": when_float(_global_average), "AveragePool": when_float(_elementwise([0])),
    "Split": when_float(_split), "Pad": when_float(_pad),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), when_float(moved)),
    "Concat": when_float(_concat), "Softmax": when_float(_softmax),
    "Where": _where,
    **COMMON_RULES,
}  # fmt: skip
"""Operator -> how its nodes are written with calibrated ranges."""
