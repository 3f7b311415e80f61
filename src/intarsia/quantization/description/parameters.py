"""Scales and zero points of the tensors that were marked: the second half of the description."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from intarsia.errors import InvalidArgument, WrongType
from intarsia.quantization.calibration.tensor_ranges import TensorData
from intarsia.quantization.description.model_editor import ModelEditor
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.description.tensor_marks import TensorMark
from intarsia.quantization.numerics.affine import (
    AffineParameters,
    RangeRule,
    ends,
    float8_scale,
    range_parameters,
    snapped_to_middle,
    tensor_parameters,
)
from intarsia.quantization.numerics.quant_types import FLOAT8, IntegerType, integer_type, storage_dtype, type_number


@dataclass
class TensorParameters:
    """How an activation is quantised, and how for readers that get another type.

    Attributes:
        converted: for those readers; None where all get the same.
        receivers: their names; None: all readers.
    """

    original: AffineParameters
    converted: AffineParameters | None = None
    receivers: set[str] | None = None

    def for_reader(self, node: str) -> AffineParameters:
        """What the node of this name reads."""
        if self.converted is None or (self.receivers is not None and node not in self.receivers):
            return self.original
        return self.converted


def checked_ranges(ranges: Any) -> None:
    """Raise where ranges are of another kind than calibration gives.

    Raises:
        WrongType: a value is no TensorData.
    """
    wrong = {type(v).__name__ for v in ranges.values() if not isinstance(v, TensorData)} if ranges is not None else set()
    if wrong:
        raise WrongType(f"tensors_range: expected TensorData for each tensor, got {', '.join(sorted(wrong))}")


def tightened(ranges: MutableMapping[str, TensorData], editor: ModelEditor, settings: QuantizerSettings) -> None:
    """Change ranges by what follows: what only a Relu or Clip reads has the range of its output, a Softmax [0, 1]."""
    for node in editor.nodes:
        if not settings.wants(node):
            continue
        source, result = (node.input[0] if node.input else ""), (node.output[0] if node.output else "")
        if node.op_type in ("Clip", "Relu"):
            if len(editor.readers_of(source)) == 1 and source in ranges and result in ranges:
                ranges[source] = ranges[result]
        elif node.op_type == "Softmax" and result in ranges:
            ranges[result] = TensorData(lowest=np.float32(0.0), highest=np.float32(1.0))


def activation_parameters(found: TensorData, settings: QuantizerSettings, override: Mapping[str, Any]) -> AffineParameters:
    """Scale and zero point of a calibrated range, and of what a user sets instead."""
    kind = type_number(override.get("quant_type", settings.activation_type))
    if "scale" in override and "zero_point" in override:
        scale = np.asarray(override["scale"])
        scale = scale if scale.dtype in (np.float32, np.float16) else scale.astype(np.float32)
        return AffineParameters(scale.squeeze(), _points(override["zero_point"], kind).squeeze(), kind, source="given")
    if kind == FLOAT8:
        scale = float8_scale(np.asarray(found.avg_std[1]))
        return AffineParameters(scale.squeeze(), np.zeros((), storage_dtype(kind)), kind, source="calibrated deviation")
    return _calibrated(found, settings, override, integer_type(kind))


def _calibrated(
    found: TensorData, settings: QuantizerSettings, override: Mapping[str, Any], own: IntegerType
) -> AffineParameters:
    least, most = (np.asarray(end).squeeze() for end in found.range_value)
    least, most = (
        np.asarray(override.get(key, end), end.dtype) for key, end in (("rmin", least), ("rmax", most))
    )  # fmt: skip
    symmetric = bool(override.get("symmetric", settings.symmetric_activations))
    rule = RangeRule(symmetric, bool(override.get("reduce_range", False)), settings.least_width, source="calibrated")
    snapped = settings.option("ActivationRestrictedAsymmetric") and not symmetric
    if snapped and own.number == onnx.TensorProto.UINT8:
        bounds = own.bounds(symmetric=symmetric, reduced=rule.reduced)
        point, scale = snapped_to_middle(float(least), float(most), bounds, settings.least_width)
        return AffineParameters(scale, point, own.number, source="calibrated, zero point at the least or middle value")
    return range_parameters(least, most, own, rule)


def _points(value: Any, kind: int) -> np.ndarray:
    return np.asarray(value).astype(storage_dtype(kind))


def all_activation_parameters(ranges: Mapping[str, TensorData], settings: QuantizerSettings) -> dict[str, TensorParameters]:
    """Parameters of every tensor that has a range."""
    found = {}
    for name in ranges:
        override = settings.overrides.get_per_tensor_overrides(name, {}) or {}
        made = TensorParameters(activation_parameters(ranges[name], settings, override))
        if "convert" in override:
            made.converted = activation_parameters(ranges[name], settings, override["convert"])
            made.receivers = override["convert"].get("recv_nodes")
        found[name] = made
    return found


@dataclass(frozen=True)
class StoredRequest:
    """What is wanted of a stored tensor, where a user sets nothing else for it.

    Attributes:
        kind: ONNX's number of the quantised type.
        symmetric: about 0; by channels this is decided anew where it is None.
        axis: of channels; None: one scale.
        block: elements of a block along the axis (0: the first); 0 without blocks.
    """

    kind: int
    symmetric: bool
    reduced: bool = False
    axis: int | None = None
    block: int = 0


def request_of(mark: TensorMark, settings: QuantizerSettings, override: Mapping[str, Any]) -> StoredRequest:
    """What a mark requires of a stored tensor. By channels it is symmetric: QLinear operators take one zero point for all."""
    kind = type_number(override.get("quant_type", settings.weight_type if mark.weight else settings.activation_type))
    usual = settings.symmetric_weights(kind) if mark.weight else settings.symmetric_activations
    by_channel = override.get("axis", mark.axis) is not None
    block = (settings.option("BlockSize", 0) or 0) if mark.weight else 0
    return StoredRequest(kind, by_channel or usual, settings.reduce_range, mark.axis, block)


def stored_parameters(name: str, values: np.ndarray, request: StoredRequest, settings: QuantizerSettings) -> AffineParameters:
    """Parameters of a stored tensor.

    Raises:
        InvalidArgument: an axis outside its rank, or overrides that do not fit.
    """
    overrides = settings.overrides.get(name) or [{}]
    first = overrides[0]
    kind = type_number(first.get("quant_type", request.kind))
    axis = _axis(name, first.get("axis", request.axis), values.ndim)
    if "scale" in first and "zero_point" in first:
        axis = _axis(name, first.get("axis"), values.ndim)
        scale, point = ([o[key] for o in overrides] if axis is not None else first[key] for key in ("scale", "zero_point"))
        return AffineParameters(np.asarray(scale, values.dtype), _points(point, kind), kind, axis, source="given")
    symmetric = bool(first.get("symmetric", request.symmetric))
    if request.block:
        return tensor_parameters(values, kind, RangeRule(symmetric, axis=axis or 0, block=request.block, source="weights"))
    reduced = bool(first.get("reduce_range", request.reduced))
    rule = RangeRule(symmetric, reduced, settings.least_width, axis, source="weights")
    if not any({"rmin", "rmax"} & o.keys() for o in overrides):
        return tensor_parameters(values, kind, rule)
    least, most = _given_ends(values, axis, overrides)
    return range_parameters(least, most, integer_type(kind), rule)


def _axis(name: str, axis: int | None, rank: int) -> int | None:
    if axis is None:
        return None
    if not -rank <= axis < rank:
        raise InvalidArgument(
            f"Weight {name} has a per-channel axis with value {axis} that is out-of-bounds for rank {rank}"
        )  # fmt: skip
    return axis % rank


def _given_ends(values: np.ndarray, axis: int | None, overrides: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of a stored tensor, with the ends that a user sets instead."""
    least, most = (np.array(end, copy=True) for end in ends(values, axis))
    for key, end in (("rmin", least), ("rmax", most)):
        given = [o.get(key) for o in overrides]
        if axis is None:
            end[...] = end if given[0] is None else given[0]
            continue
        for i, value in enumerate(given if len(given) > 1 else given * len(end)):
            if value is not None:
                end[i] = value
    return least, most
