"""`intarsia run`: one run of a model, its outputs shown or written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rich.markup import escape

import intarsia
from intarsia.cli.detections.suppress import Limits
from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.pictures import SUFFIXES, labels_in_metadata
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.show import compiling, describe_value, format_value, note, note_feeds, screen, top_scores, working
from intarsia.errors import InvalidArgument
from intarsia.graph.formats.atomic_write import not_written, replace_file, replace_files
from intarsia.lazy_dataclass import dataclass
from intarsia.model import background_compile
from intarsia.printable import file_name


@dataclass(frozen=True)
class OutputOptions:
    """What to do with outputs: show the `top` largest scores with names from `labels`, write them to `path`, draw what a
    detector found to `draw`, within `limits`."""

    top: int = 0
    labels: Path | None = None
    path: Path | None = None
    draw: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Raises InvalidArgument where a picture is to have the outputs' numbers."""
        if self.path is not None and self.path.suffix.lower() in SUFFIXES:
            raise InvalidArgument(f"--output writes numbers: FILE.npz or a folder; --draw {self.path} draws what was found")


def open_session(
    model: Path, providers: Sequence[str], threads: int = 0, *, from_cache: bool = True, config: Sequence[str] = (),
    untrusted: bool = False, waits: bool = True,
) -> intarsia.InferenceSession:  # fmt: skip
    """A session of the model; warns on the error stream while it takes its time.

    Args:
        from_cache: a warm start will do.
        config: configuration entries, KEY=VALUE.
        untrusted: as `SessionOptions.untrusted`.
        waits: for the tuned tier, unless the entries say otherwise.

    Raises:
        IntarsiaError: the model, a provider, or an entry.
    """
    options = session_options(threads, config)
    options.untrusted = untrusted
    if waits and background_compile.KEY not in options.config_entries():
        options.add_session_config_entry(background_compile.KEY, "0")
    if not from_cache:
        options.add_session_config_entry("session.cache_weights_mib", "0")
    with compiling(options, f"compiling {model.name}"):
        return intarsia.InferenceSession(str(model), options, providers=list(providers) or ["CPUExecutionProvider"])


def session_options(threads: int, config: Sequence[str] = ()) -> intarsia.SessionOptions:
    """Options with configuration entries; `threads` 0 leaves the choice to the session.

    Raises:
        InvalidArgument: an entry is not KEY=VALUE, or has a value that its key does not take.
    """
    options = intarsia.SessionOptions()
    options.intra_op_num_threads = threads
    for entry in config:
        key, equals, value = entry.partition("=")
        if not equals:
            raise InvalidArgument(f"--config: expected KEY=VALUE, such as session.arithmetic=bfloat16; got {entry!r}")
        options.add_session_config_entry(key.strip(), value.strip())
    return options


def run_model(
    model: Path, specs: Sequence[str], providers: Sequence[str], feed_options: FeedOptions, threads: int, show: OutputOptions,
    config: Sequence[str] = (), *, untrusted: bool = False,
) -> None:  # fmt: skip
    """Run the model once on inputs made from `specs` and show or write what it answers.

    Raises:
        IntarsiaError: the model, an option or the run.
    """
    show.check()
    session = open_session(model, providers, threads, config=config, untrusted=untrusted, waits=False)
    signature = Signature.of_session(session)
    labels = read_labels(show.labels) if show.labels else labels_in_metadata(signature.metadata)
    feeds = build_feeds(signature, specs, feed_options)
    note_feeds(feeds)
    if show.draw is not None:
        from intarsia.cli.detections.show import Drawing, files_to_draw, show_detections

        files = files_to_draw(feeds, show.draw)
    with working(f"running {model.name}"):
        values = [session.run(None, feed) for feed in feeds.each_round()]
    names = [info.name for info in session.get_outputs()]
    outputs = {name: _joined(parts) for name, parts in zip(names, zip(*values, strict=True), strict=True)}
    if show.draw is not None:
        rounds = [dict(zip(names, each, strict=True)) for each in values]
        show_detections(signature, feeds, rounds, Drawing(files, labels, show.limits))
    else:
        for name, value in outputs.items():
            show_output(name, value, show.top, labels)
    if show.path:
        write_outputs(outputs, show.path)
        note(f"written to {show.path}")


def _joined(parts: Sequence[Any]) -> Any:
    """The output of one run, or of several after one another along the first axis: a list where that cannot be."""
    first = parts[0]
    if len(parts) == 1:
        return first
    alike = all(isinstance(x, np.ndarray) and x.ndim and x.shape[1:] == np.shape(first)[1:] for x in parts)
    return np.concatenate(parts) if alike else list(parts)


def show_output(name: str, value: Any, top: int, labels: Sequence[str]) -> None:
    """Print one output: its kind, and its values or the largest scores."""
    screen.print(f"[bold]{escape(name)}[/]  {escape(describe_value(value))}", highlight=False)
    scores = isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype.kind in "fiu" and value.size > 0
    if not (top and scores):
        screen.print(escape(format_value(value)), highlight=False)
        return
    for i, row in enumerate(top_scores(value, top, labels)):
        width = max(len(label) for label, _ in row)
        prefix = f"[{i}] " if value.size > value.shape[-1] else ""
        for label, score in row:
            screen.print(escape(f"  {prefix}{label:<{width}}  {score:.5g}"), highlight=False)


def read_labels(path: Path) -> list[str]:
    """Class names from a JSON list or a text file with one a line.

    Raises:
        InvalidArgument: the file cannot be read, is no text in UTF-8, or ends in .json and is no JSON list.
    """
    try:
        text = path.read_text(encoding="utf-8")
        names = json.loads(text) if path.suffix == ".json" else text.splitlines()
    except OSError as error:
        raise InvalidArgument(f"--labels: cannot read {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        kind = "JSON list" if path.suffix == ".json" else "text file in UTF-8"
        raise InvalidArgument(f"--labels: expected a {kind} in {str(path)!r}: {error}") from error
    if not isinstance(names, list):
        raise InvalidArgument(f"--labels: expected a JSON list in {str(path)!r}; got {type(names).__name__}")
    return [str(name) for name in names]


def write_outputs(outputs: Mapping[str, Any], path: Path) -> None:
    """Write tensors to one .npz, or to a folder with a .npy for each.

    Raises:
        InvalidArgument: an output is no tensor.
        NotWritten: a file cannot be written; no others are replaced then.
    """
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise InvalidArgument(f"--output: {name!r} is a {type(value).__name__}; only tensors can be written")
    if path.suffix == ".npz":
        replace_file(path, lambda file: np.savez(file, **outputs))
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(path, error) from error
    replace_files([(path / f"{file_name(name)}.npy", partial(_write_array, value)) for name, value in outputs.items()])


def _write_array(array: np.ndarray, file: BinaryIO) -> None:
    np.save(file, array)
