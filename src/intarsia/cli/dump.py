"""`intarsia dump`: what each stage made of a model, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.run import open_session
from intarsia.cli.show import note, note_feeds, plain, working
from intarsia.errors import UnknownOption, nearest
from intarsia.graph.formats.atomic_write import replace_text
from intarsia.graph.load import load

PROGRAM_STAGES = ("legalized", "schedules", "kernels", "source", "plan")  # what programs describe
STAGES = ("graph", "optimized", "partition", *PROGRAM_STAGES)


def dump_model(
    model: Path, stage: str, providers: Sequence[str], feed_options: FeedOptions, output: Path | None,
    config: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print one stage's result, or write it to a file.

    Raises:
        UnknownOption: there is no such stage.
        IntarsiaError: the model or a provider.
    """
    if stage not in STAGES:
        raise UnknownOption(f"--stage: no stage {stage!r}; {nearest(stage, STAGES)}")
    simple: dict[str, Callable[[], str]] = {
        "graph": lambda: str(load(model)),
        "optimized": lambda: optimized_text(model),
        "partition": lambda: str(open_session(model, providers, config=config)._engine.whole_model().partition),
    }
    text = simple[stage]() if stage in simple else program_text(model, stage, providers, feed_options, config)
    if output:
        replace_text(output, text + "\n")
        note(f"{len(text.splitlines())} lines written to {output}")
    else:
        plain(text)


def optimized_text(model: Path) -> str:
    """The graph after all rewrites, under what each rule did."""
    from intarsia.passes import optimize
    from intarsia.passes.level import GraphOptimizationLevel

    with working(f"optimising {model.name}"):
        result = optimize(load(model), GraphOptimizationLevel.ORT_ENABLE_ALL)
    log = [f"# {rule}: {count} {where}".rstrip() for rule, count, where in result.log]
    return "\n".join([*log, str(result.graph)])


def program_text(
    model: Path, stage: str, providers: Sequence[str], feed_options: FeedOptions, config: Sequence[str] = ()
) -> str:
    """What each part's program says about a stage; a plan is made by running once on inputs of the sizes requested."""
    session = open_session(model, providers, from_cache=False, config=config)
    if stage == "plan":
        with working(f"running {model.name}"):
            feeds = build_feeds(Signature.of_session(session), [], feed_options)
            note_feeds(feeds)
            session.run(None, feeds.arrays)
    compiled = session._engine.whole_model()
    sections = []
    for part, program in zip(compiled.partition.parts, compiled.programs, strict=True):
        text = program.describe(stage) or f"{part.provider.name} has nothing to show for the stage {stage!r}"
        sections.append(f"# {part}\n{text}" if len(compiled.programs) > 1 else text)
    return "\n\n".join(sections)
