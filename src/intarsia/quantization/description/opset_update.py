"""Later operator sets for models whose own has no quantisation of the types that are requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import TensorProto, version_converter

from intarsia.quantization.description.model_files import opset_version, with_shapes
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.numerics.quant_types import FLOAT8, QuantType, type_number

_WIDE = (TensorProto.UINT16, TensorProto.INT16)


def opset_needed(present: int, kinds: set[int], block: int, channels: bool = False) -> tuple[int, str]:
    """The operator set that quantisation to these types needs, at least the present one, and why another."""
    if present < 21 and block > 0:
        return 21, "has no QuantizeLinear in blocks"
    if present < 19 and FLOAT8 in kinds:
        return 19, "has no QuantizeLinear of float 8"
    if present < 21 and kinds & set(_WIDE):
        return 21, "has no QuantizeLinear of 16 bits"
    if present < 13 and channels:
        return 13, "has no DequantizeLinear by channels"
    if present < 10:
        return 11, "has no quantisation"
    return present, ""


def with_opset_for(
    model: onnx.ModelProto,
    weights: Any,
    activations: Any = None,
    overrides: Mapping[str, Any] | None = None,
    block: int = 0,
    channels: bool = False,
) -> onnx.ModelProto:
    """The model, converted where its operator set lacks what is requested; the same object where it does not.

    Args:
        weights, activations: QuantType, or ONNX's number.
        overrides: TensorQuantOverrides, whose 16-bit types count.
        block: elements of a block of weights.
        channels: whether weights in pairs have a scale for each channel.
    """
    kinds = {type_number(kind) for kind in (weights, activations) if kind is not None} | _overridden(overrides)
    present = opset_version(model)
    target, why = opset_needed(present, kinds, block, channels)
    if target == present:
        if present == 10:
            logger.warning("opset 10 is quantised as it is; from opset 11 on fewer operators find a dynamic range")
        return model
    logger.warning("opset %d %s: the model is converted to opset %d", present, why, target)
    return with_shapes(version_converter.convert_version(model, target))


def _overridden(overrides: Mapping[str, Any] | None) -> set[int]:
    """Types in overrides; what is malformed is for their own check."""
    found = set()
    for entries in (overrides or {}).values():
        for entry in entries if isinstance(entries, list) else ():
            for part in (entry, entry.get("convert")) if isinstance(entry, dict) else ():
                if isinstance(part, dict) and isinstance(part.get("quant_type"), QuantType):
                    found.add(part["quant_type"].tensor_type)
    return found
