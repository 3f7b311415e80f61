"""NonMaxSuppression: one box of every class and batch at a time, until none is left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from intarsia.codegen.clike.loop_steps import Write
from intarsia.graph.dims import Dim, fresh_symbol, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.framework.registry import OpRecord
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.counted import compacted
from intarsia.providers.gpu.decompositions.registry import DOMAIN, add

if TYPE_CHECKING:
    from intarsia.providers.gpu.binder import Scope

_STEPS = 64  # between two looks at whether a box is left


def _suppressed_type(
    boxes: TensorType, scores: TensorType, max_output_boxes_per_class: Any = None, iou_threshold: Any = None,
    score_threshold: Any = None, *, center_point_box: int = 0,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    return TensorType(DType.INT64, (fresh_symbol("boxes"), 3)), TensorType(DType.INT64, (1,))


add(OpRecord(DOMAIN, "Suppress", 1, _suppressed_type, True, _suppressed_type, ("max_output_boxes_per_class",)))


def lower_suppress(scope: Scope, node: Node) -> None:
    """[room, 3] batch, class and box of each that is selected, and how many are."""
    names = [*node.inputs, *[""] * (5 - len(node.inputs))]
    boxes, scores, overlap, least = (scope.value(n) if n else None for n in (names[0], names[1], names[3], names[4]))
    assert boxes is not None and scores is not None
    number = scope.number(names[2]) if names[2] else None
    batch, classes, count = numbers_of(scores.shape)
    limit = min(max(int(number.reshape(-1)[0]), 0), count) if number is not None else 0
    work, cut = scope.work, scope.cut
    places, length = node.outputs
    if not limit or not batch or not classes:
        scope.give(places, k.full((0, 3), 0, DType.INT64))
        scope.give(length, k.full((1,), 0, DType.INT64))
        return
    corners = cut.store(cut.settle(_corners(k.cast(boxes, DType.FLOAT), node.attributes.get("center_point_box", 0))))
    wide = k.cast(scores, DType.FLOAT)
    ranking = k.select(k.unary("isnan", wide), -math.inf, wide)  # NaN is behind all others
    order = cut.store(cut.settle(k.sort(ranking, 2, True)[1]))
    ranked = cut.store(cut.settle(_taken(wide, order)))
    alive = k.full(ranked.shape, True, DType.BOOL)
    if least is not None:
        alive = k.cast(k.reshape(least, ()), DType.FLOAT) < ranked
    left = work.filled(k.cast(alive, DType.INT32))
    steps = -(-limit // _STEPS) * _STEPS
    chosen = work.filled(k.full((steps, batch, classes), -1, DType.INT32))
    threshold = k.scalar(0.0, DType.FLOAT) if overlap is None else k.cast(k.reshape(overlap, ()), DType.FLOAT)
    counter = work.counter()
    some = work.room(DType.BOOL, ())
    outer = work.region(count=steps // _STEPS, condition=str(some.attrs[0]))
    inner = work.region(count=_STEPS)
    best = cut.store(cut.settle(k.arg_reduce(left, "max", 2)))
    any_left = cut.store(cut.settle(k.reduce_max(left, [2])))
    taken = k.select(k.equal(any_left, 1), k.cast(_at(order, best), DType.INT32), -1)
    rows = batch * classes
    cut.launch_step([Write(cut.settle(taken), steps * rows, counter, rows)], [chosen.attrs[0]])
    disjoint = _overlaps(corners, order, best, threshold)
    here = k.equal(k.iota(left.shape, 2), k.expand_dims(best, [2]))
    stays = k.binary("and", k.binary("and", k.equal(left, 1), disjoint), k.unary("not", here))
    remaining = cut.store(cut.settle(k.cast(stays, DType.INT32)))
    cut.launch_step([Write(remaining, rows * count, in_place=left.attrs[0])], [left.attrs[0]])
    cut.launch_step([Write(counter + 1, 1, in_place=counter.attrs[0])], [counter.attrs[0]])
    inner.stop = len(cut.jobs)
    work.fill(some, k.reduce(k.equal(left, 1), "any", [0, 1, 2]))
    outer.stop = len(cut.jobs)
    _give(scope, node, k.strided_slice(chosen, [0, 0, 0], [1, 1, 1], (limit, batch, classes)))


def _give(scope: Scope, node: Node, chosen: Tensor) -> None:
    """Those of [limit, batch, classes] that are no -1, batches and classes first."""
    flat = k.transpose(chosen, (1, 2, 0))
    total = product(flat.shape)
    boxes = scope.cut.store(scope.cut.settle(k.reshape(flat, (total,))))
    found, count = compacted(boxes >= 0)
    found = scope.cut.store(scope.cut.settle(k.strided_slice(found, [0], [1], (total,))))
    classes, limit = numbers_of(flat.shape[1:])
    box = k.take(k.cast(boxes, DType.INT64), found, 0)
    columns = [found / (classes * limit), k.binary("mod", found / limit, classes), box]
    scope.give(node.outputs[0], k.concat([k.expand_dims(c, [1]) for c in columns], 1))
    scope.give(node.outputs[1], count)


def _corners(boxes: Tensor, center: int) -> Tensor:
    """[batch, boxes, 4]: y1, x1, y2, x2 with the lower ones first."""
    parts = [k.strided_slice(boxes, [0, 0, i], [1, 1, 1], (*boxes.shape[:2], 1)) for i in range(4)]
    if center:
        x, y, width, height = parts
        sides = [y - height / 2.0, x - width / 2.0, y + height / 2.0, x + width / 2.0]
    else:
        sides = [f(parts[i], parts[i + 2]) for f in (k.minimum, k.maximum) for i in range(2)]
    return k.concat(sides, 2)


def _places(shape: tuple[Dim, ...]) -> list[Tensor]:
    return [k.iota(shape, i) for i in range(len(shape))]


def _taken(x: Tensor, order: Tensor) -> Tensor:
    """x along its last axis in another order."""
    batch, label, _ = _places(x.shape)
    return k.index(x, [batch, label, order])


def _at(x: Tensor, place: Tensor) -> Tensor:
    """[batch, classes] elements of x's last axis."""
    batch, label = _places(place.shape)
    return k.index(x, [batch, label, place])


def _overlaps(corners: Tensor, order: Tensor, best: Tensor, threshold: Tensor) -> Tensor:
    """Whether each box overlaps its class's best one by no more than the threshold."""
    batch = _places(order.shape)[0]
    own = k.broadcast(k.expand_dims(_at(order, best), [2]), order.shape)
    side = [[k.index(corners, [batch, box, k.full(order.shape, i, DType.INT64)]) for i in range(4)] for box in (order, own)]
    (y1, x1, y2, x2), (v1, u1, v2, u2) = side
    down, across = (k.maximum(k.minimum(a, b) - k.maximum(c, d), 0.0) for a, b, c, d in ((y2, v2, y1, v1), (x2, u2, x1, u1)))
    shared = down * across
    union = (y2 - y1) * (x2 - x1) + (v2 - v1) * (u2 - u1) - shared
    positive = union > 0.0
    ratio = k.select(positive, shared / k.select(positive, union, 1.0), 0.0)
    return ratio <= threshold
