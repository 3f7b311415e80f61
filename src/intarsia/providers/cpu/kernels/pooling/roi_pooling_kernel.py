"""RoiAlign and MaxRoiPool in float32: bins of regions, a vector of channels at a time.

A thread takes rows of bins. For each bin and each vector of channels, samples (or elements) are gathered at the same place of
all channels, so that places and weights are computed once for the vector.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.ops.nn import region_samples
from intarsia.ops.nn.region_samples import MOST_CORNER, MOST_SAMPLES
from intarsia.primitives import lang as k
from intarsia.run_status import INDEX_OUT_OF_RANGE, TOO_MANY_SAMPLES

ALIGN_FIELDS = (
    "x", "rois", "indices", "y", "status", "regions", "batches", "channels", "height", "width", "high", "wide", "ratio",
    "scale",
)  # fmt: skip
POOL_FIELDS = tuple(f for f in ALIGN_FIELDS if f not in ("indices", "ratio"))
_POINTERS = frozenset(("x", "rois", "indices", "y", "status"))
_F32 = DType.FLOAT
_FLOAT, _I32, _I64 = ir_builder.FloatType(), ir_builder.IntType(32), ir_builder.IntType(64)

Taps = tuple[Value, Value, Value, Value]


def _floats(count: int) -> list[k.Tensor]:
    return [k.input(i, _F32, ()) for i in range(count)]


_EXTENT = {aligned: region_samples.extent(k.input(0, _F32, ()), k.input(1, _F32, ()), aligned) for aligned in (False, True)}
_SAMPLES = region_samples.samples(*_floats(1))
_PLACE = region_samples.place(*_floats(5))
_TAPS = region_samples.taps(k.input(0, _F32, ()), k.input(1, DType.INT64, ()))


@functools.cache
def align_text(mode: str, aligned: bool, target: Target) -> KernelText:
    """RoiAlign, `mode` "avg" or "max"; arguments are ALIGN_FIELDS.

    x float[batches, channels, height, width], rois float[regions, 4] (x1, y1, x2, y2), indices int64[regions],
    y float[regions, channels, high, wide]; `scale` is the bits of a float; `ratio` is 0 where it follows from a region's size.
    An index that is no batch, and a region that needs too many samples, are reported in `status`.
    """
    return _Align(target, ALIGN_FIELDS, mode, aligned).text("roi_align")


@functools.cache
def pool_text(target: Target) -> KernelText:
    """MaxRoiPool; arguments are POOL_FIELDS: rois float[regions, 5] has the batch first."""
    return _Pool(target, POOL_FIELDS).text("max_roi_pool")


class _Regions:
    """The loops around a bin; subclasses say what a bin of a vector of channels is."""

    corners_at = 0  # floats in front of a region's corners

    def __init__(self, target: Target, fields: Sequence[str]) -> None:
        self.module = Module(target)
        self.lanes = self.module.lanes(_F32)
        self.gathers = target.has("avx512f")  # LLVM makes a branch of each lane of a masked gather elsewhere
        self.inside: list[Value] = []  # a vector's channels, counted from its first one; the last that is there comes again
        self.planes: list[Value] = []  # bytes to them
        self.body = body = self.module.kernel()
        self.e = Emitter(body.b)
        args, self.tid, self.nthreads = body.args
        self.v: dict[str, Any] = {
            f: (body.load_pointer if f in _POINTERS else body.load_i64)(args, i) for i, f in enumerate(fields)
        }

    def batch(self, region: Value, corners: Value) -> Value:
        raise NotImplementedError

    def frame(self, corners: Sequence[Value]) -> Any:
        """Values of a region that its bins read."""
        raise NotImplementedError

    def bin(self, frame: Any, image: Value, row: Value, column: Value, mask: Value) -> Value:
        raise NotImplementedError

    def text(self, name: str) -> KernelText:
        body, b, v, lanes = self.body, self.body.b, self.v, self.lanes
        plane = body.mul(v["height"], v["width"])
        bins = body.mul(v["high"], v["wide"])
        lane = ir_builder.Constant(ir_builder.VectorType(_I64, lanes), list(range(lanes)))
        self.steps = b.mul(lane, body.splat(body.mul(plane, 4), lanes))
        self.strides = b.mul(lane, body.splat(body.mul(bins, 4), lanes))
        scale = self.bits(v["scale"])
        first, last = body.share(body.mul(v["regions"], v["high"]), self.tid, self.nthreads)
        with body.loop(first, last) as unit:
            region, row = body.div(unit, v["high"]), body.rem(unit, v["high"])
            corners = body.at(v["rois"], body.mul(region, 4 * (4 + self.corners_at)))
            batch = self.batch(region, corners)
            columns = body.select(self.is_missing(batch), 0, v["wide"])
            scaled = [b.fmul(body.load(body.at(corners, 4 * (i + self.corners_at)), _F32, 1), scale) for i in range(4)]
            frame = self.frame(scaled)
            with body.loop(0, columns) as column, body.loop(0, v["channels"], lanes) as channel:
                image = body.at(v["x"], body.mul(body.mul(body.add(body.mul(batch, v["channels"]), channel), plane), 4))
                mask = body.mask(body.sub(v["channels"], channel), lanes)
                if not self.gathers:
                    final = body.sub(body.sub(v["channels"], channel), 1)
                    self.inside = [body.min(final, i) for i in range(lanes)]
                    self.planes = [body.mul(i, body.mul(plane, 4)) for i in self.inside]
                value = self.bin(frame, image, row, column, mask)
                place = body.mul(body.add(body.mul(region, v["channels"]), channel), bins)
                place = body.add(place, body.add(body.mul(row, v["wide"]), column))
                self.scatter(value, body.at(v["y"], body.mul(place, 4)), bins, mask)
        b.ret_void()
        return self.module.text(name)

    def is_missing(self, batch: Value) -> Value:
        """Whether there is no batch of that number, which is written to `status`."""
        body = self.body
        missing = body.b.icmp_unsigned(">=", batch, self.v["batches"])
        with body.when(missing):
            body.store(body.i(INDEX_OUT_OF_RANGE), self.v["status"], DType.INT64)
        return missing

    # --- floats ---

    def f(self, value: float) -> Value:
        return ir_builder.Constant(_FLOAT, value)

    def made(self, definition: k.Tensor, *operands: Value) -> Value:
        return self.e.evaluate(definition, dict(enumerate(operands)))

    def bits(self, value: Value) -> Value:
        return self.body.float_of_bits(value)

    def real(self, value: Value) -> Value:
        return self.body.b.sitofp(value, _FLOAT)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger; y where either is NaN."""
        return self.body.b.select(self.body.b.fcmp_ordered(">", x, y), x, y)

    def whole(self, x: Value, low: float, high: float) -> Value:
        """A float, clamped to bounds (NaN: the lower), as an integer."""
        b = self.body.b
        clamped = self.larger(x, self.f(low))
        return b.fptosi(b.select(b.fcmp_ordered("<", clamped, self.f(high)), clamped, self.f(high)), _I64)

    def rounded(self, name: str, x: Value) -> Value:
        return Emitter(self.body.b).intrinsic(name, [x])

    # --- memory of one place in all channels ---

    def gather(self, pointer: Value, mask: Value) -> Value:
        body, lanes = self.body, self.lanes
        vector = ir_builder.VectorType(_FLOAT, lanes)
        if not self.gathers:
            found = body.zero(_F32, lanes)
            for lane, step in enumerate(self.planes):
                found = body.b.insert_element(found, body.load(body.at(pointer, step), _F32, 1), _I32(lane))
            return found
        addresses = self._addresses(pointer, self.steps)
        kinds = [addresses.type, _I32, mask.type, vector]
        f = body.intrinsic(f"llvm.masked.gather.v{lanes}f32.v{lanes}p0", vector, kinds)
        return body.b.call(f, [addresses, _I32(4), mask, body.zero(_F32, lanes)])

    def scatter(self, value: Value, pointer: Value, bins: Value, mask: Value) -> None:
        body, lanes = self.body, self.lanes
        if not self.gathers:
            for lane, place in enumerate(self.inside):
                element = body.b.extract_element(value, _I32(lane))
                body.store(element, body.at(pointer, body.mul(place, body.mul(bins, 4))), _F32)
            return
        addresses = self._addresses(pointer, self.strides)
        kinds = [value.type, addresses.type, _I32, mask.type]
        f = body.intrinsic(f"llvm.masked.scatter.v{lanes}f32.v{lanes}p0", ir_builder.VoidType(), kinds)
        body.b.call(f, [value, addresses, _I32(4), mask])

    def _addresses(self, pointer: Value, steps: Value) -> Value:
        b = self.body.b
        base = self.body.splat(b.ptrtoint(pointer, _I64), self.lanes)
        return b.inttoptr(b.add(base, steps), ir_builder.VectorType(ir_builder.PointerType(), self.lanes))


class _Align(_Regions):
    """A bin is the mean of bilinear samples, or the largest weighted corner of one."""

    def __init__(self, target: Target, fields: Sequence[str], mode: str, aligned: bool) -> None:
        super().__init__(target, fields)
        self.mean, self.aligned = mode == "avg", aligned

    def batch(self, region: Value, corners: Value) -> Value:
        return self.body.load_i64(self.v["indices"], region)

    def frame(self, corners: Sequence[Value]) -> Any:
        body, b, v = self.body, self.body.b, self.v
        shift = self.f(0.5 if self.aligned else 0.0)
        x1, y1, x2, y2 = (b.fsub(c, shift) for c in corners)
        axes = []
        for low, high, bins, extent in ((y1, y2, v["high"], v["height"]), (x1, x2, v["wide"], v["width"])):
            step = b.fdiv(self.made(_EXTENT[self.aligned], low, high), self.real(bins))
            adaptive = b.sext(self.made(_SAMPLES, step), _I64)
            many = body.less(MOST_SAMPLES, body.select(body.less(0, v["ratio"]), 0, adaptive))
            with body.when(many):
                body.store(body.i(TOO_MANY_SAMPLES), v["status"], DType.INT64)
            adaptive = body.select(many, 1, adaptive)
            count = body.select(body.less(0, v["ratio"]), v["ratio"], adaptive)
            axes.append((low, step, count, extent))
        return axes

    def bin(self, frame: Any, image: Value, row: Value, column: Value, mask: Value) -> Value:
        body, b, lanes = self.body, self.body.b, self.lanes
        down, across = frame
        lowest = body.splat(self.f(float("-inf")), lanes)
        carried = [body.zero(_F32, lanes) if self.mean else lowest]
        with body.carry(0, down[2], 1, carried) as i:
            rows = self._taps(down, row, i)
            inner = list(carried)
            with body.carry(0, across[2], 1, inner) as j:
                columns = self._taps(across, column, j)
                inner[0] = self._sample(inner[0], image, rows, columns, mask)
            carried[0] = inner[0]
        count = body.mul(down[2], across[2])
        none = body.equal(count, 0)
        if not self.mean:
            return b.select(none, body.zero(_F32, lanes), carried[0])
        return b.fdiv(carried[0], body.splat(self.real(body.select(none, 1, count)), lanes))

    def _taps(self, axis: Sequence[Value], bin_index: Value, sample: Value) -> Taps:
        """Lower and upper neighbour of a sample, and their weights; 0 where it lies outside the image."""
        start, step, count, extent = axis
        place = self.made(_PLACE, start, step, self.real(count), self.real(bin_index), self.real(sample))
        low, high, lower, upper = self.e.evaluate_all(_TAPS, {0: place, 1: extent})
        return low, high, lower, upper

    def _sample(self, total: Value, image: Value, rows: Taps, columns: Taps, mask: Value) -> Value:
        body, b, lanes = self.body, self.body.b, self.lanes
        for i, wi in ((rows[0], rows[2]), (rows[1], rows[3])):
            line = body.at(image, body.mul(body.mul(i, self.v["width"]), 4))
            for j, wj in ((columns[0], columns[2]), (columns[1], columns[3])):
                values = self.gather(body.at(line, body.mul(j, 4)), mask)
                weight = body.splat(b.fmul(wi, wj), lanes)
                if self.mean:
                    total = body.fma(values, weight, total, _F32, lanes)
                else:
                    total = self.larger(b.fmul(values, weight), total)
        return total


class _Pool(_Regions):
    """A bin is the largest of its elements, 0 where it has none."""

    corners_at = 1

    def batch(self, region: Value, corners: Value) -> Value:
        return self.whole(self.body.load(corners, _F32, 1), -1.0, 2.0**31)

    def frame(self, corners: Sequence[Value]) -> Any:
        body, v = self.body, self.v
        x1, y1, x2, y2 = (self.whole(self.rounded("roundeven", c), -MOST_CORNER, MOST_CORNER) for c in corners)
        axes = []
        for low, high, bins, extent in ((y1, y2, v["high"], v["height"]), (x1, x2, v["wide"], v["width"])):
            size = body.max(body.add(body.sub(high, low), 1), 1)
            axes.append((low, size, bins, extent))
        return axes

    def bin(self, frame: Any, image: Value, row: Value, column: Value, mask: Value) -> Value:
        body, b, lanes = self.body, self.body.b, self.lanes
        (top, bottom), (left, right) = (self._bounds(axis, i) for axis, i in zip(frame, (row, column), strict=True))
        lowest = body.splat(self.f(float("-inf")), lanes)
        carried = [lowest]
        with body.carry(top, bottom, 1, carried) as i:
            line = body.at(image, body.mul(body.mul(i, self.v["width"]), 4))
            inner = list(carried)
            with body.carry(left, right, 1, inner) as j:
                values = self.gather(body.at(line, body.mul(j, 4)), mask)
                inner[0] = Emitter(b, lanes).extremum("max", inner[0], values)
            carried[0] = inner[0]
        empty = b.not_(b.and_(body.less(top, bottom), body.less(left, right)))
        return b.select(empty, body.zero(_F32, lanes), carried[0])

    def _bounds(self, axis: Sequence[Value], index: Value) -> tuple[Value, Value]:
        """[floor(i size / bins), ceil((i + 1) size / bins)) behind the region's start, cut to the image."""
        body = self.body
        low, size, bins, extent = axis
        start = body.div(body.mul(index, size), bins)
        end = body.div(body.add(body.mul(body.add(index, 1), size), body.sub(bins, 1)), bins)
        first, last = (body.min(body.max(body.add(low, edge), 0), extent) for edge in (start, end))
        return first, last
