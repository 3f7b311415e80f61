"""Timing of one model in several runtimes, in turn, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.peers import Runner
from intarsia.lazy_dataclass import dataclass

BURST_SECONDS = 0.05
_LOOK_SECONDS = 0.004
_LEAST_WORK = 0.1  # of the time between two looks: less is no thread that spins
_LONGEST_SECONDS = 0.3


@dataclass
class Timing:
    """Milliseconds of every timed run."""

    samples: list[float] = field(default_factory=list)

    def percentile(self, q: float) -> float:
        """The time that `q` percent of the runs do not exceed, in ms."""
        return float(np.percentile(self.samples, q))

    @property
    def median(self) -> float:
        """The median run, in ms."""
        return self.percentile(50)


def intarsia_runner(
    model: Path, feeds: Mapping[str, np.ndarray], threads: int, providers: Sequence[str] = (), config: Sequence[str] = ()
) -> Runner:
    """The model in Intarsia; `threads` 0 leaves the choice to it, `config` are configuration entries, KEY=VALUE."""
    import intarsia
    from intarsia.cli.run import session_options
    from intarsia.model import background_compile

    start = time.perf_counter()
    options = session_options(threads, config)
    if background_compile.KEY not in options.config_entries():  # timed runs are the tuned tier's
        options.add_session_config_entry(background_compile.KEY, "0")
    session = intarsia.InferenceSession(str(model), options, providers=list(providers) or ["CPUExecutionProvider"])
    created = time.perf_counter() - start
    arrays = dict(feeds)
    return Runner("intarsia", lambda: session.run(None, arrays), created)


def interleave(
    runners: Sequence[Runner], runs: int, seconds: float, progress: Callable[[float], None] = lambda _: None
) -> list[Timing]:
    """Time the runners in turn: rounds of one burst each, until everyone has `runs` timed runs or `seconds` have passed.

    A burst is a pause (`settle`), one untimed run, and as many timed ones as fit in 50 ms, at least one.

    Args:
        progress: told the part done, 0 to 1, after each round.
    """
    timings = [Timing() for _ in runners]
    for runner in runners:
        runner.run()
    begin = time.perf_counter()
    while True:
        for runner, timing in zip(runners, timings, strict=True):
            _burst(runner, timing, runs)
        fewest = min(len(t.samples) for t in timings)
        spent = time.perf_counter() - begin
        progress(min(1.0, max(fewest / runs, spent / seconds)))
        if fewest >= runs or (spent > seconds and fewest >= 3):
            return timings


def settle() -> None:
    """Wait until no thread of this process computes. Threads of a runtime may spin for a while after its run (onnxruntime's
    take 40 to 50 ms of a core), and would take the cores from the next one.
    """
    end, before = time.monotonic() + _LONGEST_SECONDS, time.process_time()
    while time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        now = time.process_time()
        if now - before < _LEAST_WORK * _LOOK_SECONDS:
            return
        before = now


def _burst(runner: Runner, timing: Timing, runs: int) -> None:
    settle()
    runner.run()
    burst_end = time.perf_counter() + BURST_SECONDS
    while len(timing.samples) < runs:
        start = time.perf_counter()
        runner.run()
        end = time.perf_counter()
        timing.samples.append((end - start) * 1e3)
        if end > burst_end:
            return


def runs_a_second(runner: Runner, threads: int, seconds: float) -> float:
    """Throughput while so many threads run the model at once, for at least so many seconds and three runs of each thread.

    Raises:
        BaseException: what a run raised first.
    """
    runner.run()
    settle()
    end, least = time.perf_counter() + seconds, 3

    def work() -> int:
        count = 0
        while count < least or time.perf_counter() < end:
            runner.run()
            count += 1
        return count

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        counts = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
    return sum(counts) / (time.perf_counter() - start)


def largest_difference(outputs: Sequence[Any], reference: Sequence[Any]) -> float:
    """The largest difference between numeric outputs, relative to the reference's largest finite magnitude; infinite where
    one of them has an infinity or NaN that the other has not.
    """
    worst = 0.0
    for got, expected in zip(outputs, reference, strict=True):
        if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiub" or not expected.size:
            continue
        found, wanted = np.asarray(got, np.float64), expected.astype(np.float64)
        finite = np.isfinite(wanted)
        if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
            return float("inf")
        if finite.any():
            scale = float(np.abs(wanted[finite]).max()) or 1.0
            worst = max(worst, float(np.abs(found[finite] - wanted[finite]).max()) / scale)
    return worst
