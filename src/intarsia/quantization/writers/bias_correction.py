"""Bias correction (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019).

Rounded weights W + E give outputs that are off by E x, whose mean E E[x] is the same in every run: it is taken from the bias.
The means of inputs are those of a user's data.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.description import model_files
from intarsia.quantization.description.marking_rules import mark
from intarsia.quantization.description.model_editor import ModelEditor, attributes_of
from intarsia.quantization.description.parameters import request_of, stored_parameters
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.description.tensor_marks import Marker, TensorMark, logger
from intarsia.quantization.numerics.affine import dequantized, quantized

_OPERATORS = ("Conv", "Gemm")


def correct_biases(model: onnx.ModelProto, settings: QuantizerSettings, reader: Any) -> onnx.ModelProto:
    """The model, in place, with biases that make up for the means of what rounding its weights adds.

    Conv and Gemm whose weights are stored and quantised, and whose bias is stored or missing; a bias that is read twice stays.

    Args:
        settings: how weights will be quantised.
        reader: gives the inputs of runs.

    Raises:
        InvalidArgument: the reader gives nothing.
    """
    editor = ModelEditor(model)
    marks = _weight_marks(model, settings)
    nodes = [node for node in editor.nodes if _corrects(editor, node, settings, marks)]
    means = _channel_means(model, nodes, reader)
    for node in nodes:
        if node.input[0] in means:
            _correct(editor, node, _shift(editor, node, marks[node.input[1]], settings, means[node.input[0]]))
    logger.info("bias correction: of %d nodes", len(nodes))
    return model


def _weight_marks(model: onnx.ModelProto, settings: QuantizerSettings) -> dict[str, TensorMark]:
    """How stored tensors will be quantised; found by a trial without weights."""
    trial = ModelEditor(model_files.without_weights(model))
    marker = Marker(trial, settings, (), ())
    mark(marker)
    return {name: found for name, found in marker.tensors.items() if name in trial.initializers}


def _corrects(editor: ModelEditor, node: onnx.NodeProto, settings: QuantizerSettings, marks: dict[str, TensorMark]) -> bool:
    if node.op_type not in _OPERATORS or node.domain or not settings.wants(node) or node.input[1] not in marks:
        return False
    given = attributes_of(node)
    if node.input[0] in editor.initializers or given.get("transA", 0):
        return False
    if len(node.input) < 3 or not node.input[2]:
        return True
    stored = editor.initializers.get(node.input[2])
    if stored is None or len(editor.readers_of(node.input[2])) > 1 or given.get("beta", 1.0) == 0:
        return False
    return bool(math.prod(stored.dims) == _outputs_of(editor, node))


def _outputs_of(editor: ModelEditor, node: onnx.NodeProto) -> int:
    dims = editor.initializers[node.input[1]].dims
    by_row = node.op_type == "Conv" or attributes_of(node).get("transB", 0)
    return int(dims[0] if by_row else dims[1])


def _channel_means(model: onnx.ModelProto, nodes: list[onnx.NodeProto], reader: Any) -> dict[str, np.ndarray]:
    """float64 means of each index of axis 1 of the nodes' inputs."""
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}

    def observe(name: str, values: Any) -> None:
        if values.ndim < 2 or not values.size:
            return
        over = tuple(i for i in range(values.ndim) if i != 1)
        sums[name] = sums.get(name, 0.0) + values.sum(axis=over, dtype=np.float64)
        counts[name] = counts.get(name, 0) + values.size // values.shape[1]

    observed, runs = ObservedModel(model, {node.input[0] for node in nodes}), 0
    while feed := reader.get_next():
        observed.run(feed, observe)
        runs += 1
    if not runs:
        raise InvalidArgument("No data is collected: the calibration reader gave no inputs")
    return {name: total / counts[name] for name, total in sums.items()}


def _shift(
    editor: ModelEditor, node: onnx.NodeProto, found: TensorMark, settings: QuantizerSettings, mean: np.ndarray
) -> np.ndarray:
    """The mean of what rounding adds to each output channel, float64."""
    name, given = node.input[1], attributes_of(node)
    values = editor.array(name)
    request = request_of(found, settings, (settings.overrides.get(name) or [{}])[0])
    parameters = stored_parameters(name, values, request, settings)
    errors = dequantized(quantized(values, parameters), parameters).astype(np.float64) - values
    if node.op_type == "Gemm":
        rows = errors if given.get("transB", 0) else errors.T
        return np.asarray(float(given.get("alpha", 1.0)) * (rows @ mean))
    group = int(given.get("group", 1))
    by_tap = errors.reshape(group, len(errors) // group, errors.shape[1], -1).sum(axis=3)
    found_shift: np.ndarray = np.einsum("goc,gc->go", by_tap, mean.reshape(group, -1)).reshape(-1)
    return found_shift


def _correct(editor: ModelEditor, node: onnx.NodeProto, shift: np.ndarray) -> None:
    if len(node.input) > 2 and node.input[2]:
        stored = editor.initializers[node.input[2]]
        bias = editor.array(node.input[2])
        scaled = shift / attributes_of(node).get("beta", 1.0) if node.op_type == "Gemm" else shift
        stored.CopyFrom(numpy_helper.from_array((bias - scaled.reshape(bias.shape)).astype(bias.dtype), stored.name))
        return
    weight = editor.array(node.input[1])
    name = f"{node.output[0]}_corrected_bias"
    editor.add_initializer(numpy_helper.from_array((-shift).astype(weight.dtype), name))
    while len(node.input) < 3:
        node.input.append("")
    node.input[2] = name
