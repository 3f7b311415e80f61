"""Operators one by one in Intarsia beside onnxruntime: python benchmarks/operators.py [NAMES...] [--quick] [--json FILE]

A model of one node each (`cases/operator_cases.py`), both runtimes in one process, in turn; benchmarks/README.md says how it
measures. The table has onnxruntime's time divided by Intarsia's: above 1 Intarsia is ahead; sorted, the worst last.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from cases.operator_cases import Case, cases

from intarsia.cli.timing import largest_difference, settle

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

# A burst of few runs ends before caches hold what a large case touches: it may take more times as long.
LEAST_RUNS, MOST_TIMES = 16, 12
RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout".split())

Run = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Result:
    """Milliseconds at best of one case in both runtimes, and the largest relative difference of their outputs."""

    op: str
    label: str
    intarsia_ms: float
    onnxruntime_ms: float
    difference: float
    how: str  # what Intarsia does with the node: compiled, host, view, ...

    @property
    def ratio(self) -> float:
        """onnxruntime's time in Intarsia's: above 1 Intarsia is ahead."""
        return self.onnxruntime_ms / self.intarsia_ms


@dataclass(frozen=True)
class Refusal:
    """A case that a runtime does not run, and why."""

    name: str
    runtime: str
    reason: str


def onnxruntime_run(model: bytes, feeds: dict[str, Any], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def intarsia_run(model: bytes, feeds: dict[str, Any], threads: int) -> tuple[Run, str]:
    import intarsia

    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    session = intarsia.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    kinds = sorted({node.kind for node in session.explain().nodes})
    return (lambda: session.run(None, feeds)), " and ".join(kinds)


def burst(run: Run, seconds: float) -> float:
    """The best of the runs that fit into `seconds`, after one that is not timed; in seconds. Where these are few it goes on, to
    `LEAST_RUNS` or `MOST_TIMES` as long."""
    settle()
    run()
    best, runs, begin = math.inf, 0, time.perf_counter()
    while True:
        start = time.perf_counter()
        run()
        stop = time.perf_counter()
        best, runs = min(best, stop - start), runs + 1
        if stop - begin > seconds * (1 if runs >= LEAST_RUNS else MOST_TIMES):
            return best


def measure(case: Case, threads: int, rounds: int, seconds: float, is_open: bool = False) -> Result | Refusal:
    model, feeds = case.model(is_open).SerializeToString(), case.feeds()
    try:
        peer = onnxruntime_run(model, feeds, threads)
        expected = peer()
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not run the case
        return Refusal(case.name, "onnxruntime", _first_line(error))
    try:
        own, how = intarsia_run(model, feeds, threads)
        got = own()
    except Exception as error:  # noqa: BLE001 - as above: a row of the table, not the end of it
        return Refusal(case.name, "intarsia", _first_line(error))
    difference = 0.0 if case.op in RANDOM else largest_difference(got, expected)
    times = {"intarsia": math.inf, "onnxruntime": math.inf}
    for _ in range(rounds):
        times["intarsia"] = min(times["intarsia"], burst(own, seconds))
        times["onnxruntime"] = min(times["onnxruntime"], burst(peer, seconds))
    return Result(case.op, case.label, times["intarsia"] * 1e3, times["onnxruntime"] * 1e3, difference, how)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def chosen(names: Sequence[str], quick: bool, numbers: bool = True) -> list[Case]:
    """The cases whose operator is among `names` or whose whole name matches one of them as a pattern; all by default.
    Without `numbers` they are only to be named."""

    def wanted(case: Case) -> bool:
        named = not names or any(case.op == n or fnmatch.fnmatch(case.name, n) for n in names)
        return named and (case.quick or not quick)

    return list(cases(wanted if names or quick else None, numbers=numbers))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def print_results(results: Sequence[Result]) -> None:
    """A Markdown table, sorted by ratio, the worst last; then how the ratios are spread."""
    width = max(len(f"{r.op} {r.label}") for r in results)
    print(f"| {'case'.ljust(width)} | intarsia µs | onnxruntime µs | ratio | differs |  |")
    print(f"| {'-' * width} | ---: | ---: | ---: | ---: | --- |")
    for r in sorted(results, key=lambda r: -r.ratio):
        times = f"{r.intarsia_ms * 1e3:.1f} | {r.onnxruntime_ms * 1e3:.1f}"
        print(f"| {f'{r.op} {r.label}'.ljust(width)} | {times} | {r.ratio:.2f} | {r.difference:.0e} | {r.how} |")
    by_op: dict[str, list[float]] = {}
    for r in results:
        by_op.setdefault(r.op, []).append(r.ratio)
    means = {op: geometric_mean(ratios) for op, ratios in by_op.items()}
    print(f"\n{len(results)} cases of {len(by_op)} operators; geometric mean {geometric_mean([r.ratio for r in results]):.2f}")
    print(f"faster than onnxruntime: {sum(r.ratio > 1 for r in results)} cases, {sum(m > 1 for m in means.values())} operators")
    slow = sorted({r.op for r in results if r.ratio < 0.5})
    print(f"more than 2 times slower: {sum(r.ratio < 0.5 for r in results)} cases of {', '.join(slow) or 'no operator'}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time single operators in Intarsia and onnxruntime.")
    parser.add_argument("names", nargs="*", help="operators, or patterns of whole case names such as 'Resize *cubic*'")
    parser.add_argument("--quick", action="store_true", help="the main cases only, shorter bursts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--open", action="store_true", help="sizes of inputs are symbols, but for channels")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="bursts of each runtime (default 5, --quick 3)")
    parser.add_argument("--seconds", type=float, help="length of a burst (default 0.02, --quick 0.01)")
    options = parser.parse_args()
    selected = chosen(options.names, options.quick, numbers=not options.list)
    if not selected:
        parser.error(f"no such cases: {' '.join(options.names)}")
    if options.list:
        print("\n".join(c.name for c in selected))
        return
    rounds, seconds = options.rounds or (3 if options.quick else 5), options.seconds or (0.01 if options.quick else 0.02)
    results: list[Result] = []
    refused: list[Refusal] = []
    for i, case in enumerate(selected):
        found = measure(case, options.threads, rounds, seconds, options.open)
        if isinstance(found, Result):
            results.append(found)
            note = f"{found.ratio:.2f} ({found.intarsia_ms * 1e3:.1f} µs)"
        else:
            refused.append(found)
            note = f"{found.runtime} does not run it: {found.reason}"
        print(f"[{i + 1}/{len(selected)}] {case.name}: {note}", file=sys.stderr, flush=True)
    if options.json:
        rows = [{**asdict(r), "ratio": r.ratio} for r in sorted(results, key=lambda r: -r.ratio)]
        print(json.dumps({"results": rows, "refused": [asdict(r) for r in refused]}, indent=1))
        return
    if results:
        print_results(results)
    for r in refused:
        print(f"{r.name}: {r.runtime} does not run it: {r.reason}")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
