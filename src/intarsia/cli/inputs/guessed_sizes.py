"""Sizes of open dimensions that nobody gave: those that such inputs usually have, so that a time means something."""

from __future__ import annotations

import re
from collections.abc import Collection

from intarsia.cli.inputs.input_info import InputInfo, element_type, picture_axes
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass

PICTURE, DENSE_PICTURE, TEXT_LINE, TEXT, SAMPLES, FRAMES = 224, 640, 320, 128, 16000, 100
_PAST = re.compile(r"past|cache", re.IGNORECASE)
_TOKENS = re.compile(r"seq|token|len|text|word|ctx|context|past", re.IGNORECASE)
_BATCH = re.compile(r"(^|_)(batch\w*|bs|n)$|^batch", re.IGNORECASE)
_SAMPLES = re.compile(r"sample|audio|wav|signal", re.IGNORECASE)
_FRAMES = re.compile(r"frame|time|^t$", re.IGNORECASE)


@dataclass(frozen=True)
class Guesses:
    """What helps guessing.

    Attributes:
        dense: whether outputs are as large as pictures or lists of boxes: detectors and segmentation are made for large
            pictures, classifiers for small ones.
        picture_size: height and width that the model's metadata names.
    """

    dense: bool = False
    picture_size: tuple[int, int] | None = None

    def size(self, info: InputInfo, axis: int, name: str, names: Collection[str]) -> int:
        """A usual size of dimension `axis` of an input. `name`: what it is called; `names`: all dimensions of the model."""
        if _BATCH.search(name) or (axis == 0 and len(info.shape) > 1 and not _TOKENS.search(name)):
            return 1
        if _is_of_pictures(info) and (axes := picture_axes(info)) is not None:
            return self._of_picture(info, axis, axes)
        if _PAST.search(name) or (_PAST.search(info.name) and _TOKENS.search(name)):
            return TEXT
        if _is_of_tokens(info, axis, name):
            return 1 if any(map(_PAST.search, names)) else TEXT  # a step of a decoder
        return _of_signal(info, axis, name)

    def _of_picture(self, info: InputInfo, axis: int, axes: tuple[int, int, int]) -> int:
        channels, height, width = axes
        if axis == channels:
            return 3
        if self.picture_size is not None:
            return self.picture_size[axis == width]
        other = info.shape[width if axis == height else height]
        if isinstance(other, int):
            return TEXT_LINE if axis == width and other <= 64 else other
        return DENSE_PICTURE if self.dense else PICTURE


def _is_of_pictures(info: InputInfo) -> bool:
    return len(info.shape) == 4 and not _PAST.search(info.name) and picture_axes(info) is not None


def _is_of_tokens(info: InputInfo, axis: int, name: str) -> bool:
    if _TOKENS.search(name):
        return True
    try:
        whole = element_type(info).is_integer
    except InvalidArgument:
        return False
    return whole and len(info.shape) == 2 and axis == 1


def _of_signal(info: InputInfo, axis: int, name: str) -> int:
    if _SAMPLES.search(name) or (len(info.shape) == 2 and axis == 1 and _SAMPLES.search(info.name)):
        return SAMPLES
    if _FRAMES.search(name) or (len(info.shape) == 3 and axis > 0):
        return FRAMES
    return 1
