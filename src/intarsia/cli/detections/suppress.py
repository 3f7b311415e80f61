"""Of boxes that overlap the best, by ONNX's NonMaxSuppression on the CPU provider."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from intarsia.cli.detections.recognise import Candidates
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import intarsia

MOST = 1000  # boxes of a class


@dataclass(frozen=True)
class Found:
    """Something in a picture: its class, how sure the model is, and left, top, right, bottom."""

    label: int
    score: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Limits:
    """Boxes of a lower score are left out, and of two of a class that share more than `iou` of their union the lower one."""

    score: float = 0.25
    iou: float = 0.45


def best(candidates: Candidates, limits: Limits) -> list[Found]:
    """What is left, the surest first."""
    boxes, scores = candidates.boxes, candidates.scores
    likely = np.flatnonzero((scores >= limits.score).any(1))
    boxes, scores = boxes[likely], scores[likely]
    if not len(boxes):
        return []
    if candidates.chosen:
        pairs = np.argwhere(scores >= limits.score)
    else:
        feed = {
            "boxes": boxes[None].astype(np.float32), "scores": scores.T[None].astype(np.float32),
            "most": np.array([MOST]), "iou": np.array([limits.iou], np.float32),
            "score": np.array([np.nextafter(np.float32(limits.score), np.float32(-1))], np.float32),
        }  # fmt: skip
        (chosen,) = _session().run(None, feed)
        pairs = chosen[:, [2, 1]]
    corners = {int(i): (float(a), float(b), float(c), float(d)) for i in pairs[:, 0] for a, b, c, d in [boxes[i]]}
    found = [Found(int(c), float(scores[i, c]), corners[int(i)]) for i, c in pairs]
    return sorted(found, key=lambda each: -each.score)


@cache
def _session() -> intarsia.InferenceSession:
    import onnx.parser

    import intarsia

    text = """<ir_version: 8, opset_import: ["": 11]>
        g (float[b, n, 4] boxes, float[b, c, n] scores, int64[1] most, float[1] iou, float[1] score) => (int64[k, 3] chosen) {
            chosen = NonMaxSuppression(boxes, scores, most, iou, score)
        }"""
    return intarsia.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
