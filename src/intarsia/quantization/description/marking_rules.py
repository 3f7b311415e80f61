"""Which tensors of a node are quantised when its operator stays in floats between QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia.quantization.description.model_editor import attributes_of
from intarsia.quantization.description.tensor_marks import BiasMark, Marker, logger
from intarsia.quantization.numerics.quant_types import FLOAT8

Rule = Callable[[Marker, onnx.NodeProto], None]


def mark_all(marker: Marker, node: onnx.NodeProto) -> None:
    """Every input and output by its own range."""
    for name in node.input:
        marker.activation(name)
    if marker.quantizes_outputs(node):
        for name in node.output:
            marker.activation(name)


def _convolution(marker: Marker, node: onnx.NodeProto) -> None:
    _product(marker, node, 0 if node.op_type == "Conv" else 1)
    if len(node.input) == 3 and node.input[2]:
        marker.bias(node.input[2], BiasMark(node.name, node.input[0], node.input[1]))


def _product(marker: Marker, node: onnx.NodeProto, axis: int) -> None:
    """Input and output by ranges, weights by channels along `axis`."""
    marker.activation(node.input[0])
    if marker.quantizes_outputs(node):
        marker.activation(node.output[0])
    marker.weight_by_channels(node.input[1], axis)


def _gemm(marker: Marker, node: onnx.NodeProto) -> None:
    given = attributes_of(node)
    _product(marker, node, 0 if given.get("transB") else 1)
    if len(node.input) < 3 or not node.input[2]:
        return
    if node.input[2] not in marker.editor.initializers:
        logger.warning("the bias of Gemm '%s' is computed: it stays in floats; excluding the node may be faster", node.name)
        return
    marker.bias(node.input[2], BiasMark(node.name, node.input[0], node.input[1], given.get("beta", 1.0)))
    for attribute in node.attribute:
        if attribute.name == "beta":
            attribute.f = 1.0  # it is in the bias's scale


def _matmul(marker: Marker, node: onnx.NodeProto) -> None:
    for name in node.input:
        if name in marker.editor.initializers:
            marker.weight_by_channels(name, 1, node.op_type)
        else:
            marker.activation(name)
    if marker.quantizes_outputs(node):
        marker.activation(node.output[0])


def _bounded(marker: Marker, node: onnx.NodeProto) -> None:
    """Relu and Clip: folded into what computes their input where quantisation clips as they do."""
    if not marker.is_marked(node.input[0]):
        return
    settings = marker.settings
    folds = not settings.symmetric_activations and not settings.option("QDQKeepRemovableActivations")
    if not (folds and marker.fold_into_producer(node)):
        marker.activation(node.input[0])
    if marker.quantizes_outputs(node):
        marker.activation(node.output[0])


def _moved(marker: Marker, node: onnx.NodeProto) -> None:
    """What only moves elements has the quantisation of its input."""
    if marker.settings.forced:
        marker.activation(node.input[0])
    elif not marker.is_marked(node.input[0]):
        return
    if marker.quantizes_outputs(node):
        marker.same_as(node.output[0], node.input[0], node.name)


def _moved_since(opset: int) -> Rule:
    def rule(marker: Marker, node: onnx.NodeProto) -> None:
        if marker.opset >= opset:
            _moved(marker, node)

    return rule


def _max_pool(marker: Marker, node: onnx.NodeProto) -> None:
    if marker.opset >= 12 and marker.settings.activation_type != FLOAT8:  # before, its bytes are not allowed
        _moved(marker, node)


def _gather(marker: Marker, node: onnx.NodeProto) -> None:
    source = node.input[0]
    if source in marker.editor.initializers or marker.settings.forced:
        marker.activation(source)
    if marker.is_marked(source):
        marker.same_as(node.output[0], source, node.name)


def _split(marker: Marker, node: onnx.NodeProto) -> None:
    if not marker.is_marked(node.input[0]):
        marker.activation(node.input[0])
    if marker.quantizes_outputs(node):
        for name in node.output:
            marker.same_as(name, node.input[0], node.name)


def _where(marker: Marker, node: onnx.NodeProto) -> None:
    both = [node.input[1], node.input[2]]
    if marker.settings.forced:
        for name in both:
            if not marker.is_marked(name):
                marker.activation(name)
    elif not all(marker.is_marked(name) for name in both):
        return
    if marker.quantizes_outputs(node):
        marker.activation(node.output[0])


def _normalisation(marker: Marker, node: onnx.NodeProto) -> None:
    marker.activation(node.input[0])
    scale = node.input[1]
    if scale in marker.editor.initializers:
        marker.weight_by_channels(scale, 1, node.op_type)
    else:
        marker.activation(scale)
    if len(node.input) > 2 and node.input[2]:
        marker.bias(node.input[2], BiasMark(node.name, node.input[0], scale))
    if marker.quantizes_outputs(node):
        for name in node.output:
            marker.activation(name)


def _pad(marker: Marker, node: onnx.NodeProto) -> None:
    for name in node.input:
        if name:
            marker.activation(name)
    if not marker.quantizes_outputs(node):
        return
    if _pads_with_own_values(marker, node):
        marker.same_as(node.output[0], node.input[0], node.name)
    else:
        marker.activation(node.output[0])


def _pads_with_own_values(marker: Marker, node: onnx.NodeProto) -> bool:
    """Whether the border is made of the input's values, or of 0, which every range has."""
    given = attributes_of(node)
    if given.get("mode", b"constant") != b"constant":
        return True
    if marker.opset < 11:
        return bool(given.get("value", 0.0) == 0)
    if len(node.input) < 3 or not node.input[2]:
        return True
    found = _constant(marker, node.input[2])
    return found is not None and found.size == 1 and float(found.reshape(())) == 0


def _constant(marker: Marker, name: str) -> np.ndarray | None:
    if name in marker.editor.initializers:
        return marker.editor.array(name)
    node = marker.editor.producers.get(name)
    if node is None or node.op_type != "Constant":
        return None
    value = attributes_of(node)
    if "value" in value:
        return np.asarray(numpy_helper.to_array(value["value"]))
    return np.asarray(next(iter(value.values()))) if value else None


MARKING_RULES: dict[str, Rule] = {
    "Conv": _convolution, "ConvTranspose": _convolution,
    "Gemm": _gemm, "MatMul": _matmul,
    "Clip": _bounded, "Relu": _bounded,
    **dict.fromkeys(
        ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "AveragePool", "Slice", "TopK"), _moved
    ),
    "Resize": _moved_since(11), "MaxPool": _max_pool,
    "Pad": _pad, "Split": _split,
    "Gather": _gather, "GatherElements": _gather,
    "Where": _where,
    "InstanceNormalization": _normalisation, "LayerNormalization": _normalisation, "BatchNormalization": _normalisation,
    "CumSum": mark_all,
}  # fmt: skip
"""Operators whose tensors are marked by more than `mark_all`, and those that are quantised where a user names none."""


def mark(marker: Marker) -> None:
    """Mark the tensors of all nodes that are to be quantised."""
    for node in marker.editor.nodes:
        if marker.settings.wants(node):
            MARKING_RULES.get(node.op_type, mark_all)(marker, node)
