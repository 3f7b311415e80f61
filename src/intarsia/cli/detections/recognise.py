"""The outputs of detectors by their shapes, names and values: boxes in pixels of the model's input, and scores by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass

STRIDES = (8, 16, 32)  # of the grids on which YOLO models predict
FINISHED = 1000  # rows of six numbers: fewer are boxes that a model has chosen already
SETTLED = 0.5  # DETR: part of the queries whose most likely class is the last one, "no object"
FORMS = (
    "[batch, boxes, 5 + classes] (YOLOv5, v7, YOLOX), [batch, 4 + classes, boxes] (YOLOv8, 11), [batch, boxes, 6] (YOLOv10, "
    "or with suppression inside), boxes with scores and labels (SSD, torchvision, TensorFlow), boxes with scores by class, "
    "logits with pred_boxes (DETR)"
)


@dataclass(frozen=True)
class Candidates:
    """What one picture's outputs say.

    Attributes:
        boxes: float64 [n, 4], left, top, right, bottom in pixels of the model's input.
        scores: float64 [n, classes].
        chosen: whether boxes that overlap are suppressed already.
    """

    boxes: np.ndarray
    scores: np.ndarray
    chosen: bool = False


Outputs = Mapping[str, np.ndarray]
Size = tuple[int, int]  # width, height


def recognised(outputs: Mapping[str, Any], size: Size, classes: int = 0) -> list[Candidates]:
    """For each picture of a run's batch what was found in it.

    Args:
        outputs: by name, of one run.
        size: width and height of the model's input.
        classes: how many there are, where the model says so; 0: as many as the outputs have.

    Raises:
        InvalidArgument: these are not the outputs of a detector of a known form.
    """
    arrays = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray) and value.dtype.kind in "fiu"}
    for form in _FORMS:
        found = form(arrays, size, classes)
        if found is not None:
            return found
    shapes = ", ".join(f"{name} {list(np.shape(value))}" for name, value in outputs.items())
    raise InvalidArgument(f"--draw: expected a detector's outputs: {FORMS}; got {shapes}")


def _queries(outputs: Outputs, size: Size, _classes: int) -> list[Candidates] | None:
    """DETR and its kin: `logits` [b, q, c] and `pred_boxes` [b, q, 4], centres and sizes as parts of the picture. Where most
    queries say the last class, that is "no object" and logits compete; else each class has its own sigmoid."""
    boxes, logits = _named(outputs, "box", 3), _named(outputs, "logit", 3)
    if boxes is None or logits is None or boxes.shape[-1] != 4 or boxes.shape[:2] != logits.shape[:2]:
        return None
    corners = _corners(boxes) * np.tile(size, 2)
    last = logits.shape[-1] - 1
    if np.mean(logits.argmax(-1) == last) > SETTLED:
        e = np.exp(logits - logits.max(-1, keepdims=True))
        scores = (e / e.sum(-1, keepdims=True))[..., :last]
    else:
        scores = 1 / (1 + np.exp(-logits))
    return [Candidates(b, s) for b, s in zip(corners, scores, strict=True)]


def _finished(outputs: Outputs, size: Size, _classes: int) -> list[Candidates] | None:
    """Boxes with scores and labels: [b, n, 4], [b, n] and [b, n], or without b. TensorFlow's have the top before the left."""
    boxes = _named(outputs, "box", 3, 2)
    if boxes is None or boxes.shape[-1] != 4:
        return None
    alike = {n: v for n, v in outputs.items() if v.shape == boxes.shape[:-1]}
    labels = next((n for n in alike if any(word in n.lower() for word in ("label", "class"))), "")
    labels = labels or next((n for n, v in alike.items() if v.dtype.kind in "iu"), "")
    scores = next((n for n, v in alike.items() if n != labels and v.dtype.kind == "f"), "")
    if not labels or not scores:
        return None
    name = next(n for n, v in outputs.items() if v is boxes)
    corners = np.asarray(boxes, np.float64)
    corners = corners[..., [1, 0, 3, 2]] if name.startswith("detection_boxes") else corners
    corners = _in_pixels(corners, size)
    single = boxes.ndim == 2
    parts = [each[None] if single else each for each in (corners, alike[scores], alike[labels])]
    counts = next((v.reshape(-1).astype(int) for n, v in outputs.items() if n.startswith("num_det")), None)
    found = []
    for i, (b, s, c) in enumerate(zip(*parts, strict=True)):
        n = len(b) if counts is None or len(counts) <= i else int(counts[i])
        found.append(Candidates(b[:n], _one_class(s[:n], c[:n]), chosen=True))
    return found


def _by_class(outputs: Outputs, size: Size, _classes: int) -> list[Candidates] | None:
    """Boxes [b, n, 4] and scores [b, n, c] or [b, c, n], from 0 to 1; a first of two classes, or one that wins nearly
    everywhere, is the background."""
    boxes = _named(outputs, "box", 3)
    if boxes is None or boxes.shape[-1] != 4:
        return None
    count = boxes.shape[1]
    scores = next((v for v in outputs.values() if v is not boxes and v.ndim == 3 and count in v.shape[1:]), None)
    if scores is None or scores.min(initial=0) < 0 or scores.max(initial=0) > 1:
        return None
    scores = np.asarray(scores if scores.shape[1] == count else scores.transpose(0, 2, 1), np.float64)
    background = scores.shape[-1] > 1 and np.mean(scores.argmax(-1) == 0) > SETTLED
    scores = np.where(np.arange(scores.shape[-1]) == 0, 0.0, scores) if background else scores
    return [Candidates(b, s) for b, s in zip(_in_pixels(np.asarray(boxes, np.float64), size), scores, strict=True)]


def _rows_of_seven(outputs: Outputs, _size: Size, _classes: int) -> list[Candidates] | None:
    """[n, 7]: number of the picture, left, top, right, bottom, class, score (YOLOv7 with suppression inside)."""
    found = [v for v in outputs.values() if v.ndim == 2 and v.shape[1] == 7]
    if len(outputs) != 1 or not found:
        return None
    rows = np.asarray(found[0], np.float64)
    count = int(rows[:, 0].max(initial=0)) + 1
    each = (rows[rows[:, 0] == i] for i in range(count))
    return [Candidates(r[:, 1:5], _one_class(r[:, 6], r[:, 5]), chosen=True) for r in each]


def _yolo(outputs: Outputs, size: Size, classes: int) -> list[Candidates] | None:
    """One tensor of predictions [b, n, 5 + c], [b, 4 + c, n] or [b, n, 6]."""
    found = next((v for v in outputs.values() if v.ndim == 3 and v.dtype.kind == "f" and min(v.shape[1:]) > 4), None)
    if found is None:
        return None
    rows = np.asarray(found, np.float64)
    count, width = rows.shape[1:]
    cells = _cells(size)
    if width == 6 and count <= FINISHED and (not len(cells) or count % len(cells)):
        return [Candidates(r[:, :4], _one_class(r[:, 4], r[:, 5]), chosen=True) for r in rows]
    if width > count:  # YOLOv8: numbers first, then boxes
        rows = rows.transpose(0, 2, 1)
        scores = rows[..., 4:][..., : classes or None]
        return [Candidates(b, s) for b, s in zip(_corners(rows[..., :4]), scores, strict=True)]
    boxes = rows[..., :4]
    if count == len(cells):  # YOLOX: places and sizes within cells of the grids
        stride = cells[:, 2:]
        boxes = np.concatenate([(boxes[..., :2] + cells[:, :2]) * stride, np.exp(boxes[..., 2:]) * stride], -1)
    scores = rows[..., 4:5] * (rows[..., 5:][..., : classes or None] if width > 5 else 1.0)
    return [Candidates(b, s) for b, s in zip(_corners(boxes), scores, strict=True)]


Form = Callable[[Outputs, Size, int], list[Candidates] | None]
_FORMS: Sequence[Form] = (_queries, _finished, _by_class, _rows_of_seven, _yolo)


def _named(outputs: Outputs, word: str, *ranks: int) -> np.ndarray | None:
    return next((v for n, v in outputs.items() if word in n.lower() and v.ndim in ranks and v.dtype.kind == "f"), None)


def _cells(size: Size) -> np.ndarray:
    """[n, 3]: column, row and stride of each cell of the grids, finest first."""
    width, height = size
    grids = []
    for stride in STRIDES:
        y, x = np.mgrid[: height // stride, : width // stride]
        grids.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], 1))
    return np.concatenate(grids) if grids else np.zeros((0, 3))


def _corners(boxes: np.ndarray) -> np.ndarray:
    """Centres and sizes as corners."""
    boxes = np.asarray(boxes, np.float64)
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)


def _in_pixels(boxes: np.ndarray, size: Size) -> np.ndarray:
    """Boxes that are parts of the picture are from 0 to 1, or not far beyond."""
    return boxes * np.tile(size, 2) if np.abs(boxes).max(initial=0) <= 2 else boxes


def _one_class(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Scores by class, of boxes that have one class each."""
    numbers = np.asarray(classes).astype(int)
    table = np.zeros((len(numbers), int(numbers.max(initial=0)) + 1))
    table[np.arange(len(numbers)), np.clip(numbers, 0, None)] = scores
    return table
