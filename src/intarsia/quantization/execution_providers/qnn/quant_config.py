"""`get_qnn_qdq_config`: settings by which a model in pairs fits Qualcomm's QNN."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from intarsia.compat.declared_arguments import takes
from intarsia.quantization.calibration.tensor_ranges import CalibrationMethod
from intarsia.quantization.description import model_files
from intarsia.quantization.description.tensor_marks import logger, opset_of
from intarsia.quantization.description.tensor_overrides import TensorQuantOverridesHelper
from intarsia.quantization.execution_providers.qnn.mixed_precision_overrides_utils import (
    MixedPrecisionTensorQuantOverridesFixer,
)
from intarsia.quantization.numerics.quant_types import QuantType
from intarsia.quantization.quantize import Source, StaticQuantConfig, light_model

Q16_TYPES = {QuantType.QInt16, QuantType.QUInt16}
Q8_TYPES = {QuantType.QInt8, QuantType.QUInt8}
Q4_TYPES = {QuantType.QInt4, QuantType.QUInt4}
OP_TYPES_TO_EXCLUDE = {"Cast"}

_FIXED = {
    ("Sigmoid", QuantType.QUInt16): (1.0 / 65536.0, 0, np.uint16),
    ("Sigmoid", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
    ("Tanh", QuantType.QUInt16): (1.0 / 32768.0, 32768, np.uint16),
    ("Tanh", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
}
"""Operator and output type -> the scale and the zero point that QNN requires."""


@dataclass
class QnnArguments:
    """Arguments of `get_qnn_qdq_config`, as onnxruntime has them.

    Attributes:
        init_overrides: as TensorQuantOverrides.
        add_qtype_converts: add conversions, so that operators have inputs and outputs of one type.
        weight_symmetric: None: for signed types.
        stride: how many of the reader's inputs are calibrated together.
    """

    model_input: Source
    calibration_data_reader: Any
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    activation_type: QuantType = QuantType.QUInt8
    weight_type: QuantType = QuantType.QUInt8
    per_channel: bool = False
    init_overrides: dict[str, list[dict[str, Any]]] | None = None
    add_qtype_converts: bool = True
    activation_symmetric: bool = False
    weight_symmetric: bool | None = None
    keep_removable_activations: bool = False
    stride: int | None = None
    calibration_providers: list[Any] | None = None
    op_types_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | None = None


@takes(QnnArguments)
def get_qnn_qdq_config(given: QnnArguments) -> StaticQuantConfig:
    """A configuration for QNN; arguments as of `QnnArguments`.

    Raises:
        InvalidArgument: overrides that the model does not fit.
    """
    if given.weight_symmetric is None:
        given.weight_symmetric = given.weight_type in {QuantType.QInt8, QuantType.QInt16}
    model = light_model(given.model_input)
    overrides = TensorQuantOverridesHelper(deepcopy(given.init_overrides or {}))
    if given.add_qtype_converts and not overrides.empty():
        fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, model, given.activation_type)
        fixer.apply(given.activation_type, given.activation_symmetric)
    rules = _Requirements(given, overrides, {t.name for t in model.graph.initializer})
    found: dict[str, None] = {}
    for node in model.graph.node:
        wanted = not given.op_types_to_quantize or node.op_type in given.op_types_to_quantize
        if wanted and node.name not in (given.nodes_to_exclude or ()):
            found[node.op_type] = None
            rules.apply(node)
    options: dict[str, Any] = {
        "MinimumRealRange": 0.0001, "DedicatedQDQPair": False, "QDQKeepRemovableActivations": given.keep_removable_activations,
        "TensorQuantOverrides": overrides.get_dict(), "ActivationSymmetric": given.activation_symmetric,
        "WeightSymmetric": given.weight_symmetric, "CalibStridedMinMax": given.stride,
    }  # fmt: skip
    if opset_of(model) < 21 and {given.activation_type, given.weight_type, *overrides.get_quant_types()} & (
        Q16_TYPES | Q4_TYPES
    ):
        options["UseQDQContribOps"] = True
    return StaticQuantConfig(
        given.calibration_data_reader, given.calibrate_method, activation_type=given.activation_type,
        weight_type=given.weight_type,
        op_types_to_quantize=given.op_types_to_quantize or [op for op in found if op not in OP_TYPES_TO_EXCLUDE],
        nodes_to_exclude=given.nodes_to_exclude, per_channel=given.per_channel,
        use_external_data_format=model_files.has_external_data(model) or model.ByteSize() >= model_files.LARGE,
        calibration_providers=given.calibration_providers, extra_options=options,
    )  # fmt: skip


class _Requirements:
    """Overrides for single operators."""

    def __init__(self, given: QnnArguments, overrides: TensorQuantOverridesHelper, stored: set[str]) -> None:
        self.given, self.overrides, self.stored = given, overrides, stored
        self._rules: dict[str, Callable[[onnx.NodeProto], None]] = {
            "MatMul": self._matmul, "LayerNormalization": self._normalisation, "Sigmoid": self._fixed, "Tanh": self._fixed,
        }  # fmt: skip

    def apply(self, node: onnx.NodeProto) -> None:
        """Add what a node requires."""
        if node.op_type in self._rules:
            self._rules[node.op_type](node)

    def _weight(self) -> dict[str, Any]:
        return {"quant_type": self.given.weight_type, "symmetric": self.given.weight_symmetric}

    def _matmul(self, node: onnx.NodeProto) -> None:
        """By channels QNN has no MatMul; else stored operands get the type of weights beside 16-bit activations."""
        if not self.given.per_channel:
            self._stored_operand(node)
            return
        for name in node.input:
            if name in self.stored and name not in self.overrides:
                self.overrides.update_tensor_overrides(name, self._weight())

    def _normalisation(self, node: onnx.NodeProto) -> None:
        if not self.given.per_channel:
            self._stored_operand(node)

    def _stored_operand(self, node: onnx.NodeProto) -> None:
        if self.given.weight_type not in Q8_TYPES:
            return
        weight, wide = "", False
        for name in filter(None, node.input[:2]):
            own = name in self.stored
            usual = None if own else self.given.activation_type
            info = self.overrides.get_node_input_qtype_info(name, node.name, usual)
            if info.axis is not None:
                return
            if own and (info.quant_type, info.symmetric) == (self.given.weight_type, self.given.weight_symmetric):
                return
            weight = name if own else weight
            wide = wide or (not own and info.quant_type in Q16_TYPES)
        if weight and wide and not self.overrides.update_tensor_overrides(weight, self._weight(), overwrite=False):
            logger.warning("%s: weight %s has overrides already, and may not run on QNN", node.name, weight)

    def _fixed(self, node: onnx.NodeProto) -> None:
        kind = self.overrides.get_node_output_qtype_info(node.output[0], self.given.activation_type).quant_type
        required = _FIXED.get((node.op_type, kind)) if kind is not None else None
        if required is not None:
            scale, point, dtype = required
            values = {"quant_type": kind, "scale": np.array(scale, np.float32), "zero_point": np.array(point, dtype)}
            self.overrides.update_tensor_overrides(node.output[0], values)
