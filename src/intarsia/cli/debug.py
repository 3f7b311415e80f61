"""`intarsia compare` and `intarsia reduce`: where two providers part, and the smallest part of a model in which they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.run import open_session, session_options
from intarsia.cli.show import note, note_feeds, screen, working
from intarsia.debug import compare_models, compare_outputs, compare_providers, reduce_model, saved_outputs
from intarsia.debug.reduce import Fails, providers_differ
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Values differ where |a - b| is more than atol + rtol * the largest magnitude."""

    rtol: float
    atol: float


def _feed(
    model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, config: Sequence[str]
) -> dict[str, Any]:
    if len(providers) != 2:
        given = ", ".join(providers)
        example = "CPUExecutionProvider,ReferenceExecutionProvider"
        raise InvalidArgument(f"--providers: expected two, such as {example}; got {given!r}")
    session = open_session(model, [providers[1]], config=config)
    feeds = build_feeds(Signature.of_session(session), specs, options)
    note_feeds(feeds)
    return feeds.at_once()


def compare(
    model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, tolerance: Tolerance,
    config: Sequence[str] = (),
) -> bool:  # fmt: skip
    """Print where the providers part; True where they agree."""
    feed = _feed(model, specs, providers, options, config)
    with working(f"comparing {model.name}"):
        options_of_both = session_options(0, config)
        found = compare_providers(
            str(model), providers, feed, rtol=tolerance.rtol, atol=tolerance.atol, sess_options=options_of_both
        )
    screen.print(escape(str(found)), highlight=False)
    return found.equal


def compare_with(
    model: Path, other: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, tolerance: Tolerance,
    config: Sequence[str] = (),
) -> bool:  # fmt: skip
    """Print where the outputs of two models, or of a model and what was saved of a run, part; True where they agree."""
    feeds = build_feeds(Signature.of_file(model), specs, options)
    note_feeds(feeds)
    both, models = session_options(0, config), [str(model), str(other)]
    with working(f"comparing {model.name}"):
        if _is_model(other):
            found = compare_models(
                models, feeds.at_once(), providers, rtol=tolerance.rtol, atol=tolerance.atol, sess_options=both
            )
        else:
            session = open_session(model, providers, config=config)
            names = [info.name for info in session.get_outputs()]
            wanted = saved_outputs(other, names)
            given = dict(zip(wanted, session.run(list(wanted), feeds.at_once()), strict=True))
            found = compare_outputs(
                (str(model), str(other)), given, wanted, rtol=tolerance.rtol, atol=tolerance.atol
            )
    screen.print(escape(str(found)), highlight=False)
    return found.equal


def _is_model(path: Path) -> bool:
    return path.suffix not in (".npz", ".npy") and not path.is_dir()


def _differ(providers: Sequence[str], tolerance: Tolerance, config: Sequence[str]) -> Fails:
    options = session_options(0, config)
    return providers_differ(providers, rtol=tolerance.rtol, atol=tolerance.atol, sess_options=options)


def reduce(
    model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, tolerance: Tolerance, output: Path,
    config: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the smallest part of the model found in which the providers part, with its inputs."""
    feed = _feed(model, specs, providers, options, config)
    with working(f"reducing {model.name}"):
        found = reduce_model(str(model), feed, _differ(providers, tolerance, config))
    found.save(output)
    screen.print(escape(str(found)), highlight=False)
    note(f"written to {output} and {output.with_suffix('.npz')}: intarsia compare {output} -i {output.with_suffix('.npz')} ...")
