"""`intarsia run --draw`: what a detector found, as a table and in pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.detections.draw import draw, in_picture, name_of, targets
from intarsia.cli.detections.recognise import Candidates, Size, recognised
from intarsia.cli.detections.suppress import Found, Limits, best
from intarsia.cli.inputs.feeds import Feeds
from intarsia.cli.inputs.input_info import picture_axes
from intarsia.cli.inputs.pictures import opened_picture, placement
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.show import note, table
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass

_NUMBERS = ("score", "left", "top", "right", "bottom")


@dataclass(frozen=True)
class Drawing:
    """Where pictures go (`files`: read, written), names of classes, and what counts."""

    files: Sequence[tuple[str, Path]]
    labels: Sequence[str]
    limits: Limits


def files_to_draw(feeds: Feeds, path: Path) -> list[tuple[str, Path]]:
    """Each picture that was given, and where it goes with its boxes.

    Raises:
        InvalidArgument: no input is a picture, or `path` does not fit them.
    """
    given = next(iter(feeds.pictures.values()), None)
    if given is None:
        raise InvalidArgument("--draw: no input is a picture; give one with --input photo.jpg")
    return list(zip(given, targets(path, given), strict=True))


def show_detections(signature: Signature, feeds: Feeds, rounds: Sequence[Mapping[str, Any]], drawing: Drawing) -> None:
    """Print what was found in each picture, and draw it. `rounds`: outputs of each run by name.

    Raises:
        InvalidArgument: the outputs are of no detector that is known.
        NotWritten: a picture cannot be written.
    """
    name = next(iter(feeds.pictures))
    size, at_once = _input_size(signature, name, feeds.arrays[name]), len(feeds.arrays[name]) // len(rounds)
    candidates = _by_picture(rounds, size, len(drawing.labels), at_once)
    for (file, to), each in zip(drawing.files, candidates, strict=False):
        picture = opened_picture(Path(file), "--draw").size
        found = in_picture(best(each, drawing.limits), picture, placement(feeds.fit, picture, size))
        _print(file, found, drawing.labels)
        draw(file, found, drawing.labels, to)
        note(f"written to {to}")


def _input_size(signature: Signature, name: str, array: np.ndarray) -> Size:
    info = next(info for info in signature.inputs if info.name == name)
    axes = picture_axes(info)
    assert axes is not None  # else no picture could have been read
    return array.shape[axes[2]], array.shape[axes[1]]


def _by_picture(rounds: Sequence[Mapping[str, Any]], size: Size, classes: int, at_once: int) -> Iterator[Candidates]:
    nothing = Candidates(np.zeros((0, 4)), np.zeros((0, 1)), chosen=True)
    for outputs in rounds:
        found = recognised(outputs, size, classes)
        yield from (found + [nothing] * at_once)[:at_once]


def _print(file: str, found: Sequence[Found], labels: Sequence[str]) -> None:
    rows = [(name_of(f.label, labels), f"{f.score:.3f}", *(f"{value:.0f}" for value in f.box)) for f in found]
    if rows:
        table(f"{file}: {len(rows)} found", ("class", *_NUMBERS), rows, _NUMBERS)
    else:
        note(f"{file}: nothing found; --score lowers the least score of what counts")
