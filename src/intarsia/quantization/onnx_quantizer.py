"""`ONNXQuantizer`: onnxruntime's class for models of integer operators."""

from __future__ import annotations

import onnx

from intarsia.compat.declared_arguments import takes_as_method
from intarsia.errors import InvalidArgument
from intarsia.quantization.description.settings import OperatorArguments, QuantizerSettings
from intarsia.quantization.numerics.quant_types import QuantizationMode
from intarsia.quantization.onnx_model import ONNXModel
from intarsia.quantization.quantized_models import prepared, with_integer_operators


class ONNXQuantizer:
    """Quantises a model of floats into integer operators; arguments as of `OperatorArguments`.

    Attributes:
        model: an `ONNXModel`.
        mode: which operators.
        static: whether ranges are calibrated; else they are found in each run.

    Raises:
        InvalidArgument: no such mode, or overrides that the model does not fit.
    """

    @takes_as_method(OperatorArguments)
    def __init__(self, given: OperatorArguments) -> None:
        if not isinstance(given.mode, QuantizationMode):
            raise InvalidArgument(f"unsupported quantization mode {given.mode!r}: expected a QuantizationMode")
        self.settings = QuantizerSettings.of(given)
        self.model = ONNXModel(prepared(given.model, self.settings))
        self.mode, self.static = given.mode, bool(given.static)
        self.tensors_range = given.tensors_range
        self.extra_options = given.extra_options or {}

    def quantize_model(self) -> onnx.ModelProto:
        """The quantised model, which is that of `model`, too.

        Raises:
            InvalidArgument: the type of a tensor is not known.
        """
        self.model.model = with_integer_operators(
            self.model.model, self.settings, self.mode, self.tensors_range, self.static
        )  # fmt: skip
        return self.model.model
