"""Helpers of onnxruntime.quantization.quant_utils that scripts import."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.errors import InvalidArgument, WrongType
from intarsia.quantization.calibration.calibration_tables import write_calibration_table
from intarsia.quantization.calibration.clipping_thresholds import smoothed
from intarsia.quantization.description import model_files
from intarsia.quantization.description.model_editor import tensor_of
from intarsia.quantization.description.opset_update import with_opset_for
from intarsia.quantization.numerics import affine
from intarsia.quantization.numerics.affine import AffineParameters, RangeRule
from intarsia.quantization.numerics.bit_packing import packed_4bit
from intarsia.quantization.numerics.quant_types import (
    FLOAT8,
    FLOAT_TYPES,
    INTEGER_TYPES,
    IntegerType,
    QuantFormat,
    QuantizationMode,
    QuantizedValueType,
    QuantType,
    integer_type,
    storage_dtype,
)
from intarsia.quantization.writers.integer_forms import QuantizedValue
from intarsia.quantization.writers.qdq import MICROSOFT

__all__ = [
    "DEQUANT_OP_NAME",
    "DEQUANT_OUTPUT_SUFFIX",
    "FLOAT8_TYPES",
    "MODEL_SIZE_THRESHOLD",
    "ONNX_INT_TYPE_RANGE",
    "ONNX_INT_TYPE_REDUCED_RANGE",
    "ONNX_INT_TYPE_SYMMETRIC_RANGE",
    "ONNX_TYPE_TO_NP_TYPE",
    "QUANT_INPUT_SUFFIX",
    "QUANT_OP_NAME",
    "TENSOR_NAME_QUANT_SUFFIX",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "QuantizedValue",
    "QuantizedValueType",
    "add_dequant_input_suffix",
    "add_dequant_output_suffix",
    "add_dequant_suffix",
    "add_infer_metadata",
    "add_pre_process_metadata",
    "add_quant_input_suffix",
    "add_quant_output_suffix",
    "add_quant_suffix",
    "attribute_to_kwarg",
    "compute_data_quant_params",
    "compute_scale_zp",
    "compute_scale_zp_blocked",
    "compute_scale_zp_float8",
    "find_by_name",
    "generate_identified_filename",
    "get_elem_index",
    "get_mul_node",
    "get_opset_version",
    "get_qmin_qmax_for_qType",
    "get_qrange_for_qType",
    "load_model_with_shape_infer",
    "model_has_external_data",
    "model_has_infer_metadata",
    "model_has_pre_process_metadata",
    "ms_domain",
    "normalize_axis",
    "onnx_domain",
    "optimize_model",
    "pack_bytes_to_4bit",
    "quantize_data",
    "quantize_nparray",
    "quantize_onnx_initializer",
    "save_and_reload_model_with_shape_infer",
    "smooth_distribution",
    "snap_zero_point_to_uint8",
    "tensor_proto_to_array",
    "type_to_name",
    "update_opset_version",
    "write_calibration_table",
]  # fmt: skip

__producer__ = "onnx.quantize"
__version__ = "0.1.0"
onnx_domain = "ai.onnx"
ms_domain = MICROSOFT
QUANT_OP_NAME = "QuantizeLinear"
QUANT_INPUT_SUFFIX = "_QuantizeLinear_Input"
DEQUANT_OP_NAME = "DequantizeLinear"
DEQUANT_OUTPUT_SUFFIX = "_DequantizeLinear_Output"
TENSOR_NAME_QUANT_SUFFIX = "_quantized"
MODEL_SIZE_THRESHOLD = model_files.LARGE
FLOAT8_TYPES = tuple(getattr(onnx.TensorProto, f"FLOAT8{kind}") for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ"))
type_to_name = {number: name for name, number in onnx.TensorProto.DataType.items()}


def _bounds(kind: IntegerType, **how: bool) -> tuple[np.ndarray, np.ndarray]:
    low, high = kind.bounds(**how)
    return np.array(low, kind.dtype), np.array(high, kind.dtype)


ONNX_TYPE_TO_NP_TYPE = {**{n: kind.dtype for n, kind in INTEGER_TYPES.items()}, FLOAT8: storage_dtype(FLOAT8)}
ONNX_INT_TYPE_RANGE = {n: _bounds(kind) for n, kind in INTEGER_TYPES.items()}
ONNX_INT_TYPE_SYMMETRIC_RANGE = {
    n: _bounds(kind, symmetric=True) for n, kind in INTEGER_TYPES.items() if kind.signed and kind.bits > 4
}
ONNX_INT_TYPE_REDUCED_RANGE = {n: _bounds(kind, reduced=True) for n, kind in INTEGER_TYPES.items()}


def get_qmin_qmax_for_qType(  # noqa: N802 # onnxruntime's name
    qType: int, reduce_range: bool = False, symmetric: bool = False  # noqa: N803 # as above
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The least and greatest value of a quantised type, as scalars of it.

    Raises:
        InvalidArgument: a type that is no integer.
    """
    return _bounds(integer_type(qType), symmetric=symmetric and not reduce_range, reduced=reduce_range)


def get_qrange_for_qType(  # noqa: N802 # onnxruntime's name
    qType: int, reduce_range: bool = False, symmetric: bool = False  # noqa: N803 # as above
) -> int:  # fmt: skip
    """How many steps a quantised type has.

    Raises:
        InvalidArgument: a type that is no integer.
    """
    low, high = integer_type(qType).bounds(symmetric=symmetric and not reduce_range, reduced=reduce_range)
    return high - low


def compute_scale_zp(
    rmin: Any, rmax: Any, qmin: Any, qmax: Any, symmetric: bool = False, min_real_range: float | None = None
) -> list[np.ndarray]:
    """Zero point (of `qmin`'s type) and scale (of `rmax`'s) for a range.

    Raises:
        InvalidArgument: 0 is not between `qmin` and `qmax`.
    """
    points, scales = affine.affine_of_range(
        np.asarray(rmin), np.asarray(rmax), (int(qmin), int(qmax)), symmetric, min_real_range
    )  # fmt: skip
    return [np.asarray(points).astype(np.asarray(qmin).dtype), np.asarray(scales)]


def snap_zero_point_to_uint8(
    rmin: Any, rmax: Any, qmin: int = 0, qmax: int = 255, min_real_range: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """As `intarsia.quantization.numerics.affine.snapped_to_middle`."""
    least, most = (float(np.squeeze(end)) for end in (rmin, rmax))
    return affine.snapped_to_middle(least, most, (int(qmin), int(qmax)), min_real_range)


def compute_scale_zp_float8(element_type: int, std: Any) -> list[np.ndarray]:
    """Zero and the scale of float8 for values of this standard deviation.

    Raises:
        WrongType: another type than float8 (E4M3FN).
    """
    if element_type != FLOAT8:
        raise WrongType(f"Unexpected element_type {element_type}: expected FLOAT8E4M3FN ({FLOAT8})")
    return [np.array(0, storage_dtype(FLOAT8)), affine.float8_scale(np.asarray(std))]


def compute_scale_zp_blocked(
    weight: np.ndarray, quant_type: int, axis: int, block_size: int, symmetric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Zero points and scales of blocks along an axis of a matrix; of its rank, with the number of blocks at `axis`.

    Raises:
        NotImplementedError: the weight is no matrix.
    """
    if weight.ndim != 2:
        raise NotImplementedError(f"blocks of weights: expected a matrix (rank-2), got shape {list(weight.shape)}; reshape it")
    found = affine.tensor_parameters(weight, quant_type, RangeRule(symmetric, axis=axis % 2, block=block_size))
    return found.zero_point, found.scale


def compute_data_quant_params(*given: Any, **named: Any) -> tuple[np.ndarray, np.ndarray]:
    """Zero point and scale of data: the arguments of `quantize_data`.

    Raises:
        WrongType: data that is no array.
    """
    found = _data_parameters(DataArguments(*given, **named))
    return found.zero_point, found.scale


@dataclass
class DataArguments:
    """Arguments of `quantize_data`: data of floats, ONNX's number of a type, how its range is made, and ends to use instead."""

    data: np.ndarray
    quant_type: int
    symmetric: bool
    reduce_range: bool = False
    min_real_range: float | None = None
    rmin_override: float | None = None
    rmax_override: float | None = None


def _data_parameters(given: DataArguments) -> AffineParameters:
    data = given.data
    if not isinstance(data, np.ndarray):
        raise WrongType(f"Weight must be given as an array not {type(data)}.")
    rule = RangeRule(given.symmetric, given.reduce_range, given.min_real_range)
    if given.quant_type == FLOAT8:
        return affine.tensor_parameters(data, FLOAT8, rule)
    least, most = affine.ends(data)
    least, most = (
        end if other is None else np.asarray(other, data.dtype)
        for end, other in ((least, given.rmin_override), (most, given.rmax_override))
    )
    return affine.range_parameters(least, most, integer_type(given.quant_type), rule)


def quantize_data(*given: Any, **named: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Zero point, scale and the quantised values of data.

    Arguments as of `DataArguments`; `qType` is another name of `quant_type`.

    Raises:
        WrongType: data that is no array.
        InvalidArgument: another type than those of QuantType, or float8 of what is not finite.
    """
    if "qType" in named:
        named["quant_type"] = named.pop("qType")
    arguments = DataArguments(*given, **named)
    found = _data_parameters(arguments)
    values = affine.quantized(arguments.data, found)
    if arguments.quant_type == FLOAT8 and not np.isfinite(values.astype(np.float32)).all():
        raise InvalidArgument("float8 of weights that are not finite: one of the quantized values is NaN")
    return found.zero_point, found.scale, values


def quantize_nparray(
    qType: int, arr: np.ndarray, scale: Any, zero_point: Any, low: int | None = None, high: int | None = None  # noqa: N803
) -> np.ndarray:  # fmt: skip
    """round(arr / scale) + zero point, in a quantised type, clipped to it and to [low, high].

    Raises:
        InvalidArgument: another type than those of QuantType.
    """
    bounds = None
    if qType != FLOAT8:
        own = integer_type(qType)
        bounds = (own.low if low is None else max(own.low, low), own.high if high is None else min(own.high, high))
    return affine.rounded(np.asarray(arr), np.asarray(scale), np.asarray(zero_point), qType, bounds)


def quantize_onnx_initializer(
    weight: onnx.TensorProto, quant_type: int, zero_point: np.ndarray, scale: np.ndarray, axis: int | None = None,
    quant_weight_name: str | None = None, block_size: int = 0,
) -> onnx.TensorProto:  # fmt: skip
    """A stored tensor of floats in a quantised type, named `NAME_quantized` by default."""
    parameters = AffineParameters(np.asarray(scale), np.asarray(zero_point), quant_type, axis, block_size)
    values = affine.quantized(tensor_proto_to_array(weight), parameters)
    return tensor_of(quant_weight_name or weight.name + TENSOR_NAME_QUANT_SUFFIX, values, quant_type)


def normalize_axis(axis: int, rank: int) -> tuple[bool, int]:
    """Whether an axis is one of `rank`, and its number counted from the front."""
    found = axis + rank if axis < 0 else axis
    return 0 <= found < rank, found


def pack_bytes_to_4bit(src_8bit: bytes) -> bytearray:
    """Bytes with four bits each as half as many bytes, the first of a pair in the low half."""
    return bytearray(packed_4bit(np.frombuffer(src_8bit, np.uint8)).tobytes())


def attribute_to_kwarg(attribute: onnx.AttributeProto) -> dict[str, Any]:
    """An attribute for `onnx.helper.make_node`.

    Raises:
        InvalidArgument: an attribute without a type.
    """
    if attribute.type == onnx.AttributeProto.UNDEFINED:
        raise InvalidArgument(f"attribute {attribute.name!r} does not have type specified.")
    return {attribute.name: helper.get_attribute_value(attribute)}


def find_by_name(item_name: str, item_list: Iterable[Any]) -> Any:
    """The first item of this name; None where there is none."""
    return next((item for item in item_list if item.name == item_name), None)


def get_elem_index(elem_name: Any, elem_list: list[Any]) -> int:
    """The last index of an element; -1 where it is not there."""
    return max((i for i, element in enumerate(elem_list) if element == elem_name), default=-1)


def get_mul_node(inputs: list[str], output: str, name: str) -> onnx.NodeProto:
    """A Mul node."""
    return helper.make_node("Mul", inputs, [output], name)


def generate_identified_filename(filename: Path, identifier: str) -> Path:
    """The path with `identifier` before its suffix."""
    return filename.with_name(filename.stem + identifier + filename.suffix)


def smooth_distribution(p: np.ndarray, eps: float = 0.0001) -> np.ndarray | None:
    """Counts without empty bins; None where all are empty."""
    found = smoothed(np.asarray(p), eps)
    return None if found is None else found.astype(np.float32)


def tensor_proto_to_array(initializer: onnx.TensorProto) -> np.ndarray:
    """A stored tensor of float32 or float16.

    Raises:
        InvalidArgument: another type.
    """
    if initializer.data_type not in FLOAT_TYPES:
        found = type_to_name.get(initializer.data_type, initializer.data_type)
        raise InvalidArgument(f"Only float type is supported. Weights {initializer.name} is {found}")
    return np.asarray(numpy_helper.to_array(initializer))


def model_has_external_data(model_path: Path) -> bool:
    """Whether weights of a model file lie in other files."""
    return model_files.has_external_data(onnx.load(os.fspath(model_path), load_external_data=False))


def optimize_model(model_path: Path, opt_model_path: Path) -> None:
    """Write a model as a session optimises it at the level "basic"."""
    from intarsia.tools.onnx_model_utils import optimize_model as optimised

    optimised(model_path, opt_model_path)


add_pre_process_metadata = model_files.mark_prepared
model_has_pre_process_metadata = model_files.is_prepared
add_infer_metadata = model_files.mark_inferred
model_has_infer_metadata = model_files.is_inferred
get_opset_version = model_files.opset_version


def update_opset_version(
    model: onnx.ModelProto, weight_type: Any, activation_type: Any = None,
    tensor_quant_overrides: Mapping[str, Any] | None = None, block_size: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """The model, converted where its operator set lacks what these types need; the same object where it does not."""
    return with_opset_for(model, weight_type, activation_type, tensor_quant_overrides, block_size)


def load_model_with_shape_infer(model_path: Path) -> onnx.ModelProto:
    """A model file in memory, with the types of its inner values."""
    return model_files.with_shapes(model_files.load_model(model_path))


def save_and_reload_model_with_shape_infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model, with the types of its inner values. Nothing is written."""
    return model_files.with_shapes(model_files.load_model(model))


def add_quant_suffix(tensor_name: str) -> str:
    """The name of the node that quantises a tensor."""
    return tensor_name + "_QuantizeLinear"


def add_quant_input_suffix(tensor_name: str) -> str:
    """The name of what is quantised to give an output."""
    return tensor_name + QUANT_INPUT_SUFFIX


def add_quant_output_suffix(tensor_name: str) -> str:
    """The name of a quantised tensor."""
    return tensor_name + "_QuantizeLinear_Output"


def add_dequant_suffix(tensor_name: str) -> str:
    """The name of the node that dequantises a tensor."""
    return tensor_name + "_DequantizeLinear"


def add_dequant_input_suffix(tensor_name: str) -> str:
    """The name of what is dequantised."""
    return tensor_name + "_DequantizeLinear_Input"


def add_dequant_output_suffix(tensor_name: str) -> str:
    """The name of a dequantised tensor."""
    return tensor_name + DEQUANT_OUTPUT_SUFFIX
