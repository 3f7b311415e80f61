"""Boxes in pictures: back from a model's input to the picture as it was, and drawn."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intarsia.cli.detections.recognise import Size
from intarsia.cli.detections.suppress import Found
from intarsia.cli.inputs.pictures import SUFFIXES, Placement, opened_picture
from intarsia.errors import InvalidArgument
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.printable import visible


def in_picture(found: Sequence[Found], picture: Size, placement: Placement) -> list[Found]:
    """With boxes in pixels of the picture, within its edges."""
    made = []
    for each in found:
        corners = np.asarray(each.box).reshape(2, 2) * placement.scale + placement.offset
        left, top, right, bottom = np.clip(corners, 0, picture).ravel().tolist()
        made.append(Found(each.label, each.score, (left, top, right, bottom)))
    return made


def targets(path: Path, pictures: Sequence[str]) -> list[Path]:
    """Where each picture goes: to a file, or into a folder under its own name.

    Raises:
        InvalidArgument: several pictures and one file, or a name that is no picture's.
    """
    if path.suffix.lower() in SUFFIXES:
        if len(pictures) > 1:
            raise InvalidArgument(f"--draw: {len(pictures)} pictures need a folder; got the file {str(path)!r}")
        return [path]
    if path.suffix and not path.is_dir():
        raise InvalidArgument(f"--draw: expected a picture ({', '.join(sorted(SUFFIXES))}) or a folder; got {str(path)!r}")
    path.mkdir(parents=True, exist_ok=True)
    return [path / Path(picture).name for picture in pictures]


def draw(picture: str, found: Sequence[Found], labels: Sequence[str], target: Path) -> None:
    """Write the picture with boxes, labels and scores.

    Raises:
        InvalidArgument: the picture cannot be read.
        NotWritten: the target cannot be written.
    """
    from PIL import ImageDraw, ImageFont

    image = opened_picture(Path(picture), "--draw").convert("RGB")
    pen = ImageDraw.Draw(image)
    shorter = min(image.size)
    width, font = max(2, round(shorter / 250)), ImageFont.load_default(max(12, shorter / 36))
    for each in reversed(found):  # the surest last, above the others
        colour = _colour(each.label)
        pen.rectangle(each.box, outline=colour, width=width)
        text = f"{name_of(each.label, labels)} {each.score:.2f}"
        left, top = each.box[0], each.box[1]
        _, _, right, bottom = pen.textbbox((0, 0), text, font=font)
        top = top - bottom - 4 if top >= bottom + 4 else top + width
        left = max(0.0, min(left, image.width - right - 6))
        pen.rectangle((left, top, left + right + 6, top + bottom + 4), fill=colour)
        pen.text((left + 3, top + 1), text, fill="black" if _is_light(colour) else "white", font=font)
    data = io.BytesIO()
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF"}.get(target.suffix.lower(), target.suffix[1:].upper())
    image.save(data, format=kind)
    replace_file(target, lambda file: file.write(data.getvalue()))


def name_of(label: int, labels: Sequence[str]) -> str:
    """A class's name, else its number."""
    return visible(labels[label]) if 0 <= label < len(labels) else str(label)


def _is_light(colour: tuple[int, int, int]) -> bool:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140


def _colour(label: int) -> tuple[int, int, int]:
    """Neighbouring classes differ."""
    red, green, blue = colorsys.hsv_to_rgb((label * 0.381966) % 1.0, 0.75, 0.9)
    return round(red * 255), round(green * 255), round(blue * 255)
