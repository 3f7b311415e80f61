"""Models quantised by a description: the way from a model and settings to what a writer makes of them."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from copy import deepcopy
from dataclasses import replace

import onnx

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.tensor_ranges import TensorData
from intarsia.quantization.description import model_files
from intarsia.quantization.description.gemm_rewrite import gemm_as_matmul
from intarsia.quantization.description.marking_rules import mark
from intarsia.quantization.description.model_editor import ModelEditor, keep_initializers
from intarsia.quantization.description.node_order import names_read
from intarsia.quantization.description.parameters import all_activation_parameters, checked_ranges, tightened
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.description.tensor_marks import Marker, logger
from intarsia.quantization.description.tensor_overrides import TensorQuantOverridesHelper
from intarsia.quantization.numerics.quant_types import QuantizationMode
from intarsia.quantization.writers.dynamic_rules import DYNAMIC_RULES
from intarsia.quantization.writers.integer_forms import IntegerWriter
from intarsia.quantization.writers.qdq import MICROSOFT, QdqWriter, is_quantized, set_import
from intarsia.quantization.writers.qlinear_rules import QLINEAR_RULES

PRODUCER, PRODUCER_VERSION = "onnx.quantize", "0.1.0"

Ranges = MutableMapping[str, TensorData]


def prepared(model: onnx.ModelProto, settings: QuantizerSettings) -> onnx.ModelProto:
    """The model with the types of its values, once its overrides are found to be possible.

    Raises:
        InvalidArgument: overrides that are not.
    """
    if not model_files.is_inferred(model):
        model = model_files.with_shapes(model_files.load_model(model))
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    values = {v.name for v in (*graph.value_info, *graph.output, *graph.input)}
    valid, why = settings.overrides.is_valid(stored, values, settings.activation_type)
    if not valid:
        raise InvalidArgument(why)
    return model


def _signed(model: onnx.ModelProto) -> onnx.ModelProto:
    model.producer_name, model.producer_version = PRODUCER, PRODUCER_VERSION
    return model


def with_pairs(model: onnx.ModelProto, settings: QuantizerSettings, ranges: Ranges | None) -> onnx.ModelProto:
    """A model of floats, in place, with QuantizeLinear and DequantizeLinear around what is quantised.

    Raises:
        InvalidArgument: a range is missing, or an override does not fit.
        WrongType: ranges of another kind than calibration gives.
    """
    checked_ranges(ranges)
    editor = ModelEditor(model)
    known: Ranges = ranges if ranges is not None else {}
    tightened(known, editor, settings)
    activations = all_activation_parameters(known, settings)
    converted = [name for name, found in activations.items() if found.converted is not None]
    marker = Marker(editor, settings, activations.keys(), converted)
    mark(marker)
    writer = QdqWriter(editor, marker, activations)
    writer.write()
    editor.finish(keep_unused=bool(settings.option("AddQDQPairToWeight")))
    if writer.domain:
        set_import(model, MICROSOFT, 1)
    return _signed(model)


def ranges_for_pairs(model: onnx.ModelProto, settings: QuantizerSettings, ranged: Collection[str]) -> list[str]:
    """Of the tensors that have a range, those whose range `with_pairs` looks at: found by a trial, without weights.

    A Relu or Clip that becomes the range of what computes its input has its own range alone, and what only moves values has
    that of its input.
    """
    editor = ModelEditor(model_files.without_weights(model))
    overrides = settings.overrides.get_dict()
    converted = [name for name, entries in overrides.items() if any("convert" in entry for entry in entries)]
    marker = Marker(editor, settings, ranged, converted)
    folded = {node.output[0] for node in editor.nodes if node.op_type in ("Relu", "Clip") and settings.wants(node)}
    mark(marker)
    own = {name for name, found in marker.tensors.items() if found.shares is None}
    sources = {found.shares[0] for found in marker.tensors.values() if found.shares is not None}
    wanted = {*own, *sources, *(found.input for found in marker.biases.values()), *overrides, *folded}
    return [name for name in ranged if name in wanted]


def with_integer_operators(
    model: onnx.ModelProto, settings: QuantizerSettings, mode: QuantizationMode, ranges: Ranges | None, static: bool
) -> onnx.ModelProto:
    """A model, in place, whose operators work on integers where they can.

    Raises:
        As `with_pairs`.
    """
    checked_ranges(ranges)
    if is_quantized(model.graph.node):
        logger.warning("the model has QuantizeLinear or DequantizeLinear already: it may be quantised, and runs as it is")
    if not static:
        settings = _without_gemm(model, settings)
    activations = None
    if static:
        known: Ranges = ranges if ranges is not None else {}
        tightened(known, ModelEditor(model), settings)
        activations = all_activation_parameters(known, settings)
    writer = IntegerWriter(model.graph, model, settings, activations)
    writer.write(DYNAMIC_RULES if mode is QuantizationMode.IntegerOps else QLINEAR_RULES)
    graph = model.graph
    read = {*names_read(graph), *(v.name for v in graph.output)}
    keep_initializers(graph, lambda t: t.name in read)
    if _names_domain(graph):
        set_import(model, MICROSOFT, 1)
    return _signed(model)


def _names_domain(graph: onnx.GraphProto) -> bool:
    from intarsia.quantization.description.node_order import subgraphs

    return any(n.domain == MICROSOFT or any(map(_names_domain, subgraphs(n))) for n in graph.node)


def _without_gemm(model: onnx.ModelProto, settings: QuantizerSettings) -> QuantizerSettings:
    """Write each Gemm as MatMul and Add; what a user set for a weight counts for its transposed, too."""
    sources = gemm_as_matmul(model)
    model_files.with_shapes(model)
    overrides = deepcopy(settings.overrides.get_dict())
    for transposed, source in sources.items():
        if source in overrides:
            overrides[transposed] = [
                {**entry, "axis": 1 - entry["axis"] % 2} if "axis" in entry else dict(entry) for entry in overrides[source]
            ]
    return replace(settings, overrides=TensorQuantOverridesHelper(overrides))
