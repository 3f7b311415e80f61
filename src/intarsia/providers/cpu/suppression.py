"""NonMaxSuppression by a kernel: its output's size depends on data, so that it is called from a host step."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.codegen import suppression as template
from intarsia.codegen.engine import get_engine
from intarsia.codegen.target import Target
from intarsia.graph.model import Node
from intarsia.ops.detection import box_areas, box_corners, suppression_limits


def non_max_suppression(node: Node, inputs: Sequence[Any], target: Target) -> list[Any]:
    """boxes [batch, n, 4], scores [batch, classes, n], limits -> [selected, 3]: batch, class, box."""
    boxes, scores, *rest = inputs
    limit, overlap, least = suppression_limits(*rest)
    batches, classes, n = scores.shape
    limit = min(limit, n)
    if limit <= 0 or not classes:
        return [np.zeros((0, 3), np.int64)]
    call, center = _kernel(target), int(node.attributes.get("center_point_box", 0))
    scores = np.ascontiguousarray(scores, np.float32)
    chosen, counts = np.empty((classes, limit), np.int64), np.empty(classes, np.int64)
    heap, kept = np.empty(n, np.int64), np.zeros((5, limit + template.PADDING), np.float32)
    limits = np.array([overlap, 0 if least is None else least], np.float32)
    found = []
    for batch in range(batches):
        corners = np.ascontiguousarray(box_corners(boxes[batch].astype(np.float32), center))
        areas = np.ascontiguousarray(box_areas(corners))
        arrays = {
            "corners": corners, "areas": areas, "scores": scores[batch], "chosen": chosen, "counts": counts, "heap": heap,
            "kept": kept, "limits": limits,
        }  # fmt: skip
        sizes = {"boxes": n, "classes": classes, "limit": limit, "filtered": int(least is not None)}
        args = np.array([arrays[f].ctypes.data if f in arrays else sizes[f] for f in template.FIELDS], np.int64)
        call(args.ctypes.data, 0, 1)
        labels, places = np.nonzero(np.arange(limit) < counts[:, None])
        found.append(np.stack([np.full(len(labels), batch), labels, chosen[labels, places]], 1))
    return [np.concatenate(found) if found else np.zeros((0, 3), np.int64)]


@functools.lru_cache(maxsize=8)
def _kernel(target: Target) -> Any:
    text = template.kernel_text(target)
    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
