"""Pictures as a model wants them: size, layout, order of channels, range of numbers."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.cli.inputs.input_info import InputInfo, element_type, picture_axes
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"))
FITS = ("stretch", "letterbox", "crop")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_CROPPED = 0.875  # part of a picture's shorter side that "crop" takes: 224 of 256
_LETTERBOX = 114  # grey, as the detectors that want letterboxes were trained with


@dataclass(frozen=True)
class Preprocessing:
    """How the pixels of a picture become an input's numbers.

    Attributes:
        mean, std: numbers are (pixel / 255 - mean) / std, by channel; one number serves all channels. Inputs of integers get
            the pixels.
        scale: what pixels are divided by first; 1 leaves them from 0 to 255.
        fit: "stretch" to the input's height and width; "letterbox": as large as fits, in the middle of grey; "crop": the
            middle of the picture, of which the shorter side is 8/7 of the input's.
        bgr: whether blue is the first channel.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 255.0
    fit: str = "stretch"
    bgr: bool = False


_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PRESETS: dict[str, dict[str, Any]] = {
    "unit": {},
    "raw": {"scale": 1.0},
    "imagenet": {**_IMAGENET, "fit": "crop"},
    "inception": {"mean": (0.5,), "std": (0.5,), "fit": "crop"},
    "clip": {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711), "fit": "crop"},
    "yolo": {"fit": "letterbox"},
    "caffe": {"mean": (103.939, 116.779, 123.68), "scale": 1.0, "bgr": True, "fit": "crop"},
}
"""Normalisations by the name under which people know them.

Sources: torchvision's weights ("imagenet"), TensorFlow's slim models ("inception"), OpenAI's CLIP ("clip"), Ultralytics'
exports ("yolo"), the VGG networks of 2014 ("caffe")."""


def preprocessing(preset: str, given: Mapping[str, Any], metadata: Mapping[str, str]) -> Preprocessing:
    """What a preset, single options (those that are not None count before the preset) and the model's metadata ask for.

    Args:
        preset: one of `PRESETS`; "" goes by the model's metadata: exports of Ultralytics' want what "yolo" says.

    Raises:
        UnknownOption: no such preset or fit.
        InvalidArgument: a mean or std that does not fit three channels.
    """
    if preset and preset not in PRESETS:
        raise UnknownOption(f"--preset: no preset {preset!r}; {nearest(preset, PRESETS)}")
    name = preset or ("yolo" if is_of_ultralytics(metadata) else "unit")
    options = {**PRESETS[name], **{key: value for key, value in given.items() if value is not None}}
    if options.get("fit", "stretch") not in FITS:
        raise UnknownOption(f"--fit: no way {options['fit']!r} to fit a picture; {nearest(options['fit'], FITS)}")
    if any(std == 0 for std in options.get("std", ())):
        raise InvalidArgument("--std: expected numbers that are not 0")
    return Preprocessing(**options)


def is_of_ultralytics(metadata: Mapping[str, str]) -> bool:
    """Whether a model says that Ultralytics' exporter wrote it: by the keys of its metadata."""
    return {"stride", "task", "names"} <= metadata.keys()


def size_in_metadata(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Height and width that the metadata names (`imgsz` of Ultralytics' exports, such as "[640, 640]")."""
    found = _literal(metadata.get("imgsz", ""))
    if isinstance(found, list) and len(found) == 2 and all(isinstance(x, int) and 0 < x < 1 << 14 for x in found):
        return found[0], found[1]
    return None


def labels_in_metadata(metadata: Mapping[str, str]) -> list[str]:
    """Names of classes that the metadata names (`names` of Ultralytics' exports: {0: 'person', 1: 'bicycle'})."""
    found = _literal(metadata.get("names", ""))
    if not isinstance(found, dict) or not all(isinstance(k, int) and 0 <= k < 1 << 20 for k in found):
        return []
    return [str(found.get(i, i)) for i in range(max(found, default=-1) + 1)]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text) if text and len(text) < 1 << 20 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def read_picture(path: Path, info: InputInfo, sizes: list[int | None], how: Preprocessing) -> np.ndarray:
    """A picture as the input wants it, with one picture along the first axis where it has four.

    Args:
        sizes: the input's sizes as far as they are known; a height or width that is not known is the picture's.

    Raises:
        InvalidArgument: the input is no picture, or the file is none.
    """
    axes = picture_axes(info)
    if axes is None:
        raise InvalidArgument(f"input {info.name!r} of shape {list(info.shape)} is no picture: expected 1, 3 or 4 channels")
    channels, height, width = (sizes[axis] for axis in axes)
    picture = opened_picture(path, f"input {info.name!r}").convert(_MODES[channels or 3])
    size = (width or picture.width, height or picture.height)
    pixels = np.asarray(_FITTED[how.fit](picture, size)).reshape(size[1], size[0], -1)
    if how.bgr and pixels.shape[-1] == 3:
        pixels = pixels[..., ::-1]
    dtype = element_type(info)
    if dtype.is_floating:
        pixels = (pixels / how.scale - np.asarray(how.mean)) / np.asarray(how.std)
    array = pixels.transpose(2, 0, 1) if axes[0] < axes[1] else pixels
    return np.ascontiguousarray(array[None] if len(info.shape) == 4 else array).astype(dtype.numpy)


def opened_picture(path: Path, where: str) -> Image:
    """A picture as people see it; `where` is what wants it, for errors.

    Raises:
        InvalidArgument: it cannot be read.
    """
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as error:
        raise InvalidArgument("reading pictures needs Pillow: pip install 'intarsia[cli]'") from error
    try:
        with Image.open(path) as file:
            file.load()
            return ImageOps.exif_transpose(file)  # as people see it: cameras store pictures lying on their side
    except FileNotFoundError:
        raise InvalidArgument(f"{where}: the picture {str(path)!r} does not exist") from None
    except (OSError, Image.DecompressionBombError) as error:
        raise InvalidArgument(f"{where}: cannot read the picture {str(path)!r}: {error}") from error


@dataclass(frozen=True)
class Placement:
    """Where a model's input lies in the picture it was made of: x and y of the picture are those of the input times `scale`
    and plus `offset`, each of two numbers."""

    scale: tuple[float, float]
    offset: tuple[float, float]


def placement(fit: str, picture: tuple[int, int], size: tuple[int, int]) -> Placement:
    """Of a picture that was made to fit an input; both sizes are (width, height)."""
    if fit == "letterbox":
        part = min(size[0] / picture[0], size[1] / picture[1])
        inner = (max(1, round(picture[0] * part)), max(1, round(picture[1] * part)))
        scale = (picture[0] / inner[0], picture[1] / inner[1])
        left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
        return Placement(scale, (-left * scale[0], -top * scale[1]))
    if fit == "crop":
        part = _CROPPED * min(picture[0] / size[0], picture[1] / size[1])
        width, height = size[0] * part, size[1] * part
        return Placement((part, part), ((picture[0] - width) / 2, (picture[1] - height) / 2))
    return Placement((picture[0] / size[0], picture[1] / size[1]), (0.0, 0.0))


def _stretched(picture: Image, size: tuple[int, int]) -> Image:
    return picture.resize(size)


def _letterboxed(picture: Image, size: tuple[int, int]) -> Image:
    from PIL import Image

    part = min(size[0] / picture.width, size[1] / picture.height)
    inner = (max(1, round(picture.width * part)), max(1, round(picture.height * part)))
    grey = tuple([_LETTERBOX] * len(picture.getbands())) if len(picture.getbands()) > 1 else _LETTERBOX
    out = Image.new(picture.mode, size, grey)
    out.paste(picture.resize(inner), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return out


def _cropped(picture: Image, size: tuple[int, int]) -> Image:
    part = _CROPPED * min(picture.width / size[0], picture.height / size[1])
    width, height = size[0] * part, size[1] * part
    left, top = (picture.width - width) / 2, (picture.height - height) / 2
    return picture.resize(size, box=(left, top, left + width, top + height))


_FITTED = {"stretch": _stretched, "letterbox": _letterboxed, "crop": _cropped}
