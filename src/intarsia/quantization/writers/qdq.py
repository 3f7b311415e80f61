"""A model of float operators between pairs of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import ModelEditor
from intarsia.quantization.description.parameters import TensorParameters, request_of, stored_parameters
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.description.tensor_marks import BiasMark, Marker, logger
from intarsia.quantization.numerics.affine import AffineParameters, quantized
from intarsia.quantization.numerics.integer_bias import least_bias_scale, quantized_bias, widened_weight_scale
from intarsia.quantization.numerics.quant_types import FLOAT8

MICROSOFT = "com.microsoft"
_SINCE_21 = (TensorProto.UINT16, TensorProto.INT16, TensorProto.UINT4, TensorProto.INT4)


@dataclass(frozen=True)
class Written:
    """The stored scale and zero point by which a tensor is quantised.

    Attributes:
        scale, point: their names.
    """

    scale: str
    point: str
    parameters: AffineParameters


@dataclass(frozen=True)
class WrittenTensor:
    """What readers of a tensor get: most of them, and those that get another type."""

    original: Written
    converted: Written | None = None
    receivers: set[str] | None = None

    def for_reader(self, node: str) -> Written:
        """What the node of this name reads."""
        if self.converted is None or (self.receivers is not None and node not in self.receivers):
            return self.original
        return self.converted


class QdqWriter:
    """Writes the pairs that a description names into a model.

    Args:
        editor: the model, changed in place.
        marker: which tensors are quantised.
        activations: their parameters by name.
    """

    def __init__(self, editor: ModelEditor, marker: Marker, activations: dict[str, TensorParameters]) -> None:
        self.editor, self.marker, self.settings = editor, marker, marker.settings
        self.activations = activations
        self.weights: dict[str, AffineParameters] = {}
        self.written: dict[str, WrittenTensor] = {}
        self.domain = pair_domain(self.settings, marker.opset)
        self._dedicated, self._keeps_weights = (
            bool(self.settings.option(n)) for n in ("DedicatedQDQPair", "AddQDQPairToWeight")
        )
        self._dequantized = {
            name for name, node in editor.producers.items() if node.op_type == "DequantizeLinear"
        }  # by the model's maker

    def write(self) -> None:
        """Write everything; the model is whole after the editor's `finish`."""
        self._find_weights()
        self._widen_for_biases()
        self._own_tensors()
        self._shared_tensors()
        if self.settings.option("QuantizeBias", True):
            for name, mark in self.marker.biases.items():
                self._bias(name, mark)

    # Parameters

    def _find_weights(self) -> None:
        for name, mark in self.marker.tensors.items():
            if name in self.editor.initializers:
                first = (self.settings.overrides.get(name) or [{}])[0]
                request = request_of(mark, self.settings, first)
                self.weights[name] = stored_parameters(name, self.editor.array(name), request, self.settings)

    def _widen_for_biases(self) -> None:
        """Make scales of symmetric weights larger where a bias would not fit 32 bits."""
        if self.settings.option("QDQDisableWeightAdjustForInt32Bias"):
            return
        for name, mark in self.marker.biases.items():
            weight, source = self.weights.get(mark.weight), self.activations.get(mark.input)
            if weight is None or source is None or mark.input not in self.marker.tensors:
                continue
            if weight.kind not in (TensorProto.INT8, TensorProto.INT16) or weight.block or np.any(weight.zero_point != 0):
                continue
            bias = self.editor.array(name)
            scale = widened_weight_scale(source.for_reader(mark.node).scale.astype(bias.dtype), weight.scale, bias)
            if scale is not None:
                logger.info("the scale of weight '%s' is larger, so that bias '%s' fits 32 bits", mark.weight, name)
                self.weights[mark.weight] = weight.with_scale(scale)

    def _stored(self, name: str, parameters: AffineParameters, suffix: str = "") -> Written:
        """Store a scale and a zero point."""
        found = Written(f"{name}_scale{suffix}", f"{name}_zero_point{suffix}", parameters)
        self.editor.add_numbers(found.point, parameters.zero_point, parameters.kind)
        kind = TensorProto.FLOAT16 if parameters.scale.dtype == np.float16 else TensorProto.FLOAT
        self.editor.add_numbers(found.scale, parameters.scale, kind)
        return found

    # Nodes

    def _node(self, op_type: str, source: str, result: str, name: str, by: Written) -> None:
        extra: dict[str, Any] = {"domain": self.domain} if self.domain else {}
        if by.parameters.axis is not None:
            extra["axis"] = by.parameters.axis
        if by.parameters.block:
            extra["block_size"] = by.parameters.block
        self.editor.add_node(helper.make_node(op_type, [source, by.scale, by.point], [result], name, **extra))

    def _pair(self, source: str, result: str, name: str, by: Written, suffix: str = "") -> None:
        inner = f"{name}_QuantizeLinear_Output{suffix}"
        self._node("QuantizeLinear", source, inner, f"{name}_QuantizeLinear{suffix}", by)
        self._node("DequantizeLinear", inner, result, f"{name}_DequantizeLinear{suffix}", by)

    def _weight(self, name: str) -> None:
        by = self._stored(name, self.weights[name])
        result = f"{name}_DequantizeLinear_Output"
        self.editor.redirect_reads(name, result)
        if self._keeps_weights:
            self._pair(name, result, name, by)
        else:
            stored = f"{name}_quantized"
            self.editor.add_array(stored, quantized(self.editor.array(name), by.parameters), by.parameters.kind)
            self._node("DequantizeLinear", stored, result, f"{name}_DequantizeLinear", by)
        self.written[name] = WrittenTensor(by)

    def _activation(self, name: str, by: Written) -> None:
        """A pair behind a value: in front of all its readers, or one for each of them."""
        readers = [n for n in self.editor.readers_of(name) if self.settings.wants(n)] if self._dedicated else []
        if len(readers) > 1:
            for i, node in enumerate(readers, 1):
                result = f"{name}_DequantizeLinear_Output_{i}"
                self.editor.redirect_read(node, name, result)
                self._pair(name, result, name, by, f"_{i}")
        elif name in self.editor.outputs:
            source = self._behind_output(name)
            self._pair(source, name, name, by)
        else:
            result = f"{name}_DequantizeLinear_Output"
            self.editor.redirect_reads(name, result)
            self._pair(name, result, name, by)
        self.written[name] = WrittenTensor(by)

    def _behind_output(self, name: str) -> str:
        """Where the model's output `name` is computed once it is what a pair gives; nodes that read it read that."""
        source = f"{name}_QuantizeLinear_Input"
        self.editor.rename_output(name, source)
        return source

    def _converted(self, name: str, first: Written, second: Written, receivers: set[str] | None) -> None:
        """A value that some readers get in another type: a pair of the one, and a pair of the other behind it.

        Readers of the second type have a DequantizeLinear of their own before it, where there are readers of the first: what
        fuses a pair into one conversion then leaves these as they are.
        """
        if self._dedicated:
            raise InvalidArgument("converted quant_types in TensorQuantOverrides: expected DedicatedQDQPair to be off")
        names = {n.name for n in self.editor.readers_of(name) if self.settings.wants(n)}
        receivers = names if receivers is None else receivers
        originals, all_converted = names - receivers, len(receivers) == len(names)
        is_output = name in self.editor.outputs
        source = self._behind_output(name) if is_output else name
        inner, twin = f"{name}_QuantizeLinear_Output", f"{name}_convert"
        self._node("QuantizeLinear", source, inner, f"{name}_QuantizeLinear", first)
        result = name if is_output and not all_converted else f"{name}_DequantizeLinear_Output"
        if originals and result != name:
            self.editor.redirect_reads(name, result, originals)
        second_result = name if is_output and all_converted else f"{twin}_DequantizeLinear_Output"
        if receivers and second_result != name:
            self.editor.redirect_reads(name, second_result, receivers)
        self._node("DequantizeLinear", inner, result, f"{name}_DequantizeLinear", first)
        second_source = result
        if not all_converted:
            second_source = f"{twin}_QuantizeLinear_Input"
            self._node("DequantizeLinear", inner, second_source, f"{twin}_clone_DequantizeLinear", first)
        self._pair(second_source, second_result, twin, second)
        self.written[name] = WrittenTensor(first, second, receivers)

    # Tensors

    def _own_tensors(self) -> None:
        for name, mark in self.marker.tensors.items():
            if mark.shares is not None or name in self.written:
                continue
            if name in self.editor.initializers:
                self._weight(name)
            elif name not in self._dequantized:
                self._calibrated(name)

    def _calibrated(self, name: str) -> None:
        found = self.activations.get(name)
        if found is None:
            raise InvalidArgument(
                f"Quantization parameters are not specified for param {name}: its range is needed in static quantisation; "
                "calibrate with the operators that are quantised, or set its scale in TensorQuantOverrides"
            )
        first = self._stored(name, found.original)
        if found.converted is None:
            self._activation(name, first)
        else:
            self._converted(name, first, self._stored(name, found.converted, "_convert"), found.receivers)

    def _shared_tensors(self) -> None:
        """Tensors that are quantised as another is, which may be so itself: over and over, as long as something is found."""
        waiting = {n: m.shares for n, m in self.marker.tensors.items() if m.shares is not None and n not in self.written}
        while waiting:
            ready = [n for n, shares in waiting.items() if shares[0] in self.written]
            for name in ready:
                self._shared(name, *waiting.pop(name))
            if not ready:  # their source was dequantised before: it needs no pair
                return

    def _shared(self, name: str, source: str, node: str) -> None:
        if name in self.editor.initializers or name in self._dequantized:
            raise InvalidArgument(f"{name}: it cannot have the scale of {source}, since it is stored or quantised already")
        by = self.written[source].for_reader(node)
        own = self.activations.get(name)
        if own is None or own.converted is None:
            self._activation(name, by)
        else:
            self._converted(name, by, self._stored(name, own.converted, "_convert"), own.receivers)

    # Biases

    def _scale_of(self, tensor: str, node: str, bias: str) -> np.ndarray:
        """The scale of what a node multiplies: quantised here, or by the model's maker."""
        if tensor in self.written:
            return self.written[tensor].for_reader(node).parameters.scale
        producer = self.editor.producers.get(tensor)
        if producer is not None and producer.op_type == "DequantizeLinear" and producer.input[1] in self.editor.initializers:
            return self.editor.array(producer.input[1])
        raise InvalidArgument(
            f"Unable to get valid quantization scale for '{tensor}' of bias '{bias}' for int32; exclude node {node!r}"
        )

    def _bias(self, name: str, mark: BiasMark) -> None:
        if name in self.written:
            return
        values = self.editor.array(name)
        if mark.beta == 0:
            values = np.zeros_like(values)
        if self.settings.weight_type == FLOAT8:
            self._float_bias(name, values)
            return
        scale, kind = self._bias_scale(values, mark, name)
        found, clipped = quantized_bias(values, scale)
        if clipped:
            logger.warning("Quantized bias `%s` exceeds the range of a int32. The bias scale is too small.", name)
        by_channel = scale.size > 1
        points = np.zeros(scale.size if by_channel else (), np.int32)
        parameters = AffineParameters(
            scale.reshape(-1), points, TensorProto.INT32, 0 if by_channel else None, source="scales of input and weight"
        )
        by = Written(f"{name}_quantized_scale", f"{name}_quantized_zero_point", parameters)
        self.editor.add_array(f"{name}_quantized", found, TensorProto.INT32)
        self.editor.add_numbers(by.scale, parameters.scale if by_channel else parameters.scale.reshape(1), kind)
        self.editor.add_numbers(by.point, points, TensorProto.INT32)
        wide = values.dtype == np.float16 and kind == TensorProto.FLOAT
        result = f"{name}_DequantizeLinear_Output" if wide else name
        self.editor.drop_initializer(name)
        if wide:
            self.editor.add_node(helper.make_node("Cast", [result], [name], f"{name}_Cast", to=TensorProto.FLOAT16))
        self._node("DequantizeLinear", f"{name}_quantized", result, f"{name}_DequantizeLinear", by)
        self.written[name] = WrittenTensor(by)

    def _bias_scale(self, values: np.ndarray, mark: BiasMark, name: str) -> tuple[np.ndarray, int]:
        """A bias's scale and ONNX's number of its type: float32 where float16 would erase or clip a float16 bias."""
        beta = 1.0 if mark.beta == 0 else mark.beta
        first, second = (self._scale_of(t, mark.node, name) for t in (mark.input, mark.weight))
        scale = np.asarray(first * second * beta, values.dtype)
        if values.dtype != np.float16:
            return scale, TensorProto.FLOAT
        least = least_bias_scale(values.reshape(-1), scale.size > 1)
        if (scale > 0).all() and (scale.astype(np.float64) * 1.0001 >= least).all():
            return scale, TensorProto.FLOAT16
        wide = np.maximum(first.astype(np.float32) * second.astype(np.float32) * beta, least).astype(np.float32)
        return np.where(wide == 0, np.float32(1), wide), TensorProto.FLOAT

    def _float_bias(self, name: str, values: np.ndarray) -> None:
        """With float8, biases stay floats: products of float8 take no others."""
        kind = self.editor.initializers[name].data_type
        stored = f"{name}_quantized"
        self.editor.add_array(stored, values.astype(np.float32), TensorProto.FLOAT)
        self.editor.drop_initializer(name)
        self.editor.add_node(helper.make_node("Cast", [stored], [name], f"{name}_DequantizeLinear", to=kind))
        empty = AffineParameters(np.ones(1, np.float32), np.zeros(1, np.int32), TensorProto.FLOAT)
        self.written[name] = WrittenTensor(Written("", "", empty))


def pair_domain(settings: QuantizerSettings, opset: int) -> str:
    """The domain of QuantizeLinear: onnxruntime's where requested, and for 16 and 4 bits before opset 21, which has them."""
    if settings.option("UseQDQContribOps"):
        return MICROSOFT
    wanted = {settings.weight_type, settings.activation_type, *(q.tensor_type for q in settings.overrides.get_quant_types())}
    if opset >= 21 or not wanted & set(_SINCE_21):
        return ""
    logger.warning(
        "opset %d has no QuantizeLinear of 16 or 4 bits: those of domain %r are used; convert the model to opset 21 for "
        "standard ones", opset, MICROSOFT,
    )  # fmt: skip
    return MICROSOFT


def set_import(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Let a model import an operator set, unless it does."""
    if all(entry.domain != domain for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, version))


def is_quantized(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether a model has pairs already."""
    return any(n.op_type in ("QuantizeLinear", "DequantizeLinear") for n in nodes)
