"""onnxruntime's calibrators: classes over estimators that values stream into."""

from __future__ import annotations

import abc
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from intarsia.compat.declared_arguments import takes
from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.augmented_model import with_min_max_outputs, with_value_outputs
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.calibration.range_estimators import EstimatorSettings, TensorObservers
from intarsia.quantization.calibration.tensor_ranges import (
    CalibrationCacheEncoder,
    CalibrationMethod,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from intarsia.quantization.description import model_files
from intarsia.quantization.numerics.quant_types import FLOAT_TYPES

__all__ = [
    "CalibraterBase", "CalibrationCacheEncoder", "CalibrationDataReader", "CalibrationMethod", "CalibratorArguments",
    "DistributionCalibrater", "EntropyCalibrater", "HistogramCalibrater", "MinMaxCalibrater", "PercentileCalibrater",
    "TensorData", "TensorsData", "calibrator_of", "create_calibrator", "entropy", "estimator_settings", "feeds_of",
    "load_tensors_data", "rel_entr", "save_tensors_data", "tensors_to_calibrate",
]  # fmt: skip


def rel_entr(pk: np.ndarray, qk: np.ndarray) -> np.ndarray:
    """p * log(p / q) by element: 0 where p is 0, infinite where only q is."""
    found = np.full(pk.shape, np.inf, pk.dtype)
    both = (pk > 0) & (qk > 0)
    found[both] = pk[both] * np.log(pk[both] / qk[both])
    found[(pk == 0) & (qk >= 0)] = 0
    return found


def entropy(pk: Any, qk: Any, base: float | None = None, axis: int = 0) -> np.ndarray:
    """The relative entropy of distributions that need not sum to 1, in nats or to another base; float32."""
    p, q = np.broadcast_arrays(np.asarray(pk, np.float32), np.asarray(qk, np.float32))
    p, q = p / p.sum(axis=axis, keepdims=True), q / q.sum(axis=axis, keepdims=True)
    found = rel_entr(p, q).sum(axis=axis)
    return np.asarray(found if base is None else found / np.log(base), np.float32)


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Gives a model's inputs, one run at a time: `get_next` returns a dict by input, and None at the end.

    Any class with a method `get_next` is a subclass.
    """

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """The inputs of the next run; None where there is none."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        found = self.get_next()
        if found is None:
            raise StopIteration
        return found

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give the inputs from one index to another from now on."""
        raise NotImplementedError


def feeds_of(reader: Any) -> Iterator[Mapping[str, Any]]:
    """What a reader gives until it gives nothing."""
    while True:
        feed = reader.get_next()
        if not feed:
            return
        yield feed


def tensors_to_calibrate(model: onnx.ModelProto, op_types: Collection[str] | None) -> dict[str, onnx.ValueInfoProto]:
    """The float values that nodes of these operators (None: all) read or compute and that are not stored, in their order."""
    graph = model.graph
    known = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
    stored = {t.name for t in graph.initializer}
    found: dict[str, onnx.ValueInfoProto] = {}
    for node in graph.node:
        if op_types and node.op_type not in op_types:
            continue
        for name in (*node.input, *node.output):
            value = known.get(name)
            if value is not None and name not in stored and value.type.tensor_type.elem_type in FLOAT_TYPES:
                found[name] = value
    return found


class CalibraterBase:
    """A model and the ranges of its tensors: make one with `create_calibrator`.

    Nothing of a run is retained but what the method needs, whatever the number of runs. A model with further outputs is written
    only where a path for it was named, and is not what runs.
    """

    method = CalibrationMethod.MinMax

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path | None = None, settings: EstimatorSettings | None = None,
        use_external_data_format: bool = False, model: onnx.ModelProto | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(model_path, (str, os.PathLike)):
            raise InvalidArgument(f"model_path should be model path: got {type(model_path).__name__}")
        self.model_path = Path(model_path)
        self.model = model if model is not None else model_files.with_shapes(model_files.load_model(model_path))
        self.op_types_to_calibrate = op_types_to_calibrate
        self.augmented_model_path = augmented_model_path
        self.use_external_data_format = use_external_data_format
        self.settings = settings or EstimatorSettings("minmax")
        self.execution_providers: list[Any] = ["CPUExecutionProvider"]
        self.observers = TensorObservers(list(tensors_to_calibrate(self.model, op_types_to_calibrate)), self.settings)
        self._observed: ObservedModel | None = None
        self._augmented: onnx.ModelProto | None = None

    @property
    def symmetric(self) -> bool:
        """Whether ranges reach as far on both sides of 0."""
        return self.settings.symmetric

    @property
    def per_channel(self) -> bool:
        """Whether each index of axis 1 has a range of its own."""
        return self.settings.per_channel

    def set_execution_providers(self, execution_providers: Sequence[Any] = ("CPUExecutionProvider",)) -> None:
        """Run the model on these providers from now on."""
        self.execution_providers = list(execution_providers)
        self.create_inference_session()

    def create_inference_session(self) -> None:
        """Make what runs the model; `collect_data` does where it has not been."""
        source: Any = os.fspath(self.model_path)
        self._observed = ObservedModel(source, self.observers.estimators, self.execution_providers)

    def select_tensors_to_calibrate(self, model: onnx.ModelProto) -> tuple[set[str], dict[str, onnx.ValueInfoProto]]:
        """The names of the values whose ranges are found, and what the model states of each value."""
        graph = model.graph
        known = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
        return set(tensors_to_calibrate(model, self.op_types_to_calibrate)), known

    def augment_graph(self) -> None:
        """Write the model with outputs for what the method looks at to `augmented_model_path`, as onnxruntime runs it."""
        self._augmented = self._with_outputs()
        if self.augmented_model_path is not None:
            model_files.save_model(self._augmented, self.augmented_model_path, external=self.use_external_data_format)

    def get_augment_model(self) -> onnx.ModelProto:
        """The model with outputs for what the method looks at."""
        if self._augmented is None:
            self._augmented = self._with_outputs()
        return self._augmented

    def _with_outputs(self) -> onnx.ModelProto:
        return with_value_outputs(self.model, tensors_to_calibrate(self.model, self.op_types_to_calibrate))

    def collect_data(self, data_reader: Any) -> None:
        """Run the model on what a reader gives. It can be called more than once.

        Raises:
            InvalidArgument: the reader gives nothing, and no other has.
        """
        if self._observed is None:
            self.create_inference_session()
        assert self._observed is not None
        feeds, in_order = feeds_of(data_reader), self.settings.in_order
        self.observers.runs += self._observed.run_all(feeds, self.observers.observe, in_order=in_order)
        self.observers.end_batch()
        if not self.observers.runs:
            raise InvalidArgument("No data is collected: the calibration reader gave no inputs")

    def compute_data(self) -> TensorsData:
        """The ranges of what was seen so far.

        Raises:
            InvalidArgument: nothing was seen.
        """
        return TensorsData(self.method, self.observers.finish())


class MinMaxCalibrater(CalibraterBase):
    """The least and greatest values, or their moving averages."""

    def _with_outputs(self) -> onnx.ModelProto:
        tensors = tensors_to_calibrate(self.model, self.op_types_to_calibrate)
        return with_min_max_outputs(self.model, tensors, self.per_channel)


class HistogramCalibrater(CalibraterBase):
    """A range within a histogram of the values."""


class EntropyCalibrater(HistogramCalibrater):
    """The range whose quantisation diverges least from the values' distribution."""

    method = CalibrationMethod.Entropy


class PercentileCalibrater(HistogramCalibrater):
    """The range that a share of the values lies in."""

    method = CalibrationMethod.Percentile


class DistributionCalibrater(HistogramCalibrater):
    """Mean and standard deviation, for float8."""

    method = CalibrationMethod.Distribution


@dataclass
class CalibratorArguments:
    """Arguments of `create_calibrator`, as onnxruntime has them."""

    model: str | Path
    op_types_to_calibrate: Sequence[str] | None = None
    augmented_model_path: str | Path | None = None
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    use_external_data_format: bool = False
    providers: Sequence[Any] | None = None
    extra_options: Mapping[str, Any] | None = None


_KINDS: dict[CalibrationMethod, tuple[type[CalibraterBase], EstimatorSettings]] = {
    CalibrationMethod.MinMax: (MinMaxCalibrater, EstimatorSettings("minmax")),
    CalibrationMethod.Entropy: (EntropyCalibrater, EstimatorSettings("entropy", bins=128)),
    CalibrationMethod.Percentile: (PercentileCalibrater, EstimatorSettings("percentile", symmetric=True)),
    CalibrationMethod.Distribution: (DistributionCalibrater, EstimatorSettings("distribution")),
}
"""Method -> its calibrator and onnxruntime's defaults."""


def estimator_settings(method: CalibrationMethod, options: Mapping[str, Any]) -> EstimatorSettings:
    """How ranges are found by a method and onnxruntime's options of it.

    Raises:
        InvalidArgument: no such method.
    """
    if method not in _KINDS:
        raise InvalidArgument(f"Unsupported calibration method {method}: expected one of {', '.join(m.name for m in _KINDS)}")
    names = {"num_bins": "bins", "num_quantized_bins": "levels"}
    taken = {"symmetric", "percentile", "per_channel", "scenario", "num_bins", "num_quantized_bins"}
    chosen = {names.get(key, key): value for key, value in options.items() if key in taken and value is not None}
    if options.get("moving_average"):
        chosen["averaging"] = float(options.get("averaging_constant", 0.01))
    if options.get("squared_error"):
        chosen = {"method": "mse", "bins": 0, "levels": 256, **chosen}
    return replace(_KINDS[method][1], **chosen)


def calibrator_of(given: CalibratorArguments, model: onnx.ModelProto | None = None) -> CalibraterBase:
    """A calibrator; `model`: what the path has, where it was read already."""
    settings = estimator_settings(given.calibrate_method, given.extra_options or {})
    kind = _KINDS[given.calibrate_method][0]
    found = kind(
        given.model, given.op_types_to_calibrate, given.augmented_model_path, settings, given.use_external_data_format, model
    )  # fmt: skip
    if given.providers:
        found.execution_providers = list(given.providers)
    if given.augmented_model_path is not None:
        found.augment_graph()
    return found


@takes(CalibratorArguments)
def create_calibrator(given: CalibratorArguments) -> CalibraterBase:
    """A calibrator for a model file; arguments as of `CalibratorArguments`.

    Options of a method: "symmetric", "moving_average", "averaging_constant", "per_channel" (MinMax), "num_bins", "percentile",
    "num_quantized_bins", "scenario"; of any, "squared_error": the range of the least squared error. "max_intermediate_outputs"
    has no effect: no run's values are retained.

    Raises:
        InvalidArgument: no such method, or an option that it does not take.
        NoSuchFile: there is no such model.
    """
    return calibrator_of(given)
