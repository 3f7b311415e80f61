"""What the commands print: arrays, class scores, tables; the consoles they print to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from intarsia.options.session_options import SessionOptions
from intarsia.printable import visible, visible_lines
from intarsia.progress import LoadProgress

if TYPE_CHECKING:
    from intarsia.cli.inputs.feeds import Feeds


class _Terminal(Console):
    """A console to which nothing goes that a terminal obeys but rich's own; names are not read as emoji."""

    def print(self, *objects: Any, **keywords: Any) -> None:
        """As rich's."""
        super().print(*[visible_lines(each) if isinstance(each, str) else each for each in objects], **keywords)


screen = _Terminal(soft_wrap=True, emoji=False)
errors = _Terminal(stderr=True, emoji=False)


def shown(text: str) -> str:
    """A name for a place where rich reads markup."""
    return escape(visible(text))


def plain(text: str) -> None:
    """Print a text as it is, but for what a terminal would obey."""
    print(visible_lines(text))


def print_json(text: str) -> None:
    """Print JSON. It has no characters beyond ASCII, of which one may be written out."""
    print(text.replace("\x7f", "\\u007f"))


SHOWN_ELEMENTS = 60


@contextlib.contextmanager
def working(message: str) -> Iterator[None]:
    """A spinner on a terminal's error stream while something takes its time."""
    with errors.status(shown(message)) if errors.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def compiling(options: SessionOptions, message: str) -> Iterator[None]:
    """A bar on a terminal's error stream that shows how far the sessions made with `options` have come."""
    if not errors.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[stage]}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors, transient=True) as bar:
        task = bar.add_task(shown(message), total=1.0, stage="")

        def show(now: LoadProgress) -> None:
            counted = f" {now.done}/{now.total}" if now.total else ""
            bar.update(task, completed=now.fraction, stage=f"{now.stage}{counted}")

        options.set_progress_callback(show)
        try:
            yield
        finally:
            options.set_progress_callback(None)


def note(message: str) -> None:
    """A remark beside the results, on the error stream."""
    errors.print(f"[dim]{escape(message)}[/]", highlight=False, soft_wrap=True)


def note_feeds(feeds: Feeds) -> None:
    """Each input's type, sizes and origin, and a warning for what was guessed or not used."""
    for name, array in feeds.arrays.items():
        note(f"input {name}: {describe_value(array)} from {feeds.origins[name]}")
    if feeds.rounds > 1:
        note(f"{feeds.rounds} runs")
    for text in feeds.notes:
        errors.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def note_run(threads: int, peers: Sequence[str] = ()) -> None:
    """What a time depends on: threads, versions, the machine."""
    from importlib.metadata import PackageNotFoundError, version

    import intarsia
    from intarsia.machine.resources import available_cores
    from intarsia.reports.doctor import cpu_name

    found = [f"intarsia {intarsia.__version__}"]
    for peer in peers:
        for package in (peer, f"{peer}-python", f"{peer}-python-headless"):  # OpenCV's are called so
            with contextlib.suppress(PackageNotFoundError):
                found.append(f"{peer} {version(package)}")
                break
    count = threads or available_cores()
    note(f"{', '.join(found)}; {count} thread{'s' * (count != 1)}; {cpu_name()}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str] = ()) -> None:
    """A table; columns in `numeric` are aligned to the right. A title that begins with a line's end has an empty line
    before it."""
    if title.startswith("\n"):
        plain("")
    title = title.removeprefix("\n")
    grid = Table(title=shown(title) or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        number = column in numeric
        grid.add_column(shown(column), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        grid.add_row(*map(shown, row))
    screen.print(grid, soft_wrap=False)


def describe_value(value: Any) -> str:
    """The kind of an output: `float32 [1, 10]`, or the Python type of sequences and maps."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name if value.dtype != object else 'string'} {list(value.shape)}"
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, dict)) else type(value).__name__


def format_value(value: Any) -> str:
    """An output's values, shortened in the middle where there are many."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    text = np.array2string(value, threshold=SHOWN_ELEMENTS, edgeitems=3, precision=5, suppress_small=True, max_line_width=120)
    if value.dtype.kind not in "fiu" or value.size <= SHOWN_ELEMENTS:
        return text
    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    if not finite.size:
        return f"{text}\nno finite value"
    bad = value.size - finite.size
    range_ = f"min {finite.min():.5g}, max {finite.max():.5g}, mean {finite.mean(dtype=np.float64):.5g}"
    return f"{text}\n{range_}{f', {bad} not finite' if bad else ''}"


def top_scores(scores: np.ndarray, count: int, labels: Sequence[str]) -> list[list[tuple[str, float]]]:
    """For each row along the last axis the `count` largest values with their index or label, largest first."""
    rows = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
    order = np.argsort(-rows, axis=-1, kind="stable")[:, :count]
    names = [*labels, *map(str, range(len(labels), rows.shape[-1]))]
    return [[(names[i], float(row[i])) for i in best] for row, best in zip(rows, order, strict=True)]
