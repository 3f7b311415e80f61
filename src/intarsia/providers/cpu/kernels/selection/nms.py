"""NonMaxSuppression by a kernel: its output's size depends on data, so that it is called from a host step."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.codegen.llvm.jit import get_engine
from intarsia.codegen.llvm.target import Target
from intarsia.graph.model import Node
from intarsia.ops.nn.detection import suppression_limits
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.kernels.selection import nms_kernel as template


def non_max_suppression(node: Node, inputs: Sequence[Any], target: Target) -> list[Any] | None:
    """boxes [batch, n, 4], scores [batch, classes, n], limits -> [selected, 3]: batch, class, box."""
    boxes, scores, *rest = inputs
    limit, overlap, least = suppression_limits(*rest)
    batches, classes, n = scores.shape
    limit = min(limit, n)
    if limit <= 0 or not classes:
        return [np.zeros((0, 3), np.int64)]
    scores, boxes = np.ascontiguousarray(scores, np.float32), np.ascontiguousarray(boxes, np.float32)
    if boxes.shape != (batches, n, 4):
        return None
    chosen, heap = np.empty((batches * classes * limit, 3), np.int64), np.empty(n, np.int64)
    scratch = np.zeros((5, limit + template.PADDING), np.float32)
    corners, limits = np.empty((5, n), np.float32), array("f", (float(overlap), 0.0 if least is None else float(least)))
    count, at = array("q", (0,)), address_of(corners)
    args = array(
        "q",
        (
            address_of(boxes), address_of(scores), address_of(chosen), count.buffer_info()[0], at, at + 16 * n,
            address_of(heap), address_of(scratch), limits.buffer_info()[0], batches, classes, n, limit, int(least is not None),
            int(bool(node.attributes.get("center_point_box", 0))),
        ),
    )  # fmt: skip
    _kernel(target)(args.buffer_info()[0], 0, 1)
    return [chosen[: count[0]].copy()]


@functools.lru_cache(maxsize=8)
def _kernel(target: Target) -> Any:
    text = template.kernel_text(target)
    address = get_engine(target).load([text])[text.symbol]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
