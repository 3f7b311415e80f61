"""`FusionLpNormalization`: ReduceL2, Clip, Expand and Div as LpNormalization."""

from __future__ import annotations

from intarsia.quantization.description.pattern_fusions import fuse_lp_normalization
from intarsia.quantization.onnx_model import ONNXModel


class FusionLpNormalization:
    """Division by a vector's length as one operator.

    Args:
        model: changed in place by `apply`.
        epsilon: the least length.
    """

    def __init__(self, model: ONNXModel, epsilon: float = 1e-12) -> None:
        self.model, self.epsilon = model, epsilon

    def apply(self) -> bool:
        """Fuse all; whether there were any."""
        return fuse_lp_normalization(self.model.model, self.epsilon)
