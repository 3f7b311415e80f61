"""onnxruntime's functions: `quantize_static`, `quantize_dynamic`, `quantize`, `get_qdq_config`, and their configurations."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import onnx

from intarsia.compat.declared_arguments import takes
from intarsia.errors import InvalidArgument, WrongType
from intarsia.quantization.calibrate import CalibratorArguments, calibrator_of
from intarsia.quantization.calibration.tensor_ranges import (
    CalibrationMethod,
    TensorsData,
    read_cache,
    save_tensors_data,
)
from intarsia.quantization.description import model_files
from intarsia.quantization.description.marking_rules import MARKING_RULES
from intarsia.quantization.description.model_editor import store_constants
from intarsia.quantization.description.opset_update import with_opset_for
from intarsia.quantization.description.settings import OperatorArguments, QdqArguments, QuantizerSettings
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.description.tensor_overrides import TensorQuantOverridesHelper
from intarsia.quantization.numerics.quant_types import QuantFormat, QuantizationMode, QuantType
from intarsia.quantization.quantized_models import Ranges, prepared, ranges_for_pairs, with_integer_operators, with_pairs
from intarsia.quantization.writers.bias_correction import correct_biases
from intarsia.quantization.writers.cross_layer import equalize_layers
from intarsia.quantization.writers.dynamic_rules import DYNAMIC_RULES
from intarsia.quantization.writers.qlinear_rules import QLINEAR_RULES
from intarsia.quantization.writers.smooth_quant import smoothed_model

Source: TypeAlias = str | os.PathLike[str] | onnx.ModelProto
_WIDE = (QuantType.QInt16, QuantType.QUInt16)
_NARROW = (QuantType.QInt4, QuantType.QUInt4)
_CALIBRATION_OPTIONS = {
    "CalibTensorRangeSymmetric": "symmetric",
    "CalibMovingAverage": "moving_average",
    "CalibMovingAverageConstant": "averaging_constant",
    "CalibMaxIntermediateOutputs": "max_intermediate_outputs",
    "CalibPercentile": "percentile",
    "CalibSquaredError": "squared_error",
}


class QuantConfig:
    """What `quantize` is told to do: `StaticQuantConfig` or `DynamicQuantConfig`."""

    op_types_to_quantize: list[str] | None
    nodes_to_quantize: list[str] | None
    nodes_to_exclude: list[str] | None
    extra_options: dict[str, Any] | None

    def __post_init__(self) -> None:
        self.op_types_to_quantize = self.op_types_to_quantize or []
        self.nodes_to_quantize = self.nodes_to_quantize or []
        self.nodes_to_exclude = self.nodes_to_exclude or []
        self.extra_options = self.extra_options or {}


@dataclass
class StaticQuantConfig(QuantConfig):
    """Quantisation with calibrated ranges; attributes as of `StaticArguments`."""

    calibration_data_reader: Any
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    quant_format: QuantFormat = QuantFormat.QDQ
    activation_type: QuantType = QuantType.QInt8
    weight_type: QuantType = QuantType.QInt8
    op_types_to_quantize: list[str] | None = None
    nodes_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    use_external_data_format: bool = False
    calibration_providers: list[Any] | None = None
    extra_options: dict[str, Any] | None = None


@dataclass
class DynamicQuantConfig(QuantConfig):
    """Quantisation with ranges that are found in each run; attributes as of `DynamicArguments`."""

    activation_type: ClassVar[QuantType] = QuantType.QUInt8
    weight_type: QuantType = QuantType.QInt8
    op_types_to_quantize: list[str] | None = None
    nodes_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    use_external_data_format: bool = False
    extra_options: dict[str, Any] | None = None


@dataclass
class StaticArguments:
    """Arguments of `quantize_static`, as onnxruntime has them.

    Attributes:
        model_input: a path, or a model, which stays as it is.
        model_output: a path.
        calibration_data_reader: gives the inputs of runs by `get_next`; None where a cache has ranges.
        quant_format: pairs around float operators (QDQ), or integer operators.
        op_types_to_quantize: operators; empty: all that can be.
        per_channel: a scale for each output channel of a weight.
        reduce_range: one bit less for weights, for CPUs without VNNI.
        activation_type, weight_type: QInt8, QUInt8, QInt16, QUInt16 (QDQ), QInt4, QUInt4 (weights), or float8 both.
        nodes_to_quantize, nodes_to_exclude: names of nodes.
        use_external_data_format: weights go into a file beside the model.
        calibrate_method: how ranges follow from values.
        calibration_providers: providers that calibration runs on; None: the CPU.
        extra_options: onnxruntime's; docs/quantization.md has a table.
        calibration_cache_path: a JSON file of ranges: read where it is there, else written.
    """

    model_input: Source
    model_output: str | Path
    calibration_data_reader: Any = None
    quant_format: QuantFormat = QuantFormat.QDQ
    op_types_to_quantize: list[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    activation_type: QuantType = QuantType.QInt8
    weight_type: QuantType = QuantType.QInt8
    nodes_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | None = None
    use_external_data_format: bool = False
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    calibration_providers: list[Any] | None = None
    extra_options: dict[str, Any] | None = None
    calibration_cache_path: str | Path | None = None


@dataclass
class DynamicArguments:
    """Arguments of `quantize_dynamic`, as onnxruntime has them; as of `StaticArguments`."""

    model_input: Source
    model_output: str | Path
    op_types_to_quantize: list[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    weight_type: QuantType = QuantType.QInt8
    nodes_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | None = None
    use_external_data_format: bool = False
    extra_options: dict[str, Any] | None = None


def check_static_quant_arguments(quant_format: QuantFormat, activation_type: QuantType, weight_type: QuantType) -> None:
    """Raise for types that do not go together.

    Raises:
        InvalidArgument: as it says.
    """
    pair = f"activation_type={activation_type}, weight_type={weight_type}"
    if (activation_type, weight_type) == (QuantType.QInt8, QuantType.QUInt8):
        raise InvalidArgument(f"expected signed weights with signed activations, got {pair}; use QUInt8 for activations")
    if (activation_type is QuantType.QFLOAT8E4M3FN) != (weight_type is QuantType.QFLOAT8E4M3FN):
        raise InvalidArgument(f"expected float8 for both or none, got {pair}")
    if {activation_type, weight_type} & set(_WIDE) and quant_format is not QuantFormat.QDQ:
        raise InvalidArgument(f"Only QuantFormat.QDQ supports 16-bit quantization types, got {pair}")
    if activation_type == weight_type == QuantType.QInt8 and quant_format is not QuantFormat.QDQ:
        logger.warning("QInt8 for both in QuantFormat.QOperator is slow on x86: use QDQ, or QUInt8 for activations")


@takes(StaticArguments)
def quantize_static(given: StaticArguments) -> None:
    """Quantise a model with calibrated ranges and write it; arguments as of `StaticArguments`.

    Raises:
        InvalidArgument: arguments that do not go together; no data.
        NoSuchFile: there is no such model.
    """
    model, ranges = calibrated_model(given)
    check_static_quant_arguments(given.quant_format, given.activation_type, given.weight_type)
    _written(static_model(given, model, ranges), given.model_output, given.use_external_data_format)


def calibrated_model(given: StaticArguments, *, whole: bool = False) -> tuple[onnx.ModelProto, Ranges]:
    """The model in memory, as it is to be quantised, and the ranges of its tensors.

    Args:
        whole: ranges of all tensors, else of those that these arguments need, or that a cache is to have.

    Raises:
        As `quantize_static`.
    """
    if QuantType.QFLOAT8E4M3FN in (given.activation_type, given.weight_type):
        if given.calibrate_method != CalibrationMethod.Distribution:
            raise InvalidArgument("Only Distribution calibration method is supported for float quantization.")
    options = given.extra_options or {}
    model = _loaded(given.model_input)
    _warn_unprepared(model)
    if options.get("CrossLayerEqualization"):
        equalize_layers(model)
    if options.get("SmoothQuant"):
        model = _smoothed(model, given, options)
    kinds, overrides = (given.weight_type, given.activation_type), options.get("TensorQuantOverrides")
    by_channel = given.per_channel and given.quant_format is QuantFormat.QDQ
    model = with_opset_for(model, *kinds, overrides, options.get("BlockSize", 0), by_channel)
    if options.get("BiasCorrection"):
        model = correct_biases(model, _settings(given, model, None), _reader_again(given, "BiasCorrection"))
    return model, _calibrated(model, given, options, whole=whole or given.calibration_cache_path is not None)


def _loaded(source: Source) -> onnx.ModelProto:
    model = model_files.load_model(source)
    store_constants(model)
    return model_files.with_shapes(model)


def _op_types(given: StaticArguments) -> list[str]:
    return given.op_types_to_quantize or [*{**QLINEAR_RULES, **MARKING_RULES}]


def static_model(given: StaticArguments, model: onnx.ModelProto, ranges: Ranges) -> onnx.ModelProto:
    """A calibrated model in memory, in place, in its quantised form. Ranges are tightened."""
    settings = _settings(given, model, ranges)
    if given.quant_format is QuantFormat.QDQ:
        return with_pairs(prepared(model, settings), settings, ranges)
    return with_integer_operators(prepared(model, settings), settings, QuantizationMode.QLinearOps, ranges, True)


def _settings(given: StaticArguments, model: onnx.ModelProto, ranges: Ranges | None) -> QuantizerSettings:
    common: dict[str, Any] = {
        "model": model, "per_channel": given.per_channel, "reduce_range": given.reduce_range, "weight_qType": given.weight_type,
        "activation_qType": given.activation_type, "tensors_range": ranges, "nodes_to_quantize": given.nodes_to_quantize,
        "nodes_to_exclude": given.nodes_to_exclude, "op_types_to_quantize": _op_types(given),
        "extra_options": given.extra_options or {},
    }  # fmt: skip
    if given.quant_format is QuantFormat.QDQ:
        return QuantizerSettings.of(QdqArguments(**common))
    return QuantizerSettings.of(OperatorArguments(mode=QuantizationMode.QLinearOps, static=True, **common))


def _written(model: onnx.ModelProto, path: str | Path, external: bool) -> None:
    from intarsia.quantization.onnx_model import ONNXModel

    ONNXModel(model).topological_sort()
    model_files.save_model(model, path, external=external)


def _warn_unprepared(model: onnx.ModelProto) -> None:
    if not model_files.is_prepared(model):
        logger.info("the model was not prepared for quantisation: quant_pre_process fuses and infers shapes first")


def _smoothed(model: onnx.ModelProto, given: StaticArguments, options: Mapping[str, Any]) -> onnx.ModelProto:
    alpha = float(options.get("SmoothQuantAlpha", 0.5))
    return smoothed_model(model, _reader_again(given, "SmoothQuant"), alpha)


def _reader_again(given: StaticArguments, option: str) -> Any:
    """A reader of the same data as the one that ranges are found on."""
    if given.calibration_data_reader is None:
        raise InvalidArgument(f"{option} requires a calibration_data_reader: a cache has no values of channels")
    return deepcopy(given.calibration_data_reader)


def _calibrated(model: onnx.ModelProto, given: StaticArguments, options: Mapping[str, Any], *, whole: bool) -> Ranges:
    """Ranges by tensor: of the cache, or of the reader's data."""
    smooth = bool(options.get("SmoothQuant") or options.get("CrossLayerEqualization"))  # ranges are not the model's own
    cached = _cached(given, smooth)
    if cached is not None:
        return cached.data
    if given.calibration_data_reader is None:
        raise InvalidArgument("Either calibration_data_reader or an existing calibration_cache_path must be provided.")
    found = _ranges_of_runs(model, given, options, whole=whole)
    if given.calibration_cache_path is not None:
        save_tensors_data(found, given.calibration_cache_path, smooth_quant=smooth)
    return found.data


def _cached(given: StaticArguments, smooth: bool) -> TensorsData | None:
    path = Path(given.calibration_cache_path) if given.calibration_cache_path is not None else None
    if path is None or not path.exists():
        return None
    raw = read_cache(path)
    if bool(raw.get("smooth_quant", False)) != smooth:
        logging.getLogger().warning(
            "%s: its smooth_quant is %s, that of this call %s: it is written anew", path, not smooth, smooth
        )
        return None
    found = TensorsData.from_dict(raw)
    if found.calibration_method != given.calibrate_method:
        raise InvalidArgument(
            f"{path} has ranges of {found.calibration_method}, calibrate_method is {given.calibrate_method}: delete the file, "
            "or give its method"
        )
    return found


def _ranges_of_runs(
    model: onnx.ModelProto, given: StaticArguments, options: Mapping[str, Any], *, whole: bool
) -> TensorsData:
    from intarsia.quantization.calibration.observed_runs import ObservedModel

    chosen = {key: options[name] for name, key in _CALIBRATION_OPTIONS.items() if name in options}
    how = (given.calibrate_method, False, given.calibration_providers, chosen)
    calibrator = calibrator_of(CalibratorArguments("", _op_types(given), None, *how), model)
    if given.quant_format is QuantFormat.QDQ and not whole:
        settings = _settings(given, model, None)
        calibrator.observers.keep(ranges_for_pairs(model, settings, calibrator.observers.estimators))
    source: Any = model
    calibrator._observed = ObservedModel(source, calibrator.observers.estimators, calibrator.execution_providers)
    reader, stride = given.calibration_data_reader, options.get("CalibStridedMinMax")
    if not stride:
        calibrator.collect_data(reader)
        return calibrator.compute_data()
    total = len(reader)
    if total % stride:
        raise InvalidArgument(f"Total data size ({total}) is not divisible by stride size ({stride}).")
    for start in range(0, total, stride):
        reader.set_range(start_index=start, end_index=start + stride)
        calibrator.collect_data(reader)
    return calibrator.compute_data()


@takes(DynamicArguments)
def quantize_dynamic(given: DynamicArguments) -> None:
    """Quantise a model whose ranges are found in each run and write it; arguments as of `DynamicArguments`.

    Raises:
        NoSuchFile: there is no such model.
        InvalidArgument: an override that the model does not fit; a type that is not known.
    """
    _written(dynamic_model(given), given.model_output, given.use_external_data_format)


def dynamic_model(given: DynamicArguments) -> onnx.ModelProto:
    """The quantised model in memory; what is given stays as it is."""
    options = {"MatMulConstBOnly": True, **(given.extra_options or {})}
    model = _loaded(given.model_input)
    _warn_unprepared(model)
    model = with_opset_for(model, given.weight_type)
    op_types, mode = given.op_types_to_quantize or [*DYNAMIC_RULES], QuantizationMode.IntegerOps
    how = (given.per_channel, given.reduce_range, mode, False, given.weight_type, QuantType.QUInt8, None)
    nodes = (given.nodes_to_quantize, given.nodes_to_exclude)
    settings = QuantizerSettings.of(OperatorArguments(model, *how, *nodes, op_types, options))
    return with_integer_operators(prepared(model, settings), settings, mode, None, False)


def quantize(model_input: Source, model_output: str | Path, quant_config: Any) -> None:
    """Quantise a model as a configuration says, and write it.

    Raises:
        WrongType: no configuration.
    """
    from intarsia.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer, WeightOnlyQuantConfig

    if isinstance(quant_config, (StaticQuantConfig, DynamicQuantConfig)):
        call: Callable[..., None] = quantize_static if isinstance(quant_config, StaticQuantConfig) else quantize_dynamic
        chosen = {entry.name: getattr(quant_config, entry.name) for entry in fields(quant_config)}
        call(model_input, model_output, **chosen)
    elif isinstance(quant_config, WeightOnlyQuantConfig):
        quantizer = MatMulNBitsQuantizer(model_input, algo_config=quant_config)
        quantizer.process()
        quantizer.model.save_model_to_file(model_output, True)
    else:
        raise WrongType(
            "quantize: expected a StaticQuantConfig, a DynamicQuantConfig or a WeightOnlyQuantConfig, got "
            f"{type(quant_config).__name__}"
        )


@dataclass
class QdqConfigArguments:
    """Arguments of `get_qdq_config`, as onnxruntime has them.

    Attributes:
        calibrate_args: options of the calibrator: "symmetric", "moving_average", "averaging_constant", "percentile".
        tensor_quant_overrides: as TensorQuantOverrides.
        op_types_to_quantize: None: all operators of the model but Cast and pairs.
        nodes_to_exclude: names, or a function of the model and a node that is true for those to leave.
    """

    model_input: Source
    calibration_data_reader: Any
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    calibrate_args: dict[str, Any] | None = None
    activation_type: QuantType = QuantType.QUInt8
    weight_type: QuantType = QuantType.QInt8
    activation_symmetric: bool = False
    weight_symmetric: bool | None = None
    per_channel: bool = False
    reduce_range: bool = False
    keep_removable_activations: bool = False
    min_real_range: float | None = None
    tensor_quant_overrides: dict[str, list[dict[str, Any]]] | None = None
    calibration_providers: list[Any] | None = None
    op_types_to_quantize: list[str] | None = None
    nodes_to_exclude: list[str] | Callable[[onnx.ModelProto, onnx.NodeProto], bool] | None = None
    extra_options: dict[str, Any] | None = None


def light_model(source: Source) -> onnx.ModelProto:
    """A model to look at: weights in other files are not read."""
    return source if isinstance(source, onnx.ModelProto) else onnx.load(os.fspath(source), load_external_data=False)


@takes(QdqConfigArguments)
def get_qdq_config(given: QdqConfigArguments) -> StaticQuantConfig:
    """A configuration that quantises all operators of a model in pairs; arguments as of `QdqConfigArguments`."""
    model = light_model(given.model_input)
    wanted, excluded, found = given.op_types_to_quantize, given.nodes_to_exclude, dict[str, None]()
    left: dict[str, None] = dict.fromkeys(excluded) if isinstance(excluded, (list, tuple, set)) else {}
    for node in model.graph.node:
        if (wanted and node.op_type not in wanted) or node.name in left:
            continue
        if callable(excluded) and excluded(model, node):
            left[node.name] = None
        else:
            found[node.op_type] = None
    overrides = TensorQuantOverridesHelper(deepcopy(given.tensor_quant_overrides or {}))
    options = {
        "MinimumRealRange": given.min_real_range,
        "QDQKeepRemovableActivations": given.keep_removable_activations,
        "ActivationSymmetric": given.activation_symmetric,
        "WeightSymmetric": given.weight_symmetric,
        "ForceQuantizeNoInputCheck": True,
        "TensorQuantOverrides": overrides.get_dict(),
    }
    chosen = given.calibrate_args or {}
    options.update({name: chosen[key] for name, key in _CALIBRATION_OPTIONS.items() if key in chosen})
    if _needs_contributed_pairs(model, given, overrides):
        options["UseQDQContribOps"] = True
    options.update(given.extra_options or {})
    op_types = wanted or [op for op in found if op not in ("Cast", "DequantizeLinear", "QuantizeLinear")]
    external = model_files.has_external_data(model) or model.ByteSize() >= model_files.LARGE
    return StaticQuantConfig(
        given.calibration_data_reader, given.calibrate_method, QuantFormat.QDQ, given.activation_type, given.weight_type,
        op_types, None, list(left), given.per_channel, given.reduce_range, external, given.calibration_providers, options,
    )  # fmt: skip


def _needs_contributed_pairs(
    model: onnx.ModelProto, given: QdqConfigArguments, overrides: TensorQuantOverridesHelper
) -> bool:  # fmt: skip
    """Whether 4 bits are wanted before opset 21; with 16 bits the model is converted to that."""
    kinds = {given.activation_type, given.weight_type, *overrides.get_quant_types()}
    return model_files.opset_version(model) < 21 and not kinds & set(_WIDE) and bool(kinds & set(_NARROW))
