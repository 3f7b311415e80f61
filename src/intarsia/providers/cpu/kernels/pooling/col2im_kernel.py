"""Col2Im: blocks added into an image, a row of windows at a time, each thread its channels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument

DTYPES = frozenset((DType.FLOAT, DType.DOUBLE))


@dataclass(frozen=True)
class Axis:
    """Sizes along one axis of the image: element `window * stride + place * dilation - low` belongs to a block's `place`."""

    image: int
    block: int
    windows: int
    stride: int
    dilation: int
    low: int


_FIELDS = tuple(Axis.__dataclass_fields__)


@functools.cache
def kernel_text(rank: int, dtype: DType, target: Target) -> KernelText:
    """The step y[unit, image] = sum of x[unit, blocks, windows]; see `col2im_args`."""
    return _Blocks(rank, dtype, target).text()


def col2im_args(x: Address, y: Address, *, units: int, axes: Sequence[Axis]) -> list[Argument]:
    """Addresses, images (one a channel of a batch entry), and the axes' sizes."""
    return [x, y, units, *(getattr(axis, f) for axis in axes for f in _FIELDS)]


class _Blocks:
    def __init__(self, rank: int, dtype: DType, target: Target) -> None:
        self.module, self.dtype, self.rank = Module(target), dtype, rank
        self.lanes, self.itemsize = self.module.lanes(dtype), dtype.bits // 8

    def text(self) -> KernelText:
        self.body = body = self.module.kernel()
        args, tid, nthreads = body.args
        x, y = (body.load_pointer(args, i) for i in range(2))
        self.axes = [
            {f: body.load_i64(args, 3 + axis * len(_FIELDS) + i) for i, f in enumerate(_FIELDS)} for axis in range(self.rank)
        ]
        image = blocks = body.i(self.itemsize)
        for axis in self.axes:
            image = body.mul(image, axis["image"])
            blocks = body.mul(blocks, body.mul(axis["block"], axis["windows"]))
        first, last = body.share(body.load_i64(args, 2), tid, nthreads)
        with body.loop(first, last) as unit:
            target = body.at(y, body.mul(unit, image))
            body.fill_zero(target, image)
            self._places(body.at(x, body.mul(unit, blocks)), target, [])
        body.b.ret_void()
        return self.module.text("col2im")

    def _places(self, source: Value, target: Value, places: list[Value]) -> None:
        """Loops over the places of a block; then the windows of that place."""
        body = self.body
        if len(places) < self.rank:
            with body.loop(0, self.axes[len(places)]["block"]) as place:
                self._places(source, target, [*places, place])
            return
        place = body.i(0)
        for axis, at in zip(self.axes, places, strict=True):
            place = body.add(body.mul(place, axis["block"]), at)
        count = body.i(self.itemsize)
        for axis in self.axes:
            count = body.mul(count, axis["windows"])
        starts = [body.sub(body.mul(at, axis["dilation"]), axis["low"]) for axis, at in zip(self.axes, places, strict=True)]
        self._windows(body.at(source, body.mul(place, count)), target, starts, [])

    def _windows(self, source: Value, target: Value, starts: list[Value], windows: list[Value]) -> None:
        """Loops over those windows whose element lies in the image."""
        body, n = self.body, len(windows)
        axis, start = self.axes[n], starts[n]
        stride = axis["stride"]
        above = body.sub(stride, 1)  # (a + stride - 1) / stride rounds up
        first = body.div(body.add(body.max(body.sub(0, start), 0), above), stride)
        last = body.min(axis["windows"], body.div(body.add(body.max(body.sub(axis["image"], start), 0), above), stride))
        if n < self.rank - 1:
            with body.loop(first, last) as window:
                self._windows(source, target, starts, [*windows, window])
            return
        line, row = body.i(0), body.i(0)
        for outer, begin, window in zip(self.axes, starts, windows, strict=False):
            line = body.add(body.mul(line, outer["windows"]), window)
            row = body.add(body.mul(row, outer["image"]), body.add(body.mul(window, outer["stride"]), begin))
        source = body.at(source, body.mul(body.mul(line, axis["windows"]), self.itemsize))
        target = body.at(target, body.mul(body.add(body.mul(row, axis["image"]), start), self.itemsize))
        self._add_row(source, target, first, last, stride)

    def _add_row(self, source: Value, target: Value, first: Value, last: Value, stride: Value) -> None:
        body, lanes = self.body, self.lanes
        with body.either(body.equal(stride, 1)) as (dense, strided):
            with dense:
                whole = body.sub(last, body.rem(body.sub(body.max(last, first), first), lanes))
                with body.loop(first, whole, lanes) as window:
                    self._add(source, target, window, window, None)
                with body.when(body.less(whole, last)):
                    self._add(source, target, whole, whole, body.mask(body.sub(last, whole), lanes))
            with strided, body.loop(first, last) as window:
                self._add(source, target, window, body.mul(window, stride), None, 1)

    def _add(
        self, source: Value, target: Value, here: Value, there: Value, mask: Value | None, lanes: int | None = None
    ) -> None:
        body, dtype, lanes = self.body, self.dtype, lanes or self.lanes
        x, y = body.at(source, body.mul(here, self.itemsize)), body.at(target, body.mul(there, self.itemsize))
        if mask is None:
            body.store(body.b.fadd(body.load(x, dtype, lanes), body.load(y, dtype, lanes)), y, dtype)
            return
        total = body.b.fadd(body.load_masked(x, mask, dtype, lanes), body.load_masked(y, mask, dtype, lanes))
        body.store_masked(total, y, mask, dtype)
