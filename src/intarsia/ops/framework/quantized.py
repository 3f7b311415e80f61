"""Operands in integers with their scales and zero points, as one parameter of a definition."""

from __future__ import annotations

from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.primitives.lang import Tensor


@dataclass(frozen=True)
class Quantized(ParameterGroup):
    """The real numbers scale * (values - zero_point): inputs `x`, `x_scale` and `x_zero_point` of a parameter `x`."""

    values: Tensor
    scale: Tensor
    zero_point: Tensor

    @classmethod
    def onnx_names(cls, parameter: str) -> list[str]:
        return [parameter, f"{parameter}_scale", f"{parameter}_zero_point"]


@dataclass(frozen=True)
class QuantizedMatrix(Quantized):
    """Inputs `A`, `a_scale` and `a_zero_point` of a parameter `A`, as some of onnxruntime's operators name them."""

    @classmethod
    def onnx_names(cls, parameter: str) -> list[str]:
        return [parameter, f"{parameter.lower()}_scale", f"{parameter.lower()}_zero_point"]


@dataclass(frozen=True)
class OutputQuantization(ParameterGroup):
    """How an output is stored: inputs `y_scale` and `y_zero_point` of a parameter `y`."""

    scale: Tensor
    zero_point: Tensor

    @classmethod
    def onnx_names(cls, parameter: str) -> list[str]:
        return [f"{parameter}_scale", f"{parameter}_zero_point"]
