"""`intarsia bench`: how long a model takes, beside other runtimes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from intarsia.cli.feeds import FeedOptions, build_feeds
from intarsia.cli.run import open_session
from intarsia.cli.show import errors, note, screen, table, working
from intarsia.cli.timing import PEERS, Runner, Timing, intarsia_runner, interleave, largest_difference, peer_runner
from intarsia.errors import UnknownOption, nearest
from intarsia.graph.load import load
from intarsia.lazy_dataclass import dataclass
from intarsia.model.signature import NodeArg

_HEAVIEST = 15
_PROFILE_MS = 3000.0


@dataclass(frozen=True)
class Effort:
    """When to stop: timed runs of each runtime, seconds in all. `roofline`: compare with what the machine can do at most;
    `config`: our session's configuration entries."""

    runs: int
    seconds: float
    roofline: bool = False
    config: Sequence[str] = ()


def bench_model(
    model: Path,
    specs: Sequence[str],
    providers: Sequence[str],
    feed_options: FeedOptions,
    threads: int,
    compare: Sequence[str],
    effort: Effort,
) -> None:
    """Time the model and print median, 90th and 99th percentile, and the ratio to each peer.

    Raises:
        IntarsiaError: the model, an option or a run; UnknownOption for a peer that is not there.
    """
    for name in compare:
        if name not in PEERS:
            raise UnknownOption(f"--compare: no runtime {name!r}; {nearest(name, PEERS)}")
    feeds = build_feeds([NodeArg.of(value) for value in load(model).inputs], specs, feed_options).arrays
    with working(f"compiling {model.name}"):
        runners = [intarsia_runner(model, feeds, threads, providers, effort.config)]
    for name in compare:
        with working(f"creating a session in {name}"):
            runners.append(peer_runner(name, model, feeds, threads))
    with progress_bar(f"timing {model.name}") as progress:
        timings = interleave(runners, effort.runs, effort.seconds, progress)
    report(model, runners, timings)
    if effort.roofline:
        report_roofline(model, feeds, threads, providers, timings[0], effort.config)


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


def report(model: Path, runners: Sequence[Runner], timings: Sequence[Timing]) -> None:
    """Print a row per runtime."""
    reference = runners[0].run()
    rows = []
    for runner, timing in zip(runners, timings, strict=True):
        ratio = timing.median / timings[0].median
        difference = "" if runner is runners[0] else f"{largest_difference(runner.run(), reference):.1e}"
        times = [f"{t:.3f}" for t in (timing.median, timing.percentile(90), timing.percentile(99))]
        rows.append([runner.name, *times, f"{ratio:.2f}", f"{len(timing.samples)}", f"{runner.created_s:.2f}", difference])
    columns = ["runtime", "median ms", "p90 ms", "p99 ms", "ratio", "runs", "create s", "difference"]
    table(model.name, columns, rows, numeric=columns[1:])
    note("ratio: median / intarsia's; difference: largest, of the output's largest magnitude")


@contextlib.contextmanager
def progress_bar(message: str) -> Iterator[Callable[[float], None]]:
    """A bar on the error stream of a terminal; yields a function that takes the part done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(message, total=1.0)
        yield lambda done: progress.update(task, completed=done)
