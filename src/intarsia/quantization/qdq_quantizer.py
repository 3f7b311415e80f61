"""`QDQQuantizer`: onnxruntime's class for models in the QDQ format."""

from __future__ import annotations

import onnx

from intarsia.compat.declared_arguments import takes_as_method
from intarsia.quantization.description.settings import QdqArguments, QuantizerSettings
from intarsia.quantization.onnx_model import ONNXModel
from intarsia.quantization.quantized_models import prepared, with_pairs


class QDQQuantizer:
    """Quantises a model of floats into the QDQ format; arguments as of `QdqArguments`.

    Attributes:
        model: an `ONNXModel`.
        tensors_range: calibrated ranges by tensor.

    Raises:
        InvalidArgument: overrides that the model does not fit.
    """

    @takes_as_method(QdqArguments)
    def __init__(self, given: QdqArguments) -> None:
        self.settings = QuantizerSettings.of(given)
        self.model = ONNXModel(prepared(given.model, self.settings))
        self.tensors_range = given.tensors_range
        self.extra_options = given.extra_options or {}

    def quantize_model(self) -> onnx.ModelProto:
        """The quantised model, which is that of `model`, too.

        Raises:
            InvalidArgument: the range of a tensor is missing.
        """
        self.model.model = with_pairs(self.model.model, self.settings, self.tensors_range)
        return self.model.model
