"""Ranges of tensors, found while values stream by, against NumPy on all values at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from quantised_cases import Reader, convolutions, image_feeds, model, numbers, saved

import intarsia
from intarsia.errors import InvalidArgument, NoSuchFile, WrongType
from intarsia.quantization import (
    CalibrationMethod,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    quantize_static,
    save_tensors_data,
)
from intarsia.quantization.calibrate import CalibrationDataReader, entropy
from intarsia.quantization.calibration import observed_runs
from intarsia.quantization.calibration.clipping_thresholds import entropy_range, least_error_range, percentile_range
from intarsia.quantization.calibration.histogram import FINE_BINS, StreamingHistogram
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.calibration.range_estimators import EstimatorSettings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(convolutions(), tmp_path)


def values_of(path: Path) -> dict[str, list[np.ndarray]]:
    session = intarsia.InferenceSession(path)
    found: dict[str, list[np.ndarray]] = {}
    for feed in image_feeds():
        for name, value in {**session.run(None, feed, taps=["*"]).taps, **feed}.items():
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("tapped", [False, True])
def test_ranges_are_those_of_all_runs(path: Path, tapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first tier, and by taps where its kernels are missing."""
    if tapped:
        monkeypatch.setattr(observed_runs.kernel_image, "load", lambda: None)
        monkeypatch.setattr(observed_runs.kernel_image, "make", lambda: 0)
    calibrator = create_calibrator(path)
    calibrator.collect_data(Reader(image_feeds()))
    found = calibrator.compute_data()
    expected = values_of(path)
    assert set(found.keys()) == set(expected)
    for name, arrays in expected.items():
        low, high = found[name].range_value
        assert np.allclose(low, min(a.min() for a in arrays), rtol=1e-4, atol=1e-5)
        assert np.allclose(high, max(a.max() for a in arrays), rtol=1e-4, atol=1e-5)


def test_a_value_is_freed_before_the_last_node_runs(path: Path) -> None:
    """Memory is that of a run: what was observed is not held."""
    alive: list[int] = []
    seen: dict[str, np.ndarray] = {}
    import weakref

    observed = ObservedModel(path, ["c1", "y"])

    def observe(name: str, value: np.ndarray) -> None:
        if name == "c1":
            seen["c1"] = weakref.ref(value)  # type: ignore[assignment] # to see it die
        else:
            alive.append(seen["c1"]() is not None)

    observed.run(image_feeds(1)[0], observe)
    assert alive == [False]


def test_moving_averages(path: Path) -> None:
    options = {"moving_average": True, "averaging_constant": 0.5}
    calibrator = create_calibrator(path, extra_options=options)
    feeds = image_feeds(4)
    calibrator.collect_data(Reader(feeds[:2]))
    calibrator.collect_data(Reader(feeds[2:]))
    low, _ = calibrator.compute_data()["x"].range_value
    means = [np.mean([f["x"].min() for f in pair]) for pair in (feeds[:2], feeds[2:])]
    assert np.allclose(low, means[0] + 0.5 * (means[1] - means[0]))
    with pytest.raises(InvalidArgument, match=r"Invalid averaging constant, which should not be < 0 or > 1; got 2.0"):
        create_calibrator(path, extra_options={"moving_average": True, "averaging_constant": 2.0})


def test_channels_have_ranges_of_their_own(path: Path) -> None:
    calibrator = create_calibrator(path, extra_options={"per_channel": True})
    calibrator.collect_data(Reader(image_feeds()))
    low, high = calibrator.compute_data()["x"].range_value
    every = np.concatenate([f["x"] for f in image_feeds()])
    assert np.array_equal(low, every.min(axis=(0, 2, 3)))
    assert np.array_equal(high, every.max(axis=(0, 2, 3)))


def test_a_histogram_grows_without_losing_a_value() -> None:
    histogram, every = StreamingHistogram(), []
    for i in range(8):
        every.append((np.random.default_rng(i).standard_normal(5000) * 2.0**i).astype(np.float32))
        histogram.add(every[-1])
    histogram.add(np.array([np.nan, np.inf], np.float32))
    all_values = np.concatenate(every)
    assert histogram.counts.sum() == all_values.size
    assert histogram.largest == np.abs(all_values).max()
    assert histogram.span <= 2 * histogram.largest
    counts, edges = histogram.rebinned(64, -histogram.largest, histogram.largest)
    exact, _ = np.histogram(all_values, edges.astype(np.float64))
    assert counts.sum() == all_values.size
    assert np.abs(counts - exact).sum() <= 2 * FINE_BINS * all_values.size // FINE_BINS // 100


def test_thresholds() -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    values[:20] = 80.0  # outliers
    counts, edges = np.histogram(values, 4096, (-80, 80))
    low, high = percentile_range(counts, edges, 99.9, symmetric=False)
    assert 2.5 < high < 4
    assert -4 < low < -2.5
    assert 2 < entropy_range(counts, edges, 128)[1] < 40
    best = least_error_range(counts, edges, 256, symmetric=True)
    assert best[0] == -best[1]

    def squared_error(bound: float) -> float:
        step = 2 * bound / 255
        return float(np.square(np.clip(np.rint(values / step), -127, 127) * step - values).mean())

    assert squared_error(best[1]) <= 1.02 * min(map(squared_error, (3.0, 10.0, 40.0, 80.0)))
    with pytest.raises(InvalidArgument, match=r"Must be in range 0 <= percentile <= 100, got 101"):
        percentile_range(counts, edges, 101, symmetric=True)


@pytest.mark.parametrize("method", list(CalibrationMethod))
def test_every_method_has_a_range_within_what_was_seen(path: Path, method: CalibrationMethod) -> None:
    calibrator = create_calibrator(path, calibrate_method=method)
    calibrator.collect_data(Reader(image_feeds()))
    for name, arrays in values_of(path).items():
        found = calibrator.compute_data()[name]
        largest = max(np.abs(a).max() for a in arrays)
        assert all(abs(float(np.squeeze(end))) <= largest * (1 + 1e-3) for end in found.range_value)
    assert calibrator.compute_data().calibration_method is method


def test_percentiles_agree_with_onnxruntimes(path: Path) -> None:
    peer = pytest.importorskip("onnxruntime.quantization.calibrate", reason="a peer's ranges")
    options = {"percentile": 99.0, "symmetric": False}
    ranges = []
    for module in (intarsia.quantization.calibrate, peer):
        method = module.CalibrationMethod.Percentile
        where = path.parent / "augmented.onnx"
        found = module.create_calibrator(path, None, where, method, extra_options=options)
        found.collect_data(Reader(image_feeds()))
        ranges.append(found.compute_data())
    for name in ranges[0]:
        ours, theirs = (np.array([float(e) for e in r[name].range_value]) for r in ranges)
        assert np.abs(ours - theirs).max() <= (theirs[1] - theirs[0]) / 200  # a few bins of 2048


def test_caches(tmp_path: Path) -> None:
    found = TensorsData(CalibrationMethod.Entropy, {"x": TensorData(
        lowest=np.float32(-1), highest=np.float32(2), hist=np.array([1, 2]), hist_edges=np.array([0, 1, 2], np.float32)
    )})  # fmt: skip
    save_tensors_data(found, tmp_path / "folder" / "cache.json")
    again = load_tensors_data(tmp_path / "folder" / "cache.json")
    assert again.calibration_method is CalibrationMethod.Entropy
    assert again["x"].range_value == (-1, 2)
    assert np.array_equal(again["x"].hist_edges, [0, 1, 2])
    with pytest.raises(NoSuchFile, match=r"calibration cache: no file"):
        load_tensors_data(tmp_path / "none.json")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidArgument, match=r"expected ranges as save_tensors_data writes them"):
        load_tensors_data(tmp_path / "other.json")
    with pytest.raises(InvalidArgument, match=r"calibration_cache_path is not a file"):
        load_tensors_data(tmp_path)


def test_readers_and_errors(path: Path) -> None:
    assert issubclass(Reader, CalibrationDataReader)
    with pytest.raises(InvalidArgument, match=r"No data is collected: the calibration reader gave no inputs"):
        create_calibrator(path).collect_data(Reader([]))
    with pytest.raises(InvalidArgument, match=r"calibration method: expected one of minmax, .*, got 'median'"):
        EstimatorSettings("median").estimator()
    with pytest.raises(WrongType, match=r"expected TensorData, or \(lowest, highest\) for MinMax, got int"):
        TensorsData(CalibrationMethod.MinMax, {"x": 3})  # type: ignore[dict-item] # what is refused
    with pytest.raises(InvalidArgument, match=r"expected float32 or float16, Unexpected dtype float64"):
        TensorData(lowest=np.float64(1))


def test_augmented_models_are_written_where_a_path_is_named(path: Path, tmp_path: Path) -> None:
    create_calibrator(path, ["Conv"])
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    create_calibrator(path, ["Conv"], tmp_path / "augmented.onnx")
    made = onnx.load(tmp_path / "augmented.onnx")
    onnx.checker.check_model(made)
    assert "c1_ReduceMin" in [o.name for o in made.graph.output]


def test_relative_entropy_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="an independent reference")
    p, q = np.random.default_rng(0).random((2, 50)).astype(np.float32)
    assert np.allclose(entropy(p, q), stats.entropy(p, q), rtol=1e-5)
    assert np.isinf(entropy(np.array([1, 1]), np.array([1, 0])))


def test_runs_side_by_side_give_the_ranges_of_runs_one_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which threads come: the counts of histograms too, to the last one."""
    feeds = [{"x": f["x"] * np.float32(1 + i % 5)} for i, f in enumerate(image_feeds(24))]
    for method in CalibrationMethod:
        found = []
        for cores in (1, 4):
            monkeypatch.setattr(observed_runs, "available_cores", lambda cores=cores: cores)
            calibrator = create_calibrator(path, calibrate_method=method)
            calibrator.collect_data(Reader(feeds))
            found.append(calibrator.compute_data())
        for name in found[0]:
            one, many = (ranges[name].to_dict() for ranges in found)
            assert all(np.array_equal(one[key], many[key]) for key in one), (method, name)


def test_the_first_failure_of_runs_side_by_side_is_raised(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_runs, "available_cores", lambda: 4)
    asked: list[int] = []

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for i in range(1000):
            asked.append(i)
            yield {"x": numbers(i, 2, 3, 8, 8) if i != 5 else numbers(i, 2, 4, 8, 8)}

    with pytest.raises(InvalidArgument, match=r"invalid dimensions for input: x"):
        ObservedModel(path, ["y"]).run_all(feeds(), lambda name, value: None)
    assert len(asked) < 100


def test_values_too_large_for_runs_side_by_side_run_one_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_runs, "available_cores", lambda: 2)
    monkeypatch.setattr(observed_runs, "_BYTES_AT_ONCE", 1000)
    threads: set[int] = set()
    assert ObservedModel(path, ["y", "c1"]).run_all(image_feeds(), lambda name, value: threads.add(threading.get_ident())) == 6
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("point", [0, 5])
def test_pairs_run_as_their_definitions_say(kind: type, point: int) -> None:
    """Node by node, ties, infinities and NaN included, and by the reference provider."""
    pairs = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    made = model(pairs, {"s": np.array(0.25, np.float32), "z": np.array(point, kind)}, {"x": ["n", "m"], "y": ["n", "m"]}, 21)
    program = ObservedModel(made, ["y", "q"])
    exact = intarsia.InferenceSession(made.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for size in (1, 10, 1e5):
        x = numbers(1, 70, 90) * np.float32(size)
        x[0, :6] = [np.inf, -np.inf, 0.125, 0.375, -0.125, -0.0]
        x[1, 0] = np.nan if size == 1 else 1.0
        found: dict[str, np.ndarray] = {}
        program.run({"x": x}, lambda name, value, found=found: found.__setitem__(name, np.array(value)))
        (expected,) = exact.run(None, {"x": x})
        assert found["q"].dtype == kind
        assert np.array_equal(found["y"], expected)


def test_weights_of_pairs_are_made_floats_once(path: Path, tmp_path: Path) -> None:
    """A convolution by dequantised weights runs by a kernel, and its values are those of the session."""
    quantize_static(path, tmp_path / "q.onnx", Reader(image_feeds()), per_channel=True)
    program = ObservedModel(tmp_path / "q.onnx", ["y", "w1_DequantizeLinear_Output"])
    assert program._nodewise is not None
    assert all(node.inputs[0] != "w1_quantized" for node in program._nodewise[0].graph.nodes)
    seen: dict[str, np.ndarray] = {}
    program.run(image_feeds(1)[0], lambda name, value: seen.__setitem__(name, np.array(value)))
    assert {"y", "w1_DequantizeLinear_Output"} == set(seen)
    (expected,) = intarsia.InferenceSession(tmp_path / "q.onnx").run(None, image_feeds(1)[0])
    assert np.abs(seen["y"] - expected).max() <= 0.02 * np.abs(expected).max()
