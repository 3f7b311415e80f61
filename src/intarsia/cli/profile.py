"""`intarsia profile`: where the time of a run goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.run import open_session
from intarsia.cli.show import note, note_feeds, note_run, print_json, screen, working
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Shown:
    """How much to measure, and what to do with the result."""

    runs: int
    top: int
    depth: int
    trace: Path | None
    html: Path | None
    as_json: bool
    wide: bool = False
    config: Sequence[str] = ()


def profile_model(
    model: Path, specs: Sequence[str], providers: Sequence[str], feed_options: FeedOptions, threads: int, show: Shown
) -> None:
    """Run the model, print the tables, and write a trace and a page where they were asked for.

    Raises:
        IntarsiaError: the model, an option or a run.
    """
    session = open_session(model, providers, threads, config=show.config)
    feeds = build_feeds(Signature.of_session(session), specs, feed_options)
    note_feeds(feeds)
    note_run(threads)
    with working(f"running {model.name}"):
        report = session.profile(feeds.at_once(), show.runs)
    if show.as_json:
        print_json(json.dumps(report.to_dict(), indent=1))
    else:
        screen.print(escape(report.format(show.top, show.depth, 0 if show.wide else screen.width)), highlight=False)
    if show.trace is not None:
        report.save_trace(show.trace)
        note(f"written to {show.trace}: open it in ui.perfetto.dev or chrome://tracing")
    if show.html is not None:
        session.explain().save_html(show.html, report, title=model.name)
        note(f"written to {show.html}")
