"""How a session's threads wait and compute: entries that only the pool knows."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm.jit import emit_assembly
from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.runtime import spmd_state
from intarsia.runtime.executor import get_pool
from intarsia.runtime.spmd_text import executor_text
from intarsia.runtime.threads import AFFINITIES, DENORMALS, SPIN_DURATION, SPINNING, PoolSettings

HALF = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, m] x) => (float[n, m] y) <float h = {0.5}> { y = Mul(x, h) }""").SerializeToString()
bound = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind threads to cores")


def session(threads: int, entries: dict[str, str]) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(HALF, options)


def settings(entries: dict[str, str], threads: int = 2) -> PoolSettings:
    return PoolSettings.of(entries, threads)


class TestDenormals:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("shape", [(3, 5), (512, 1024)])
    def test_as_zero(self, threads: int, shape: tuple[int, int]) -> None:
        x = np.full(shape, 1e-40, np.float32)
        x[:, -1] = 2e-38  # its half is denormal
        for _ in range(3):
            flushed = session(threads, {DENORMALS: "1"}).run(None, {"x": x})[0]
            assert not flushed.any()
            kept = session(threads, {}).run(None, {"x": x})[0]
            np.testing.assert_array_equal(kept, x * np.float32(0.5))
            assert kept.all()

    def test_the_callers_arithmetic_is_as_it_was(self) -> None:
        session(2, {DENORMALS: "1"}).run(None, {"x": np.ones((512, 1024), np.float32)})
        assert np.float32(1e-40) * np.float32(0.5) != 0

    def test_other_numbers_are_the_same(self) -> None:
        x = np.float32([[np.inf, -np.inf, 1.5, -0.0, 3e38]])
        np.testing.assert_array_equal(session(1, {DENORMALS: "1"}).run(None, {"x": x})[0], x * np.float32(0.5))

    @pytest.mark.parametrize(
        ("triple", "instruction"), [("x86_64-unknown-linux-gnu", "ldmxcsr"), ("aarch64-unknown-linux-gnu", "fpcr")]
    )
    def test_text_of_each_cpu(self, triple: str, instruction: str) -> None:
        target = Target.create(triple)
        assert instruction in emit_assembly(executor_text(target).ir, target).lower()


class TestSpinning:
    def test_durations(self) -> None:
        assert settings({}).spin_microseconds == 1000
        assert settings({SPIN_DURATION: "-1"}) == settings({})
        assert settings({SPIN_DURATION: "50"}).spin_microseconds == 50
        assert settings({SPIN_DURATION: "50", SPINNING: "0"}).spin_microseconds == 0
        words = [get_pool(2, PoolSettings(t))._state[spmd_state.PATIENCE] for t in (0.0, 1.0, 100.0)]
        assert words[0] == 0 < words[1] < words[2]

    def test_sessions_that_agree_share_a_pool(self) -> None:
        assert get_pool(2, settings({SPIN_DURATION: "70"})) is get_pool(2, settings({SPIN_DURATION: "70", SPINNING: "1"}))
        assert get_pool(2, settings({SPIN_DURATION: "70"})) is not get_pool(2)

    def test_results(self) -> None:
        x = np.ones((512, 1024), np.float32)
        np.testing.assert_array_equal(session(2, {SPIN_DURATION: "0"}).run(None, {"x": x})[0], x / 2)


class TestAffinities:
    @bound
    def test_workers_stay_on_their_cores(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        last = cores[-1]
        x = np.ones((512, 1024), np.float32)
        made = session(3, {AFFINITIES: f"{last + 1};{cores[0] + 1},{last + 1}"})
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], x / 2)
        pool = get_pool(3, PoolSettings(affinities=((last,), tuple(sorted({cores[0], last})))))
        assert pool.parallel_runs > 0
        wanted, end = [{last}, {cores[0], last}], time.monotonic() + 300
        while [os.sched_getaffinity(t.native_id or 0) for t in pool._threads] != wanted:
            assert time.monotonic() < end  # a run ends without a worker that has not begun, and one that waits may move
            time.sleep(0.001)
        assert os.sched_getaffinity(0) == set(cores)

    @bound
    def test_ranges(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        if cores != list(range(cores[0], cores[-1] + 1)):
            pytest.skip("the cores of this process are not one range")
        assert settings({AFFINITIES: f" {cores[0] + 1}-{cores[-1] + 1} "}).affinities == (tuple(cores),)

    @bound
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1;1", r"expected 1 lists of cores, one for each of 2 threads but the caller's, got 2: '1;1'"),
            ("0", r"expected cores from 1 as in '1,2;4-6', got '0' in '0'"),
            ("first", r"expected cores from 1 as in '1,2;4-6', got 'first'"),
            ("1,", r"expected cores from 1 as in '1,2;4-6', got ''"),
            ("99999", r"expected cores that this process may use \([\d, ]+\), got '99999'"),
            ("2-1", r"expected cores that this process may use \([\d, ]+\), got '2-1'"),
        ],
    )
    def test_wrong_text(self, text: str, message: str) -> None:
        with pytest.raises(InvalidArgument, match=f"'session.intra_op_thread_affinities': {message}"):
            settings({AFFINITIES: text})
        with pytest.raises(InvalidArgument, match=message):
            session(2, {AFFINITIES: text})

    def test_a_system_that_binds_no_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "sched_setaffinity", raising=False)
        with pytest.raises(InvalidArgument, match="this system does not let a program choose its threads' cores"):
            settings({AFFINITIES: "1"})


def test_one_thread_has_no_workers_to_bind() -> None:
    none: dict[str, Any] = {AFFINITIES: ""}
    assert settings(none, 1).affinities == ()
