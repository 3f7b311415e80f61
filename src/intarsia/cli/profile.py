"""`intarsia profile`: where the time of a run goes, and what changed since an earlier one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.run import open_session
from intarsia.cli.show import note, note_feeds, note_run, print_json, screen, working
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from intarsia.reports.explain import Explanation
    from intarsia.reports.profile_report import ProfileReport

SAVED = ".json"  # a profile that was saved, where a model may stand


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
    save: Path | None = None
    compare: Path | None = None


def profile_model(
    model: Path, specs: Sequence[str], providers: Sequence[str], feed_options: FeedOptions, threads: int, show: Shown
) -> None:
    """Run the model, print the tables, and write a trace, a page and the profile where they were requested. A saved profile in
    the model's place is read instead.

    Raises:
        IntarsiaError: the model, an option, a run or a saved profile.
    """
    from intarsia.reports.profile_report import ProfileReport

    before = None if show.compare is None else ProfileReport.load(show.compare)
    if model.suffix == SAVED:
        _refuse_for_saved(specs, providers, show)
        _show(ProfileReport.load(model), before, None, model, show)
        return
    session = open_session(model, providers, threads, config=show.config)
    feeds = build_feeds(Signature.of_session(session), specs, feed_options)
    note_feeds(feeds)
    note_run(threads)
    with working(f"running {model.name}"):
        report = session.profile(feeds.at_once(), show.runs)
    _show(report, before, session.explain() if show.html is not None else None, model, show)


def _refuse_for_saved(specs: Sequence[str], providers: Sequence[str], show: Shown) -> None:
    given = {"--input": specs, "--provider": providers, "--config": show.config, "--trace": show.trace, "--save": show.save}
    unused = [name for name, value in given.items() if value]
    if unused:
        raise InvalidArgument(f"a saved profile is not run again: {', '.join(unused)} cannot be given with it; name the model")
    if show.html is not None and show.compare is None:
        raise InvalidArgument("--html: a saved profile has no graph; name the model, or another profile with --compare")


def _show(
    report: ProfileReport, before: ProfileReport | None, explanation: Explanation | None, model: Path, show: Shown
) -> None:  # fmt: skip
    found = report if before is None else report.compare(before)
    if show.as_json:
        print_json(json.dumps(found.to_dict(), indent=1))
    else:
        screen.print(escape(found.format(show.top, show.depth, 0 if show.wide else screen.width)), highlight=False)
    if show.trace is not None:
        report.save_trace(show.trace)
        note(f"written to {show.trace}: open it in ui.perfetto.dev or chrome://tracing")
    if show.save is not None:
        report.save(show.save)
        note(f"written to {show.save}: intarsia profile MODEL --compare {show.save} says what changed since")
    if show.html is not None:
        if explanation is not None:
            explanation.save_html(show.html, report, title=model.name, before=before)
        elif before is not None:
            report.compare(before).save_html(show.html, title=model.name)
        note(f"written to {show.html}")
