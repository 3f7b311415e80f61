"""onnxruntime's classes for sequences of nodes that become one: `FusionGelu(model).apply()`."""

from __future__ import annotations

from intarsia.quantization.description.pattern_fusions import fuse_gelu, fuse_layer_normalization
from intarsia.quantization.description.upsample_rewrite import upsample_as_resize
from intarsia.quantization.onnx_model import ONNXModel

__all__ = ["FusionGelu", "FusionLayerNormalization", "ReplaceUpsampleWithResize"]


class FusionGelu:
    """Gelu, written with Erf, as onnxruntime's operator.

    Args:
        model: changed in place by `apply`.
    """

    def __init__(self, model: ONNXModel) -> None:
        self.model = model

    def apply(self) -> bool:
        """Fuse all; whether there were any."""
        return fuse_gelu(self.model.model)


class FusionLayerNormalization:
    """LayerNormalization, written with ReduceMean, as ONNX's operator of opset 17.

    Args:
        model: changed in place by `apply`.
    """

    def __init__(self, model: ONNXModel) -> None:
        self.model = model

    def apply(self) -> bool:
        """Fuse all; whether there were any."""
        return fuse_layer_normalization(self.model.model)


class ReplaceUpsampleWithResize:
    """Upsample as Resize.

    Args:
        model: changed in place by `apply`.
        opset: no effect: it is the model's.
    """

    def __init__(self, model: ONNXModel, opset: int = 0) -> None:
        self.model, self.opset = model, opset

    def apply(self) -> bool:
        """Replace all; whether there were any."""
        return upsample_as_resize(self.model.model)
