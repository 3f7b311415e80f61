"""Greedy suppression of overlapping boxes: per class a heap of scores, and vectors of boxes chosen so far.

Candidates leave the heap in descending order of score (of equal scores the first box first, NaN last) until the limit is
reached; one is chosen unless it overlaps a box chosen before, of which a vector's worth is compared at a time.
"""

from __future__ import annotations

import functools
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

FIELDS = (
    "given", "scores", "chosen", "count", "corners", "areas", "heap", "survivors", "limits", "batches", "classes", "boxes",
    "limit", "filtered", "center",
)  # fmt: skip
_SIZES = ("batches", "classes", "boxes", "limit", "filtered", "center")
_F32 = DType.FLOAT
_I32, _I64 = ir_builder.IntType(32), ir_builder.IntType(64)
_ROWS = 5  # of `survivors`: y1, x1, y2, x2, area
PADDING = 16  # elements behind each row of `survivors`


@functools.lru_cache(maxsize=8)
def kernel_text(target: Target) -> KernelText:
    """The kernel; its arguments, of which all but the sizes are addresses, are FIELDS.

    given float[batches, boxes, 4] (corners in any order, or x, y, width, height of boxes by their `center`), scores
    float[batches, classes, boxes]; limits float[2]: the largest overlap, the least score (used where `filtered`). Written:
    chosen int64[up to batches * classes * limit, 3] (batch, class, box), count int64. Scratch: corners float[boxes, 4],
    areas float[boxes], heap int64[boxes], survivors float[5, limit + PADDING]. All is thread 0's.
    """
    return _Suppression(target).text()


class _Suppression:
    def __init__(self, target: Target) -> None:
        self.module = Module(target)
        self.lanes = min(self.module.lanes(_F32), PADDING)
        self.sift = self._sift()

    def _sift(self) -> Any:
        """An internal function (ptr heap, i64 place, i64 count): the key at `place` moves down to where it belongs."""
        body = self.module.function("sift", ("p", "i", "i"))
        heap, start, count = body.args
        b = body.b
        place, child = body.cell(start), body.cell(body.add(body.mul(start, 2), 1))
        key = body.load_i64(heap, start)
        with body.repeat_while(lambda: body.less(child.get(), count)):
            left = child.get()
            right = body.min(body.add(left, 1), body.sub(count, 1))
            larger = body.select(b.icmp_unsigned(">", body.load_i64(heap, right), body.load_i64(heap, left)), right, left)
            value = body.load_i64(heap, larger)
            with body.either(b.icmp_unsigned(">", value, key)) as (down, stay):
                with down:
                    body.store(value, body.at(heap, body.mul(place.get(), 8)), DType.INT64)
                    place.set(larger)
                    child.set(body.add(body.mul(larger, 2), 1))
                with stay:
                    child.set(count)
        body.store(key, body.at(heap, body.mul(place.get(), 8)), DType.INT64)
        b.ret_void()
        return body.function

    def text(self) -> KernelText:
        body = self.module.kernel()
        args, tid, _ = body.args
        self.v = v = {name: (body.load_i64 if name in _SIZES else body.load_pointer)(args, i) for i, name in enumerate(FIELDS)}
        self.total = body.cell(0)
        mine = body.select(body.equal(tid, 0), v["batches"], 0)
        with body.loop(0, mine) as batch:
            self._corners(body, body.at(v["given"], body.mul(body.mul(batch, v["boxes"]), 16)))
            with body.loop(0, v["classes"]) as label:
                row = body.add(body.mul(batch, v["classes"]), label)
                scores = body.at(v["scores"], body.mul(body.mul(row, v["boxes"]), 4))
                self._choose(body, self._fill(body, scores), batch, label)
        with body.when(body.equal(tid, 0)):
            body.store(self.total.get(), v["count"], DType.INT64)
        body.b.ret_void()
        return self.module.text("suppression")

    def _corners(self, body: Body, given: Value) -> None:
        """Corners (y1, x1, y2, x2), the lower ones first, and areas of a batch's boxes."""
        b, v = body.b, self.v
        half = body.constant(0.5, _F32, 1)

        def least(x: Value, y: Value) -> Value:
            return b.select(b.fcmp_ordered("<", x, y), x, b.select(b.fcmp_unordered("uno", x, x), x, y))

        def most(x: Value, y: Value) -> Value:
            return b.select(b.fcmp_ordered(">", x, y), x, b.select(b.fcmp_unordered("uno", x, x), x, y))

        centered = b.icmp_unsigned("!=", v["center"], body.i(0))
        with body.loop(0, v["boxes"]) as i:
            place = body.mul(i, 16)
            one = [body.load(body.at(given, place, 4 * k), _F32, 1) for k in range(4)]
            x, y, width, height = one[0], one[1], b.fmul(one[2], half), b.fmul(one[3], half)
            around = [b.fsub(y, height), b.fsub(x, width), b.fadd(y, height), b.fadd(x, width)]
            ordered = [least(one[0], one[2]), least(one[1], one[3]), most(one[0], one[2]), most(one[1], one[3])]
            corners = [b.select(centered, *pair) for pair in zip(around, ordered, strict=True)]
            for k, corner in enumerate(corners):
                body.store(corner, body.at(v["corners"], place, 4 * k), _F32)
            area = b.fmul(b.fsub(corners[2], corners[0]), b.fsub(corners[3], corners[1]))
            body.store(area, body.at(v["areas"], body.mul(i, 4)), _F32)

    def _fill(self, body: Body, scores: Value) -> Value:
        """The heap of all boxes whose score is high enough; returns their number."""
        b, v = body.b, self.v
        count = body.cell(0)
        least = body.load(body.at(v["limits"], 4), _F32, 1)
        unfiltered = body.equal(v["filtered"], 0)
        with body.loop(0, v["boxes"]) as i:
            score = body.load(body.at(scores, body.mul(i, 4)), _F32, 1)
            with body.when(b.or_(unfiltered, b.fcmp_ordered(">", score, least))):
                key = b.or_(b.shl(self._order(body, score), body.i(32)), b.xor(i, body.i(0xFFFFFFFF)))
                body.store(key, body.at(v["heap"], body.mul(count.get(), 8)), DType.INT64)
                count.add(1)
        half = body.div(count.get(), 2)
        with body.loop(0, half) as i:
            b.call(self.sift, [v["heap"], body.sub(body.sub(half, 1), i), count.get()])
        return count.get()

    def _order(self, body: Body, score: Value) -> Value:
        """32 bits that are ordered as scores are: zeros of both signs equal, NaN below all numbers."""
        b = body.b
        bits = b.bitcast(b.fadd(score, body.constant(0.0, _F32, 1)), _I32)
        flipped = b.xor(bits, b.or_(b.ashr(bits, _I32(31)), _I32(1 << 31)))
        return b.zext(b.select(b.fcmp_unordered("uno", score, score), _I32(0), flipped), _I64)

    def _choose(self, body: Body, count: Value, batch: Value, label: Value) -> None:
        """Empty the heap until the limit is reached, and write down what is chosen."""
        b, v = body.b, self.v
        left, number = body.cell(count), body.cell(0)
        with body.repeat_while(lambda: b.and_(body.less(0, left.get()), body.less(number.get(), v["limit"]))):
            box = b.xor(b.and_(body.load_i64(v["heap"]), body.i(0xFFFFFFFF)), body.i(0xFFFFFFFF))
            left.add(-1)
            body.store(body.load_i64(v["heap"], left.get()), v["heap"], DType.INT64)
            b.call(self.sift, [v["heap"], body.i(0), left.get()])
            values = [body.load(body.at(v["corners"], body.mul(box, 16), 4 * i), _F32, 1) for i in range(4)]
            values.append(body.load(body.at(v["areas"], body.mul(box, 4)), _F32, 1))
            covered = self._covered(body, values, number.get())
            with body.when(body.equal(covered, 0)):
                for i, part in enumerate((batch, label, box)):
                    body.store(part, body.at(v["chosen"], body.mul(self.total.get(), 24), 8 * i), DType.INT64)
                self.total.add(1)
                for row, value in enumerate(values):
                    body.store(value, self._row(body, row, number.get()), _F32)
                number.add(1)

    def _row(self, body: Body, row: int, index: Value) -> Value:
        pitch = body.mul(body.add(self.v["limit"], PADDING), 4 * row)
        return body.at(self.v["survivors"], pitch, body.mul(index, 4))

    def _covered(self, body: Body, values: list[Value], number: Value) -> Value:
        """Not zero where the box overlaps one of the chosen ones too much; a share of nothing counts as 0."""
        b, lanes = body.b, self.lanes
        box = [body.splat(value, lanes) for value in values]
        most = body.splat(body.load(self.v["limits"], _F32, 1), lanes)
        zero = body.zero(_F32, lanes)
        found, place = body.cell(0), body.cell(0)
        with body.repeat_while(lambda: b.and_(body.equal(found.get(), 0), body.less(place.get(), number))):
            here = place.get()
            survivors = [body.load(self._row(body, row, here), _F32, lanes) for row in range(_ROWS)]
            sides = []
            for low, high in ((0, 2), (1, 3)):
                first = b.select(b.fcmp_ordered(">", box[low], survivors[low]), box[low], survivors[low])
                last = b.select(b.fcmp_ordered("<", box[high], survivors[high]), box[high], survivors[high])
                side = b.fsub(last, first)
                sides.append(b.select(b.fcmp_ordered("<", side, zero), zero, side))
            shared = b.fmul(*sides)
            union = b.fsub(b.fadd(box[4], survivors[4]), shared)
            ratio = b.select(b.fcmp_ordered(">", union, zero), b.fdiv(shared, union), zero)
            over = b.and_(b.fcmp_unordered(">", ratio, most), body.mask(body.sub(number, here), lanes))
            found.set(b.zext(b.bitcast(over, ir_builder.IntType(lanes)), _I64))
            place.add(lanes)
        return found.get()
