"""`intarsia compare` and `intarsia reduce`: where two providers part, and the smallest part of a model in which they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from intarsia.cli.feeds import FeedOptions, build_feeds
from intarsia.cli.run import open_session
from intarsia.cli.show import note, screen, working
from intarsia.debug import compare_providers, reduce_model
from intarsia.debug.reduce import providers_differ
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Values differ where |a - b| is more than atol + rtol * the largest magnitude."""

    rtol: float
    atol: float


def _feed(model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions) -> dict[str, Any]:
    if len(providers) != 2:
        given = ", ".join(providers)
        example = "CPUExecutionProvider,ReferenceExecutionProvider"
        raise InvalidArgument(f"--providers: expected two, such as {example}; got {given!r}")
    return build_feeds(open_session(model, [providers[1]]).get_inputs(), specs, options).arrays


def compare(model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, tolerance: Tolerance) -> bool:
    """Print where the providers part; True where they agree."""
    feed = _feed(model, specs, providers, options)
    with working(f"comparing {model.name}"):
        found = compare_providers(str(model), providers, feed, rtol=tolerance.rtol, atol=tolerance.atol)
    screen.print(escape(str(found)), highlight=False)
    return found.equal


def reduce(
    model: Path, specs: Sequence[str], providers: Sequence[str], options: FeedOptions, tolerance: Tolerance, output: Path
) -> None:
    """Write the smallest part of the model found in which the providers part, with its inputs."""
    feed = _feed(model, specs, providers, options)
    with working(f"reducing {model.name}"):
        found = reduce_model(str(model), feed, providers_differ(providers, rtol=tolerance.rtol, atol=tolerance.atol))
    found.save(output)
    screen.print(escape(str(found)), highlight=False)
    note(f"written to {output} and {output.with_suffix('.npz')}: intarsia compare {output} -i {output.with_suffix('.npz')} ...")
