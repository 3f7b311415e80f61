"""`intarsia bench`: how long a model takes, beside other runtimes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.peers import PEERS, Runner, peer_runner
from intarsia.cli.run import open_session
from intarsia.cli.show import errors, note, note_feeds, note_run, print_json, screen, table, working
from intarsia.cli.timing import Timing, intarsia_runner, interleave, largest_difference, runs_a_second
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.lazy_dataclass import dataclass

_HEAVIEST = 15
_PROFILE_MS = 3000.0


@dataclass(frozen=True)
class Effort:
    """When to stop: timed runs of each runtime, seconds in all. `roofline`: compare with what the machine can do at most;
    `concurrency`: threads that call at once, 0 for no such measurement; `config`: our session's configuration entries."""

    runs: int
    seconds: float
    roofline: bool = False
    concurrency: int = 0
    config: Sequence[str] = ()


@dataclass(frozen=True)
class Where:
    """Where the model runs: our providers, threads of a run, other runtimes. `as_json`: how the result is printed."""

    providers: Sequence[str]
    threads: int
    peers: Sequence[str] = ()
    as_json: bool = False


def bench_model(model: Path, specs: Sequence[str], feed_options: FeedOptions, where: Where, effort: Effort) -> None:
    """Time the model and print median, 90th and 99th percentile, throughput, and the ratio to each peer.

    Raises:
        IntarsiaError: the model, an option or a run; UnknownOption for a peer that is not there.
    """
    if where.as_json and effort.roofline:
        raise InvalidArgument("--roofline prints a table, which is no JSON: leave out one of --roofline and --json")
    for name in where.peers:
        if name not in PEERS:
            raise UnknownOption(f"--compare: no runtime {name!r}; {nearest(name, PEERS)}")
    given = build_feeds(Signature.of_file(model), specs, feed_options)
    note_feeds(given)
    note_run(where.threads, where.peers)
    feeds = given.at_once()
    with working(f"compiling {model.name}"):
        runners = [intarsia_runner(model, feeds, where.threads, where.providers, effort.config)]
    for name in where.peers:
        with working(f"creating a session in {name}"):
            runners.append(peer_runner(name, model, feeds, where.threads))
    with progress_bar(f"timing {model.name}") as progress:
        timings = interleave(runners, effort.runs, effort.seconds, progress)
    rates = [0.0] * len(runners)
    if effort.concurrency:
        with working(f"{effort.concurrency} threads call at once"):
            rates = [runs_a_second(runner, effort.concurrency, effort.seconds / 10) for runner in runners]
    rows = measured(runners, timings, rates)
    if where.as_json:
        sizes = {name: {"dtype": x.dtype.name, "shape": list(x.shape)} for name, x in feeds.items()}
        told = {"model": str(model), "inputs": sizes, "threads": where.threads, "concurrency": effort.concurrency}
        print_json(json.dumps({**told, "guessed": dict(given.guessed), "runtimes": rows}, indent=1))
    else:
        report(model, rows)
    if effort.roofline:
        report_roofline(model, feeds, where.threads, where.providers, timings[0], effort.config)


def measured(runners: Sequence[Runner], timings: Sequence[Timing], rates: Sequence[float]) -> list[dict[str, Any]]:
    """What was seen of each runtime. `difference`: of its outputs from Intarsia's, relative to the largest magnitude."""
    reference, first = runners[0].run(), timings[0].median
    return [
        {
            "runtime": runner.name, "median_ms": timing.median, "p90_ms": timing.percentile(90),
            "p99_ms": timing.percentile(99), "ratio": timing.median / first, "runs": len(timing.samples),
            "created_s": runner.created_s, "runs_a_second": 1e3 / timing.median, "concurrent_runs_a_second": rate or None,
            "difference": None if runner is runners[0] else largest_difference(runner.run(), reference),
        }
        for runner, timing, rate in zip(runners, timings, rates, strict=True)
    ]  # fmt: skip


def report_roofline(
    model: Path, feeds: Mapping[str, np.ndarray], threads: int, providers: Sequence[str], timing: Timing,
    config: Sequence[str] = (),
) -> None:  # fmt: skip
    """Measure the machine's peaks and print the model's share of them, and that of its heaviest steps."""
    from intarsia.reports.profile_report import roofline_cells
    from intarsia.runtime.roofline import roofline

    with working("measuring the machine"):
        roofline(threads, again=True)
    with working("profiling"):
        runs = max(5, min(100, int(_PROFILE_MS / timing.median)))
        found = open_session(model, providers, threads, config=config).profile(dict(feeds), runs)
        roof = found.roof or roofline(threads)
    flop, nbytes = (sum(getattr(k, what) for k in found.kernels) for what in ("flop", "nbytes"))
    least = sum(roof.seconds(k.flop, k.nbytes, k.name) for k in found.kernels) * 1e3
    screen.print(
        f"roofline: {roof}\na run: {flop / 1e9:.4f} GFLOP, {nbytes / 1e6:.3f} MB; at least {least:.3f} ms, "
        f"which is {100 * least / timing.median:.0f} % of the median", highlight=False,
    )  # fmt: skip
    rows = [
        (
            row.name, f"{row.calls:g}", f"{row.milliseconds:.3f}", f"{100 * row.share:.1f} %",
            *roofline_cells(row),
        )
        for row in found.by_kernel()[:_HEAVIEST]
    ]  # fmt: skip
    columns = ["step", "calls", "ms", "time", "roofline", "at best"]
    table(f"the heaviest steps, {runs} runs", columns, rows, numeric=columns[1:])
    note("roofline: the least time for a step's operations and bytes, by its mean time in the faster half of the runs;")
    note("at best: by its time in its fastest run; more than 100 %: data came from caches, or 8-bit products")


def report(model: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Print a row per runtime."""
    columns = ["runtime", "median ms", "p90 ms", "p99 ms", "ratio", "runs", "runs/s", "create s"]
    concurrent, compared = rows[0]["concurrent_runs_a_second"] is not None, len(rows) > 1
    columns += ["at once runs/s"] * concurrent + ["off by"] * compared
    cells = [
        [
            row["runtime"], *(f"{row[key]:.3f}" for key in ("median_ms", "p90_ms", "p99_ms")), f"{row['ratio']:.2f}",
            f"{row['runs']}", _rate(row["runs_a_second"]), f"{row['created_s']:.2f}",
            *([_rate(row["concurrent_runs_a_second"])] if concurrent else []),
            *(["" if row["difference"] is None else f"{row['difference']:.1e}"] if compared else []),
        ]
        for row in rows
    ]  # fmt: skip
    table(model.name, columns, cells, numeric=columns[1:])
    if compared:
        note("ratio: of its median to intarsia's; off by: the largest difference of its outputs from intarsia's, relative to")
        note("the largest output")


def _rate(runs: float) -> str:
    return f"{runs:,.0f}" if runs >= 100 else f"{runs:.3g}"


@contextlib.contextmanager
def progress_bar(message: str) -> Iterator[Callable[[float], None]]:
    """A bar on the error stream of a terminal; yields a function that takes the part done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(message, total=1.0)
        yield lambda done: progress.update(task, completed=done)
