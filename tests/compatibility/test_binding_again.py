"""Bindings that native code runs again: results, errors and what lives how long are those of every other way."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.errors import Fail, InvalidArgument, NodeFailed
from intarsia.runtime import interpreter

Make = Callable[..., ort.InferenceSession]
NATIVE = interpreter.functions() is not None
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
SUM = "g (float[N,3] x, float[N,3] w) => (float[N,3] y) { y = Add(x, w) }"
PICK = "g (float[3] x, int64[N] i) => (float[N] y) { y = Gather(x, i) }"


def ready(session: ort.InferenceSession, inputs: dict[str, np.ndarray], target: np.ndarray | None = None) -> ort.IOBinding:
    """A binding whose next run is native."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    if target is None:
        binding.bind_output("y")
    else:
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    for _ in range(3):
        session.run_with_iobinding(binding)
    if NATIVE:
        assert binding._ready is not None
    return binding


class TestResults:
    def test_what_is_bound_is_read_and_written(self, make_session: Make) -> None:
        session, x, w, y = make_session(SUM), X.copy(), X.copy(), np.zeros_like(X)
        binding = ready(session, {"x": x, "w": w}, y)
        for k in range(4):
            x[:], y[:] = X + k, 0
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y, x + w)

    def test_other_inputs_of_the_same_shape(self, make_session: Make) -> None:
        session, y = make_session(SUM), np.zeros_like(X)
        binding = ready(session, {"x": X, "w": X}, y)
        for k in range(4):
            binding.bind_cpu_input("x", X * k)
            if NATIVE:
                assert binding._ready is not None
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y, X * k + X)

    def test_results_that_somebody_has_are_left_alone(self, make_session: Make) -> None:
        session, x = make_session(SUM), X.copy()
        binding = ready(session, {"x": x, "w": X})
        (first,) = binding.get_outputs()
        x[:] = 7
        session.run_with_iobinding(binding)
        (second,) = binding.get_outputs()
        np.testing.assert_array_equal(first.numpy(), X + X)
        np.testing.assert_array_equal(second.numpy(), 7 + X)

    def test_copies_are_of_the_last_run(self, make_session: Make) -> None:
        session, x = make_session(SUM), X.copy()
        binding = ready(session, {"x": x, "w": X})
        for k in range(3):
            x[:] = k
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], k + X)

    def test_another_target_and_none(self, make_session: Make) -> None:
        session, one, two = make_session(SUM), np.zeros_like(X), np.zeros_like(X)
        binding = ready(session, {"x": X, "w": X}, one)
        for target in (two, one, two):
            one[:], two[:] = 0, 0
            binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
            for _ in range(3):
                session.run_with_iobinding(binding)
            np.testing.assert_array_equal(target, X + X)
            assert not (one if target is two else two).any()
        two[:] = 0
        binding.bind_output("y")
        for _ in range(3):
            session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)
        assert not two.any()

    def test_other_shapes_in_turn(self, make_session: Make) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        for n in (1, 1, 1, 1, 2, 2, 5, 0, 0, 0, 0, 2):
            x = np.full((n, 3), n, np.float32)
            binding.bind_cpu_input("x", x)
            binding.bind_cpu_input("w", x)
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * x)


class TestErrors:
    def test_data_that_are_wrong(self, make_session: Make) -> None:
        session, i = make_session(PICK), np.int64([0, 1])
        binding = ready(session, {"x": X[0], "i": i})
        for _ in range(2):
            i[:] = 7
            with pytest.raises(NodeFailed, match="an index is out of range"):
                session.run_with_iobinding(binding)
            i[:] = 1
            for _ in range(3):
                session.run_with_iobinding(binding)
            assert binding.copy_outputs_to_cpu()[0].tolist() == [X[0, 1]] * 2

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            (X.astype(np.float64), r"Unexpected input data type. Actual: \(tensor\(double\)\)"),
            (X[0], "Invalid rank for input: x"),
            (X[:, :2], "Got invalid dimensions for input: x"),
        ],
    )
    def test_inputs_that_do_not_fit(self, make_session: Make, given: np.ndarray, match: str) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        binding.bind_cpu_input("x", given)
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=match):
                session.run_with_iobinding(binding)
        binding.bind_cpu_input("x", X)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)

    def test_inputs_that_are_converted(self, make_session: Make) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        for given in (np.asfortranarray(X), X[::-1], X.astype(">f4"), X.tolist()):
            binding.bind_cpu_input("x", given)
            for _ in range(2):
                session.run_with_iobinding(binding)
                np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.asarray(given, np.float32) + X)

    def test_targets_that_do_not_fit(self, make_session: Make) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 3), np.float32)))
        for _ in range(3):
            with pytest.raises(InvalidArgument, match="Got invalid dimensions for output: y"):
                session.run_with_iobinding(binding)

    def test_nothing_bound(self, make_session: Make) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        binding.clear_binding_outputs()
        with pytest.raises(InvalidArgument, match="At least one output should be requested"):
            session.run_with_iobinding(binding)
        binding.bind_output("y")
        binding.clear_binding_inputs()
        with pytest.raises(InvalidArgument, match="missing"):
            session.run_with_iobinding(binding)

    def test_options_other_sessions_and_closed_ones(self, make_session: Make) -> None:
        session, other = make_session(SUM), make_session(SUM)
        binding = ready(session, {"x": X, "w": X})
        options = ort.RunOptions()
        options.terminate = True
        with pytest.raises(Fail, match="terminate"):
            session.run_with_iobinding(binding, options)
        with pytest.raises(InvalidArgument, match="expected a binding made by this session"):
            other.run_with_iobinding(binding)
        for wrong in (None, 3, session):
            with pytest.raises(InvalidArgument, match="expected a binding made by this session"):
                session.run_with_iobinding(wrong)  # type: ignore[arg-type]
        session.run_with_iobinding(binding)
        session.close()
        with pytest.raises(Fail, match="closed"):
            session.run_with_iobinding(binding)


class TestWatched:
    """Runs of which somebody wants more than their results."""

    def test_hooks_are_called_for_each_run(self, make_session: Make) -> None:
        session, x, y, seen = make_session(SUM), X.copy(), np.zeros_like(X), list[float]()
        binding = ready(session, {"x": x, "w": X}, y)
        remove = session.add_hook(["y"], lambda _, value: seen.append(float(value.max())))
        for k in range(3):
            x[:], y[:] = X + k, 0
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y, x + X)
            binding.run()
        largest = float((X + X).max())
        assert seen == [largest, largest, largest + 1, largest + 1, largest + 2, largest + 2]
        remove()
        for _ in range(3):
            session.run_with_iobinding(binding)
        assert len(seen) == 6
        if NATIVE:
            assert binding._ready is not None

    def test_a_binding_is_prepared_once_nobody_looks(self, make_session: Make) -> None:
        session, seen = make_session(SUM), list[str]()
        remove = session.add_hook(["y"], lambda name, _: seen.append(name))
        binding = session.io_binding()
        for name in ("x", "w"):
            binding.bind_cpu_input(name, X)
        binding.bind_output("y")
        for k in range(4):
            session.run_with_iobinding(binding)
            assert len(seen) == k + 1
        remove()
        for _ in range(3):
            session.run_with_iobinding(binding)
        assert len(seen) == 4
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)
        if NATIVE:
            assert binding._ready is not None

    def test_the_guard_sees_each_run(self, make_session: Make) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.nonfinite", "error")
        session, x, y = make_session(SUM, options), X.copy(), np.zeros_like(X)
        binding = session.io_binding()
        for name, array in (("x", x), ("w", X)):
            binding.bind_cpu_input(name, array)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        for _ in range(4):
            session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, X + X)
        x[0, 0] = np.inf
        for run in (session.run_with_iobinding, lambda bound: bound.run()):
            with pytest.raises(Fail, match="an output is not finite"):
                run(binding)


class TestMemory:
    def test_nothing_is_kept(self, make_session: Make) -> None:
        session, x, y = make_session(SUM), X.copy(), np.zeros_like(X)
        binding = ready(session, {"x": x, "w": X}, y)
        objects: list[Any] = [x, y, True, binding, np.ndarray]
        before, nothing = [sys.getrefcount(o) for o in objects], sys.getrefcount(None)
        for _ in range(1000):
            session.run_with_iobinding(binding)
        assert max(abs(sys.getrefcount(o) - n) for o, n in zip(objects, before, strict=True)) < 50
        assert abs(sys.getrefcount(None) - nothing) < 500

    def test_inputs_live_as_long_as_they_are_bound(self, make_session: Make) -> None:
        session = make_session(SUM)
        binding = ready(session, {"x": X.copy(), "w": X.copy()})
        gc.collect()
        for _ in range(50):
            [np.full((2, 3), 99, np.float32) for _ in range(20)]
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)

    def test_a_binding_is_freed(self, make_session: Make) -> None:
        session, x = make_session(SUM), X.copy()
        binding = ready(session, {"x": x, "w": X})
        assert sys.getrefcount(x.base if x.base is not None else x) > 2
        del binding
        assert sys.getrefcount(x) == 2  # without the collector

    def test_threads_that_bind_and_run(self, make_session: Make) -> None:
        """Runs of one binding while another thread binds other arrays: each result is that of one of them."""
        text = "g (float[n,64] x, float[64,64] w) => (float[n,64] y) { t = MatMul(x, w) y = MatMul(t, w) }"
        session = make_session(text, providers=["CPUExecutionProvider"])
        w = np.eye(64, dtype=np.float32)
        binding = ready(session, {"x": np.zeros((64, 64), np.float32), "w": w}, np.zeros((64, 64), np.float32))
        wrong: list[object] = []
        stop = threading.Event()

        def bind() -> None:
            k = 0
            while not stop.is_set():
                binding.bind_cpu_input("x", np.full((64, 64), k % 9, np.float32))
                k += 1

        def run() -> None:
            for _ in range(300):
                session.run_with_iobinding(binding)
                (y,) = binding.copy_outputs_to_cpu()
                if y.shape != (64, 64) or y.min() < 0 or y.max() > 8:
                    wrong.append(y)

        threads = [threading.Thread(target=run) for _ in range(2)]
        other = threading.Thread(target=bind)
        for thread in (*threads, other):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        other.join()
        assert not wrong

    def test_interpreters_whose_objects_are_not_known(self, make_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interpreter, "functions", lambda: None)
        session, y = make_session(SUM), np.zeros_like(X)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input("w", X)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        for _ in range(4):
            y[:] = 0
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y, X + X)
        assert binding._call is not None
        assert binding._ready is None
