"""Sliding windows channel by channel, channels-last, of depthwise convolution and pooling.

X [N, D, H, W, C] -> Y [N, OD, OH, OW, C]; a vector holds neighbouring channels. Seven neighbouring output pixels (all
common map widths are multiples of it) are accumulated in registers, so that an input pixel and a weight are loaded once
for several outputs. There is no border in memory: positions outside read a vector of neutral elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import walk
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue_code import Finish
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import FIELDS, WindowSpec, _block_vectors, by_pixels

_LIGHT = 12  # primitives of an epilogue that is still unrolled for all pixels
_POINTERS = ("x", "y", "weights", "number")
_OPERAND_FIELDS = 6


class Window:
    """Writes one kernel."""

    def __init__(self, spec: WindowSpec, target: Target) -> None:
        more = 3 - len(spec.kernel)
        self.spec = spec
        self.kernel, self.strides, self.dilations = ((1,) * more + t for t in (spec.kernel, spec.strides, spec.dilations))
        self.module = Module(target)
        self.body: Body = self.module.kernel()
        self.lanes = self.module.lanes(spec.dtype)
        self.size = itemsize(spec.dtype)
        self.x_dtype = spec.x_dtype or spec.dtype
        self.x_size = itemsize(self.x_dtype)
        self.finish = Finish(self.body, spec.epilogue, spec.dtype, self.lanes)
        self.pixels = spec.pixels
        self.halo = (self.kernel[2] - 1) * self.dilations[2]
        self.by_pixels = by_pixels(spec, target)
        self.block = _block_vectors(spec, target)
        # Pixels at either end of those that outputs see which may lie outside in the fast case, too.
        self.loose = (self.halo + 1) // 2 if self.by_pixels else self.halo
        self.primitives = len(walk([spec.epilogue.root])) if spec.epilogue else 0
        self.light = spec.operation != "average" and self.primitives <= _LIGHT

    @property
    def reach(self) -> int:
        """From the first input pixel of a line that the outputs in registers see to the last."""
        return (self.pixels - 1) * self.strides[2] + self.halo

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v: dict[str, Value] = {}
        self.v = v
        for index, name in enumerate(FIELDS):
            v[name] = body.load_pointer(args, index) if name in _POINTERS else body.load_i64(args, index)
        self.operands = [
            [body.load_pointer(args, at), *(body.load_i64(args, at + j) for j in range(1, 5))]
            for at in range(len(FIELDS), len(FIELDS) + _OPERAND_FIELDS * len(self.finish.kinds), _OPERAND_FIELDS)
        ]
        vector_bytes = self.lanes * self.size
        self.neutral, self.buffer = body.alloca(vector_bytes), body.alloca(self.pixels * vector_bytes)
        body.store(self._outside(), self.neutral, self.x_dtype)
        first, last = body.share(body.mul(self._rows(), v["blocks"]), tid, nthreads)
        with body.loop(first, last) as unit:
            self._unit(unit)
        body.b.ret_void()
        floats = self.spec.dtype is DType.FLOAT and self.spec.x_dtype in (None, DType.FLOAT)
        return self.module.text(f"window_{self.spec.operation}", Effort.VECTORS if floats else Effort.ALL)

    def _rows(self) -> Value:
        """Units of work of each block of channels."""
        return self.body.mul(self.body.mul(self.v["batch"], self.v["out_depth"]), self.v["out_height"])

    def _initial(self) -> Value:
        lowest = {DType.UINT8: 0, DType.INT8: -128}.get(self.spec.dtype, float("-inf"))
        return self.body.constant(lowest if self.spec.operation == "max" else 0.0, self.spec.dtype, self.lanes)

    def _outside(self) -> Value:
        """A vector of pixels outside the image."""
        if self.spec.x_dtype is None:
            return self._initial()
        outside = self.body.broadcast(self.v["number"], self.x_dtype, self.lanes)
        if self.spec.dtype.is_floating:
            self.zero = self.body.emitter(self.lanes).cast(outside, self.x_dtype, self.spec.dtype)
        return outside

    def _load(self, pointer: Value, mask: Value | None) -> Value:
        body, dtype = self.body, self.x_dtype
        stored = body.load(pointer, dtype, self.lanes) if mask is None else body.load_masked(pointer, mask, dtype, self.lanes)
        if self.spec.x_dtype is None:
            return stored
        return body.b.fsub(body.emitter(self.lanes).cast(stored, dtype, self.spec.dtype), self.zero)

    def _unit(self, unit: Value) -> None:
        """One line of output, some vectors of channels."""
        body, v = self.body, self.v
        row, block = body.div(unit, v["blocks"]), body.rem(unit, v["blocks"])
        self._place(row)
        whole = body.div(v["channels"], self.lanes)
        first = body.mul(block, self.block)
        last = body.min(body.add(first, self.block), whole)
        if self.by_pixels:
            self._pixel_by_pixel(first, last)
        else:
            with body.loop(first, last) as vector:
                self._channels(body.mul(vector, self.lanes), None)
        rest = body.rem(v["channels"], self.lanes)
        last_block = body.equal(body.add(block, 1), v["blocks"])
        with body.when(body.b.and_(last_block, body.less(0, rest))):
            self._channels(body.mul(whole, self.lanes), body.mask(rest, self.lanes))

    def _place(self, row: Value) -> None:
        """Where a line of output begins, and what of the window lies inside above and below."""
        body, v = self.body, self.v
        plane_index, line = body.div(row, v["out_height"]), body.rem(row, v["out_height"])
        image, plane = body.div(plane_index, v["out_depth"]), body.rem(plane_index, v["out_depth"])
        self.z = self._range(plane, 0, "d", v["depth"])
        self.y = self._range(line, 1, "h", v["height"])
        self.source = body.at(v["x"], body.mul(image, v["x_image"]))
        place = [(image, 3), (plane, 2), (line, 1)]
        y_strides = [v["y_pixel"], v["y_line"], v["y_plane"], v["y_image"]]
        self.out = body.at(v["y"], *(body.mul(i, y_strides[level]) for i, level in place))
        self.bases = [
            body.at(o[0], *(body.mul(i, o[1 + level]) for i, level in place)) if kind == "full" else o[0]
            for kind, o in zip(self.finish.kinds, self.operands, strict=True)
        ]

    def _range(self, out: Value, axis: int, letter: str, extent: Value) -> tuple[Value, Value, Value, Value]:
        """(first input position, first and last + 1 window positions inside, how many an average counts)."""
        body, v = self.body, self.v
        start = body.sub(body.mul(out, self.strides[axis]), v[f"pad_{letter}"])
        low, high = self._inside(start, axis, body.i(0), extent)
        count_low, count_high = self._inside(start, axis, v[f"low_{letter}"], v[f"high_{letter}"])
        return start, low, high, body.sub(count_high, count_low)

    def _inside(self, start: Value, axis: int, low: Value, high: Value) -> tuple[Value, Value]:
        """The window positions whose input position start + p * dilation lies in [low, high)."""
        body, d = self.body, self.dilations[axis]

        def ceiling(distance: Value) -> Value:
            return body.max(0, body.b.sdiv(body.add(distance, d - 1), body.i(d)) if d > 1 else distance)

        first = body.min(ceiling(body.sub(low, start)), self.kernel[axis])
        return first, body.max(first, body.min(ceiling(body.sub(high, start)), self.kernel[axis]))

    def _pixel_by_pixel(self, first: Value, last: Value) -> None:
        """Vectors `first` to `last` - 1 of some pixels before those of the next."""
        body, v = self.body, self.v
        with body.loop(0, v["out_width"], self.pixels) as column:
            start = body.sub(body.mul(column, self.strides[2]), v["pad_w"])
            with body.loop(first, last) as vector:
                self._pixels_either(body.mul(vector, self.lanes), column, start)

    def _channels(self, channel: Value, mask: Value | None) -> None:
        body, v = self.body, self.v
        stride = self.strides[2]
        with body.loop(0, v["out_width"], self.pixels) as column:
            start = body.sub(body.mul(column, stride), v["pad_w"])
            if mask is not None:
                self._pixels(channel, column, start, mask, guarded=True)
            else:
                self._pixels_either(channel, column, start)

    def _pixels_either(self, channel: Value, column: Value, start: Value) -> None:
        """Where all outputs exist, only `loose` pixels at the ends can lie outside; else any position and some outputs."""
        body, v = self.body, self.v
        inside = body.b.and_(
            body.b.and_(body.less(-1 - self.loose, start), body.less(body.add(start, self.reach - self.loose), v["width"])),
            body.less(body.add(column, self.pixels - 1), v["out_width"]),
        )
        with body.either(inside) as (complete, partial):
            with complete:
                self._pixels(channel, column, start, None, guarded=False)
            with partial:
                self._pixels(channel, column, start, None, guarded=True)

    def _pixels(self, channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool) -> None:
        body, v = self.body, self.v
        offset = self._seen_from(channel)
        state = self._sums()
        with self._lines(state) as (z, line, position):
            plane = body.add(self.z[0], body.mul(z, self.dilations[0]))
            row = body.at(self.source, offset, body.mul(plane, v["x_plane"]), body.mul(line, v["x_line"]))
            self._accumulate(state, row, start, position, body.mul(channel, self.size), mask, guarded)
        self._write(state, channel, column, start, mask, guarded)

    def _seen_from(self, channel: Value) -> Value:
        """Bytes from a pixel of the input to what the vector of output channels from `channel` on sees."""
        return self.body.mul(channel, self.x_size)

    @contextmanager
    def _lines(self, state: list[Value]) -> Iterator[tuple[Index, Value, Value]]:
        """The lines of a window inside of the input: the plane in the window, the line in the input, the first position."""
        body = self.body
        _, z_low, z_high, _ = self.z
        y0, y_low, y_high, _ = self.y
        with ExitStack() as stack:
            z: Index = 0
            if self.kernel[0] > 1:
                z = stack.enter_context(body.carry(z_low, z_high, 1, state))
            y = stack.enter_context(body.carry(y_low, y_high, 1, state))
            line = body.add(y0, body.mul(y, self.dilations[1]))
            yield z, line, body.mul(body.add(body.mul(z, self.kernel[1]), y), self.kernel[2])

    def _sums(self) -> list[Value]:
        """The accumulators of the window's positions."""
        return [self._initial()] * self.pixels

    def _accumulate(
        self, state: list[Value], row: Value, start: Value, position: Value, offset: Value, mask: Value | None, guarded: bool
    ) -> None:
        """One line of the window for all pixels: every input pixel is loaded once."""
        loaded: dict[int, Value] = {}
        place = self._places(row, start) if self.by_pixels and not guarded else None

        def pixel(at: int) -> Value:
            if at not in loaded:
                loaded[at] = self._load(self._pixel_place(row, start, at, guarded, place), mask)
            return loaded[at]

        self._accumulate_line(state, pixel, position, offset)

    def _places(self, row: Value, start: Value) -> Callable[[int], Value]:
        """Where pixels from `start` on are in a line: the first of every three at an address that is held, the others by x86's
        addressing from it."""
        body, pixel = self.body, self.v["x_pixel"]
        first, held = body.at(row, body.mul(start, pixel)), dict[int, Value]()

        def place(at: int) -> Value:
            base, rest = divmod(at, 3)
            if base not in held:
                held[base] = body.opaque(body.at(first, body.mul(pixel, 3 * base)) if base else first)
            return body.at(held[base], body.mul(pixel, rest)) if rest else held[base]

        return place

    def _pixel_place(
        self, row: Value, start: Value, at: int, guarded: bool, place: Callable[[int], Value] | None = None
    ) -> Value:
        """Where pixel `at` of those that the outputs in registers see in a line is (`place` says it, if given), or the neutral
        vector."""
        body, v = self.body, self.v
        x = body.add(start, at)
        pointer = place(at) if place else body.at(row, body.mul(x, v["x_pixel"]))
        if guarded or at < self.loose or at > self.reach - self.loose:
            pointer = body.b.select(body.b.icmp_unsigned("<", x, v["width"]), pointer, self.neutral)
        return pointer

    def _accumulate_line(self, state: list[Value], pixel: Callable[[int], Value], position: Value, offset: Value) -> None:
        """One line of the window; `pixel` gives the input's pixels, `position` is the line's first, `offset` the channels'."""
        body, dtype = self.body, self.spec.dtype
        taps = range(self.kernel[2])
        if self.spec.operation == "multiply":
            line = self._place_of_weights(offset, position)
            weights = [body.load(body.at(line, x * self.lanes * self.size), dtype, self.lanes) for x in taps]
        for x in taps:
            for p in range(self.pixels):
                value = pixel(p * self.strides[2] + x * self.dilations[2])
                if self.spec.operation == "multiply":
                    state[p] = body.fma(value, weights[x], state[p], dtype, self.lanes)
                elif self.spec.operation == "max":
                    state[p] = self._larger(value, state[p])
                else:
                    state[p] = body.b.fadd(state[p], value)

    def _place_of_weights(self, offset: Value, position: Value) -> Value:
        """Where the weights of the window's positions from `position` on lie, of the vector at `offset` in a pixel."""
        body = self.body
        vector = body.mul(offset, math.prod(self.kernel))
        return body.at(self.v["weights"], vector, body.mul(position, self.lanes * self.size))

    def _larger(self, x: Value, y: Value) -> Value:
        """The larger of two, NaN where either is."""
        b, dtype = self.body.b, self.spec.dtype
        if dtype.is_floating:
            picked = b.select(b.fcmp_ordered(">", x, y), x, y)  # NaN of y stays
            return b.select(b.fcmp_unordered("uno", x, x), x, picked)
        return b.select((b.icmp_signed if dtype is DType.INT8 else b.icmp_unsigned)(">", x, y), x, y)

    def _write(
        self, state: list[Value], channel: Value, column: Value, start: Value, mask: Value | None, guarded: bool
    ) -> None:
        body, v, finish = self.body, self.v, self.finish
        out = body.at(self.out, body.mul(channel, finish.itemsize), body.mul(column, v["y_pixel"]))
        places = []
        for kind, dtype, base, operand in zip(finish.kinds, finish.dtypes, self.bases, self.operands, strict=True):
            place = base if kind == "scalar" else body.at(base, body.mul(channel, itemsize(dtype)))
            places.append(body.at(place, body.mul(column, operand[1])) if kind == "full" else place)
        if self.light and not guarded:
            fixed = {
                i: finish.operand(i, place, mask) for i, place in enumerate(places) if finish.kinds[i] in ("column", "scalar")
            }
            for p in range(self.pixels):
                values = [
                    fixed[i] if i in fixed else finish.operand(i, body.at(place, body.mul(self.operands[i][1], p)), mask)
                    for i, place in enumerate(places)
                ]
                finish.store(state[p], values, body.at(out, body.mul(v["y_pixel"], p)), mask)
            return
        vector_bytes = self.lanes * self.size
        for p in range(self.pixels):
            body.store(state[p], body.at(self.buffer, p * vector_bytes), self.spec.dtype)
        with body.loop(0, body.min(self.pixels, body.sub(v["out_width"], column))) as p:
            sums = body.load(body.at(self.buffer, body.mul(p, vector_bytes)), self.spec.dtype, self.lanes)
            if self.spec.operation == "average":
                sums = body.b.fdiv(sums, self._count(body.add(start, body.mul(p, self.strides[2]))))
            values = [
                finish.operand(i, body.at(place, body.mul(p, self.operands[i][1])) if finish.kinds[i] == "full" else place,
                               None if finish.kinds[i] == "scalar" else mask)
                for i, place in enumerate(places)
            ]  # fmt: skip
            finish.store(sums, values, body.at(out, body.mul(p, v["y_pixel"])), mask)

    def _count(self, start: Value) -> Value:
        """The divisor of an average whose window begins at `start`, in all lanes."""
        body, v = self.body, self.v
        low, high = self._inside(start, 2, v["low_w"], v["high_w"])
        count = body.mul(body.mul(self.z[3], self.y[3]), body.sub(high, low))
        zero = body.zero(self.spec.dtype, 1)
        return body.splat(body.b.sitofp(count, zero.type), self.lanes)
