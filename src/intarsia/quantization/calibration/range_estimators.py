"""What is retained of a tensor's values while they stream by, and the range that follows: one estimator for each tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.clipping_thresholds import (
    entropy_range,
    least_error_range,
    mean_and_deviation,
    percentile_range,
)
from intarsia.quantization.calibration.histogram import FINE_BINS, StreamingHistogram
from intarsia.quantization.calibration.tensor_ranges import TensorData


class RangeEstimator(Protocol):
    """Takes a tensor's values, run by run, and gives its range at the end.

    Several runs may be observed at once. Their order is nothing to the range, unless `EstimatorSettings.in_order`.
    """

    def observe(self, values: np.ndarray, /) -> None:
        """The tensor's values (float32 or float16) in one run."""

    def end_batch(self) -> None:
        """A reader has given all its data; more may follow."""

    def finish(self) -> TensorData:
        """The range of what was seen so far."""


@dataclass
class MinMaxEstimator:
    """The least and greatest values.

    Attributes:
        symmetric: the range reaches as far on both sides of 0.
        averaging: None, or the weight of a later batch in a moving average; within a batch it is the mean over runs.
        per_channel: one range for each index of axis 1, else one of all.
    """

    symmetric: bool = False
    averaging: float | None = None
    per_channel: bool = False

    def __post_init__(self) -> None:
        if self.averaging is not None and not 0 <= self.averaging <= 1:
            raise InvalidArgument(f"Invalid averaging constant, which should not be < 0 or > 1; got {self.averaging}")
        self._known: tuple[np.ndarray, np.ndarray] | None = None
        self._batch: tuple[np.ndarray, np.ndarray] | None = None
        self._runs = 0
        self._lock = threading.Lock()

    def observe(self, values: np.ndarray, /) -> None:
        if not values.size:
            return
        over = tuple(i for i in range(values.ndim) if i != 1) if self.per_channel and values.ndim > 1 else None
        least, most = _finite_ends(values, over)
        with self._lock:
            self._add(np.atleast_1d(least), np.atleast_1d(most))

    def _add(self, least: np.ndarray, most: np.ndarray) -> None:
        if self._batch is None:
            self._batch = least, most
        elif self.averaging is not None:
            self._batch = self._batch[0] + least, self._batch[1] + most
        else:
            self._batch = np.fmin(self._batch[0], least), np.fmax(self._batch[1], most)
        self._runs += 1

    def end_batch(self) -> None:
        if self._batch is None:
            return
        least, most = self._batch
        if self.averaging is not None:
            least, most = (end / np.array(self._runs, end.dtype) for end in (least, most))
        if self.symmetric:
            most = np.fmax(np.abs(least), np.abs(most))
            least = -most
        self._known = self._merged(least, most)
        self._batch, self._runs = None, 0

    def _merged(self, least: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._known is None:
            return least, most
        low, high = self._known
        if self.averaging is not None:
            weight = np.array(self.averaging, low.dtype)
            return low + weight * (least - low), high + weight * (most - high)
        return np.fmin(low, least), np.fmax(high, most)

    def finish(self) -> TensorData:
        self.end_batch()
        if self._known is None:
            zero = np.zeros(1, np.float32)
            return TensorData(lowest=zero, highest=zero)
        return TensorData(lowest=self._known[0], highest=self._known[1])


def _finite_ends(values: np.ndarray, axes: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest value; NaN is passed over."""
    least, most = values.min(axis=axes), values.max(axis=axes)
    if np.any(least != least):  # noqa: PLR0124 # a NaN
        return np.fmin.reduce(values, axis=axes), np.fmax.reduce(values, axis=axes)
    return least, most


Choice = Callable[[np.ndarray, np.ndarray], tuple[float, float]]
"""Counts and edges of a histogram -> the range to quantise."""


class HistogramEstimator:
    """A histogram, and a choice of a range in it that stays within the values that were seen."""

    def __init__(self, bins: int, choose: Choice, magnitudes: bool = False) -> None:
        self.bins, self.choose = bins, choose
        self.histogram = StreamingHistogram(magnitudes)
        self._lock = threading.Lock()

    def observe(self, values: np.ndarray, /) -> None:
        with self._lock:
            self.histogram.add(values)

    def end_batch(self) -> None:
        pass

    def finish(self) -> TensorData:
        seen = self.histogram
        counts, edges = _histogram(seen, self.bins)
        if seen.empty:
            zero = np.zeros((), seen.dtype)
            return TensorData(lowest=zero, highest=zero, hist=counts, hist_edges=edges)
        least, most = self.choose(counts, edges)
        ends = (max(least, float(seen.least)), min(most, float(seen.most)))
        low, high = (np.array(end, seen.dtype) for end in ends)
        return TensorData(lowest=low, highest=high, hist=counts, hist_edges=edges)


def _histogram(seen: StreamingHistogram, bins: int) -> tuple[np.ndarray, np.ndarray]:
    if seen.magnitudes:
        low = 0.0 if seen.empty or seen.least <= 0 <= seen.most else float(min(abs(seen.least), abs(seen.most)))
        return seen.rebinned(bins, low, seen.largest)
    return seen.rebinned(bins, -seen.largest, seen.largest)


class DistributionEstimator:
    """Mean and standard deviation, for float8: of the values ("same"), or of their cube roots ("p3")."""

    def __init__(self, bins: int, scenario: str) -> None:
        if scenario not in {"same", "p3"}:
            raise InvalidArgument(f"Invalid scenario. Must be in {{'same', 'p3'}}, got {scenario!r}")
        if bins < 512:
            raise InvalidArgument(f"Invalid num_bins. Must be in range 512 <= num_bins, got {bins}")
        self.bins, self.power = bins, 1.0 if scenario == "same" else 1.0 / 3.0
        self.histogram = StreamingHistogram()
        self._lock = threading.Lock()

    def observe(self, values: np.ndarray, /) -> None:
        with self._lock:
            self.histogram.add(values)

    def end_batch(self) -> None:
        pass

    def finish(self) -> TensorData:
        counts, edges = _histogram(self.histogram, self.bins)
        average, deviation = mean_and_deviation(counts, edges, self.power)
        return TensorData(
            avg=average, std=deviation, hist=counts, hist_edges=edges, lowest=edges.min(), highest=edges.max()
        )  # fmt: skip


@dataclass(frozen=True)
class EstimatorSettings:
    """How ranges are found: the values of onnxruntime's calibrators, and "mse".

    Attributes:
        method: "minmax", "percentile", "entropy", "distribution" or "mse".
        bins: of the histogram; 0: the method's own number.
        levels: steps that relative entropy and squared errors are computed for.
        percentile: the share of values that stay, in per cent.
        symmetric, averaging, per_channel: as `MinMaxEstimator`.
        scenario: as `DistributionEstimator`.
    """

    method: str = "minmax"
    bins: int = 0
    levels: int = 128
    percentile: float = 99.999
    symmetric: bool = False
    averaging: float | None = None
    per_channel: bool = False
    scenario: str = "same"

    @property
    def in_order(self) -> bool:
        """Whether a range depends on the order of runs, by rounding: sums of a moving average do."""
        return self.averaging is not None

    def estimator(self) -> RangeEstimator:
        """A new estimator.

        Raises:
            InvalidArgument: no such method, or settings that it does not take.
        """
        make = _ESTIMATORS.get(self.method)
        if make is None:
            raise InvalidArgument(f"calibration method: expected one of {', '.join(_ESTIMATORS)}, got {self.method!r}")
        return make(self)


def _percentile(settings: EstimatorSettings) -> RangeEstimator:
    if not 0 <= settings.percentile <= 100:
        raise InvalidArgument(f"Invalid percentile. Must be in range 0 <= percentile <= 100, got {settings.percentile}")
    return HistogramEstimator(
        settings.bins or 2048,
        lambda counts, edges: percentile_range(counts, edges, settings.percentile, settings.symmetric),
        settings.symmetric,
    )


def _entropy(settings: EstimatorSettings) -> RangeEstimator:
    return HistogramEstimator(settings.bins or 2048, lambda counts, edges: entropy_range(counts, edges, settings.levels))


def _squared_error(settings: EstimatorSettings) -> RangeEstimator:
    levels, bins = max(settings.levels, 2), settings.bins or FINE_BINS // 2
    return HistogramEstimator(bins, lambda counts, edges: least_error_range(counts, edges, levels, settings.symmetric))


_ESTIMATORS: dict[str, Callable[[EstimatorSettings], RangeEstimator]] = {
    "minmax": lambda s: MinMaxEstimator(s.symmetric, s.averaging, s.per_channel),
    "percentile": _percentile,
    "entropy": _entropy,
    "distribution": lambda s: DistributionEstimator(s.bins or 2048, s.scenario),
    "mse": _squared_error,
}


class TensorObservers:
    """An estimator for each of a model's tensors, fed run by run."""

    def __init__(self, names: list[str], settings: EstimatorSettings) -> None:
        self.estimators = {name: settings.estimator() for name in names}
        self.runs = 0

    def keep(self, names: Collection[str]) -> None:
        """Observe no other tensors than these."""
        self.estimators = {name: self.estimators[name] for name in names if name in self.estimators}

    def observe(self, name: str, values: object) -> None:
        """The values of a tensor; those of others, and what is no array of floats, is not looked at."""
        estimator = self.estimators.get(name)
        if estimator is not None and isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float16):
            estimator.observe(values)

    def end_batch(self) -> None:
        for estimator in self.estimators.values():
            estimator.end_batch()

    def finish(self) -> dict[str, TensorData]:
        """Ranges by name.

        Raises:
            InvalidArgument: no run was observed.
        """
        if not self.runs:
            raise InvalidArgument("No data is collected: the calibration reader gave no inputs")
        return {name: estimator.finish() for name, estimator in self.estimators.items()}
