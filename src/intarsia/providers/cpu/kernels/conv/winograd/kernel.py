"""Writes the kernel of `winograd`: tiles of the input transformed, multiplied by all matrices, transformed back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack

from intarsia.codegen.builder.kernel_body import Body, Cell, Module, Value
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.winograd_transforms import of_input, of_sums
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import walk
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue_code import Finish
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS
from intarsia.providers.cpu.kernels.conv.winograd.spec import FIELDS, WinogradSpec, winograd_tile

_OPERAND_FIELDS = 6


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WinogradSpec, target: Target) -> KernelText:
    """The kernel of a spec of floats that are multiplied as they are; its arguments are `winograd_args`."""
    return Winograd(spec, target).text()


class Winograd:
    """Writes one kernel."""

    light_primitives = 8  # of an epilogue that is unrolled for all outputs of a tile
    transformed_nbytes = 4  # of a channel of the input

    def __init__(self, spec: WinogradSpec, target: Target) -> None:
        self.spec, self.side, self.m = spec, spec.side, spec.outputs
        self.module = Module(target)
        self.body: Body = self.module.kernel()
        self.tile = winograd_tile(spec, target)
        self.lanes = self.tile.lanes
        self.vector_nbytes = self.lanes * self.tile.itemsize
        self.finish = Finish(self.body, spec.epilogue, spec.dtype, self.lanes)
        self.place: dict[str, Cell] = {}
        self.light = spec.epilogue is None or len(walk([spec.epilogue.root])) <= self.light_primitives
        self.channels, self.x_nbytes = self.lanes, self.tile.itemsize  # of a vector of the input, and of a channel of it

    def text(self) -> KernelText:
        body = self.body
        args, tid, _ = body.args
        v: dict[str, Value] = {}
        self.v = v
        for index, name in enumerate(FIELDS):
            pointer = name in ("micro", "x", "weights", "y", "taps", "scratch", "claims", "number")
            v[name] = body.load_pointer(args, index) if pointer else body.load_i64(args, index)
        self.operands = [
            [body.load_pointer(args, at), *(body.load_i64(args, at + j) for j in (1, 2, 3, 5))]
            for at in range(len(FIELDS), len(FIELDS) + _OPERAND_FIELDS * len(self.finish.kinds), _OPERAND_FIELDS)
        ]
        self.neutral = body.alloca(self.vector_nbytes)
        self.outputs = body.alloca(self.m * self.m * self.vector_nbytes)
        self._set_neutral()
        self.transformed = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        self.sums = body.at(self.transformed, body.mul(v["plane_nbytes"], self.side**2))
        self.phase_tiles = body.mul(v["down"], v["across"])
        self.phases = body.mul(v["dilation_h"], v["dilation_w"])
        tiles = body.mul(body.mul(v["batch"], self.phases), self.phase_tiles)
        blocks = body.div(body.add(tiles, body.sub(v["block"], 1)), v["block"])
        units = body.mul(blocks, v["panels"])
        grains = body.div(body.add(units, body.sub(v["grain"], 1)), v["grain"])

        def work(number: Value, last: Value, taken: Value) -> Value:
            self._stand_at_group(body.div(number, grains))
            unit = body.mul(body.rem(number, grains), v["grain"])
            self._panels(unit, body.min(units, body.add(unit, v["grain"])), tiles)
            return body.i(1)

        claiming.emit_shares(body, body.mul(grains, v["groups"]), v, work)
        body.b.ret_void()
        return self.module.text(f"winograd{self.m}", Effort.ALL if self.spec.dtype is DType.INT32 else Effort.QUICK)

    def _stand_at_group(self, group: Value) -> None:
        """At a group: its channels of the input, its weights, and its filters of the output and of the operands."""
        body, v = self.body, self.v
        self.x, self.weights, self.y = (body.at(v[n], body.mul(v[f"{n}_group"], group)) for n in ("x", "weights", "y"))
        self.bases = [body.at(operand[0], body.mul(operand[4], group)) for operand in self.operands]

    def _panels(self, first: Value, last: Value, tiles: Value) -> None:
        """Panels of blocks, in the order block, panel."""
        body, v = self.body, self.v
        unit = body.cell(first, "panels")
        with body.repeat_while(lambda: body.less(unit.get(), last)):
            block, panel = body.div(unit.get(), v["panels"]), body.rem(unit.get(), v["panels"])
            count = body.min(body.sub(v["panels"], panel), body.sub(last, unit.get()))
            tile0 = body.mul(block, v["block"])
            number = body.min(v["block"], body.sub(tiles, tile0))
            self._start(tile0)
            with body.loop(0, number) as t:
                self._input(t)
                self._advance()
            self._multiply(number, panel, count)
            self._start(tile0)
            with body.loop(0, number) as t:
                self._output(t, panel, count)
                self._advance()
            unit.add(count)

    def _start(self, index: Value) -> None:
        """Stand at a tile: its image, phase (two numbers), row and column."""
        body, v = self.body, self.v
        number, within = body.div(index, self.phase_tiles), body.rem(index, self.phase_tiles)
        image, phase = body.div(number, self.phases), body.rem(number, self.phases)
        places = {
            "image": image, "phase_y": body.div(phase, v["dilation_w"]), "phase_x": body.rem(phase, v["dilation_w"]),
            "row": body.div(within, v["across"]), "column": body.rem(within, v["across"]),
        }  # fmt: skip
        for name, value in places.items():
            if name in self.place:
                self.place[name].set(value)
            else:
                self.place[name] = body.cell(value, name)

    def _advance(self) -> None:
        """Go on to the next tile."""
        body, v, place = self.body, self.v, self.place
        limits = {"column": v["across"], "row": v["down"], "phase_x": v["dilation_w"], "phase_y": v["dilation_h"]}
        place["column"].add(1)
        with ExitStack() as nested:
            for (name, limit), outer in zip(limits.items(), ("row", "phase_x", "phase_y", "image"), strict=True):
                nested.enter_context(body.when(body.equal(place[name].get(), limit)))
                place[name].set(0)
                place[outer].add(1)

    def _standing(self) -> tuple[Value, Value, Value]:
        """(image, first row, first column of outputs) of the tile; the others follow in steps of the dilation."""
        body, v = self.body, self.v
        image, phase_y, phase_x, row, column = (self.place[n].get() for n in ("image", "phase_y", "phase_x", "row", "column"))
        y = body.add(body.mul(body.mul(row, self.m), v["dilation_h"]), phase_y)
        return image, y, body.add(body.mul(body.mul(column, self.m), v["dilation_w"]), phase_x)

    # --- input ---

    def _input(self, t: Value) -> None:
        body, v, side = self.body, self.v, self.side
        image, row, column = self._standing()
        y0, x0 = body.sub(row, v["pad_h"]), body.sub(column, v["pad_w"])
        batch, plane = body.div(image, v["out_planes"]), body.rem(image, v["out_planes"])
        z0 = body.sub(body.mul(plane, v["plane_step"]), v["pad_plane"])
        source = body.at(self.x, body.mul(batch, v["x_image"]), body.mul(y0, v["x_line"]), body.mul(x0, v["x_pixel"]))
        target = body.at(self.transformed, body.mul(t, v["row_nbytes"]))
        down, across = body.mul(v["dilation_h"], v["x_line"]), body.mul(v["dilation_w"], v["x_pixel"])
        at = [[body.add(start, body.mul(v[f"dilation_{a}"], i)) for i in range(side)] for start, a in ((y0, "h"), (x0, "w"))]
        rows = [body.b.icmp_unsigned("<", y, v["height"]) for y in at[0]]
        columns = [body.b.icmp_unsigned("<", x, v["width"]) for x in at[1]]
        inside = body.b.and_(body.b.and_(rows[0], rows[-1]), body.b.and_(columns[0], columns[-1]))
        with body.loop(0, v["kernel_planes"]) as number:
            z = body.add(z0, body.mul(number, v["plane_dilation"]))
            here = body.b.icmp_unsigned("<", z, v["depth"])
            origin = body.at(source, body.mul(z, v["x_plane"]))
            lines = [body.at(origin, body.mul(down, i)) for i in range(side)]
            pixels = [[body.at(line, body.mul(across, i)) for i in range(side)] for line in lines]
            there = [[body.b.and_(here, body.b.and_(row, column)) for column in columns] for row in rows]
            self._input_channels(
                body.b.and_(inside, here), pixels, there, body.at(target, body.mul(number, v["channels_nbytes"]))
            )

    def _input_channels(
        self, inside: Value, pixels: list[list[Value]], there: list[list[Value]], target: Value
    ) -> None:  # fmt: skip
        """The input tile of one plane: `inside` as a whole, or pixel by pixel where it is `there`."""
        body, v = self.body, self.v
        fast = body.select(inside, body.b.and_(v["channels"], body.i(-self.channels)), 0)
        with body.loop(0, fast, self.channels) as c:
            offset = body.mul(c, self.x_nbytes)
            values = [[self._read(body.at(p, offset)) for p in line] for line in pixels]
            self._transform_input(values, body.at(target, body.mul(c, self.transformed_nbytes)))
        whole = self._border_channels(fast, pixels, there, target)
        with body.loop(whole, v["channels"], self.channels) as c:
            offset = body.mul(c, self.x_nbytes)
            mask = body.mask(body.sub(v["channels"], c), self.channels)
            values = [
                [self._guarded(p, offset, there[i][j], mask) for j, p in enumerate(line)] for i, line in enumerate(pixels)
            ]
            self._transform_input(values, body.at(target, body.mul(c, self.transformed_nbytes)))

    def _border_channels(
        self, first: Value, pixels: list[list[Value]], there: list[list[Value]], target: Value
    ) -> Value:  # fmt: skip
        """Whole vectors from `first` on, where masks cost more than they spare; returns where those begin that need them."""
        return first

    # What vectors of the input, of sums and of outputs are.

    def _set_neutral(self) -> None:
        """The value that is read outside the image."""
        self.body.store(self.body.zero(self.spec.dtype, self.lanes), self.neutral, self.spec.dtype)

    def _read(self, pointer: Value, mask: Value | None = None) -> Value:
        """A vector of channels of a pixel."""
        body, dtype = self.body, self.spec.dtype
        return body.load(pointer, dtype, self.lanes) if mask is None else body.load_masked(pointer, mask, dtype, self.lanes)

    def _input_matrices(self, d: list[list[Value]]) -> Iterator[Value]:
        return of_input(d, self.m, self)

    def _outputs_of(self, sums: list[list[Value]]) -> list[Value]:
        return list(of_sums(sums, self.m, self))

    def _guarded(self, pointer: Value, offset: Value, inside: Value, mask: Value | None) -> Value:
        pointer = self.body.b.select(inside, self.body.at(pointer, offset), self.neutral)
        return self._read(pointer, mask)

    def _transform_input(self, d: list[list[Value]], target: Value) -> None:
        """Bt d B of one vector of channels, to [matrix][tile][channel]."""
        for matrix, value in enumerate(self._input_matrices(d)):
            self.body.store(value, self.body.at(target, self.body.mul(self.v["plane_nbytes"], matrix)), self.spec.dtype)

    def add(self, a: Value, b: Value) -> Value:
        return self.body.b.fadd(a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return self.body.b.fsub(a, b)

    def scaled(self, factor: float, a: Value, b: Value | None = None) -> Value:
        """factor * a + b."""
        by = self.body.constant(factor, self.spec.dtype, self.lanes)
        return self.body.b.fmul(by, a) if b is None else self.body.fma(by, a, b, self.spec.dtype, self.lanes)

    # --- products ---

    def _multiply(self, number: Value, panel0: Value, count: Value) -> None:
        """sums[matrix][panel][tile][NR] for `count` panels from `panel0` on, which lie at the panels' places."""
        body, v, tile = self.body, self.v, self.tile
        pieces = body.div(body.add(number, tile.rows - 1), tile.rows)
        rows, extra = body.div(number, pieces), body.rem(number, pieces)
        panel_nbytes = body.mul(v["k"], tile.width * tile.itemsize)
        near = body.mul(rows, v["row_nbytes"])
        with body.loop(0, self.side**2) as matrix, body.loop(panel0, body.add(panel0, count)) as panel:
            width_nbytes = self._width_nbytes(panel)
            vectors = body.div(width_nbytes, self.vector_nbytes)
            tap_nbytes = body.mul(width_nbytes, STEPS)
            pace = body.div(body.add(tap_nbytes, body.sub(pieces, 1)), pieces)
            right = body.at(self.weights, body.mul(matrix, v["weight_plane_nbytes"]), body.mul(panel, panel_nbytes))
            left = body.at(self.transformed, body.mul(matrix, v["plane_nbytes"]))
            out = self._sums_at(matrix, panel)
            with body.loop(0, v["steps"]) as step:
                tap = body.mul(step, v["per"])
                taps = body.min(v["per"], body.sub(v["units"], tap))
                rest = body.select(body.equal(body.add(step, 1), v["steps"]), v["rest"], 0)
                b = body.at(right, body.mul(tap, tap_nbytes))
                a = body.at(left, body.mul(tap, STEPS * tile.itemsize))
                ahead = body.at(b, body.mul(taps, tap_nbytes), body.mul(rest, width_nbytes))
                accumulate = body.select(body.equal(step, 0), 0, 1)
                with body.loop(0, pieces) as piece:
                    first = body.add(body.mul(piece, rows), body.min(piece, extra))
                    height = body.add(rows, body.select(body.less(piece, extra), 1, 0))
                    body.call_pointer(
                        v["micro"], PARAMETERS,
                        [
                            body.at(a, body.mul(first, v["row_nbytes"])), v["row_nbytes"], b, near, rest, v["taps"], taps,
                            body.at(out, body.mul(first, width_nbytes)), accumulate,
                            body.at(ahead, body.mul(body.mul(piece, taps), pace)), pace, height, vectors,
                        ],
                    )  # fmt: skip

    def _width_nbytes(self, panel: Value) -> Value:
        body, tile = self.body, self.tile
        columns = body.min(body.sub(self.v["filters"], body.mul(panel, tile.width)), tile.width)
        return body.mul(body.div(body.add(columns, self.lanes - 1), self.lanes), self.vector_nbytes)

    def _sums_at(self, matrix: Value, panel: Value) -> Value:
        body = self.body
        per_panel = body.mul(self.v["block"], self.tile.width * self.tile.itemsize)
        return body.at(self.sums, body.mul(matrix, self.v["sums_nbytes"]), body.mul(panel, per_panel))

    # --- output ---

    def _output(self, t: Value, panel0: Value, count: Value) -> None:
        body, v, m = self.body, self.v, self.m
        image, y0, x0 = self._standing()
        rows, columns = self._inside(y0, "h", v["out_height"]), self._inside(x0, "w", v["out_width"])
        complete = body.b.and_(body.equal(rows, m), body.equal(columns, m))
        out = body.at(self.y, body.mul(image, v["y_image"]), body.mul(y0, v["y_line"]), body.mul(x0, v["y_pixel"]))
        self.output_steps = body.mul(v["dilation_w"], v["y_pixel"]), body.mul(v["dilation_h"], v["y_line"])
        self.operand_steps = [(body.mul(v["dilation_w"], o[1]), body.mul(v["dilation_h"], o[2])) for o in self.operands]
        bases = [
            body.at(base, body.mul(x0, o[1]), body.mul(y0, o[2]), body.mul(image, o[3])) if kind == "full" else base
            for kind, base, o in zip(self.finish.kinds, self.bases, self.operands, strict=True)
        ]
        with body.loop(panel0, body.add(panel0, count)) as panel:
            width_nbytes = self._width_nbytes(panel)
            source = body.at(self._sums_at(body.i(0), panel), body.mul(t, width_nbytes))
            with body.loop(0, width_nbytes, self.vector_nbytes) as offset:
                channel = body.add(body.mul(panel, self.tile.width), body.div(offset, self.tile.itemsize))
                values = self._transform_output(body.at(source, offset))
                places = []
                for kind, dtype, base in zip(self.finish.kinds, self.finish.dtypes, bases, strict=True):
                    places.append(base if kind == "scalar" else body.at(base, body.mul(channel, itemsize(dtype))))
                to = body.at(out, body.mul(channel, self.finish.itemsize))
                left = body.sub(v["filters"], channel)
                unrolled = body.b.and_(complete, body.less(self.lanes - 1, left))
                if self.light:
                    with body.either(unrolled) as (fast, slow):
                        with fast:
                            self._store_complete(values, places, to)
                        with slow:
                            self._store_partial(values, places, to, rows, columns, left)
                else:
                    self._store_partial(values, places, to, rows, columns, left)

    def _inside(self, start: Value, axis: str, size: Value) -> Value:
        """How many of a tile's outputs from `start` on lie inside."""
        body, dilation = self.body, self.v[f"dilation_{axis}"]
        left = body.div(body.add(body.sub(size, start), body.sub(dilation, 1)), dilation)
        return body.min(body.select(body.less(start, size), left, 0), self.m)

    def _transform_output(self, source: Value) -> list[Value]:
        """At s A: the m x m outputs of one vector of channels, row by row."""
        body, side = self.body, self.side

        def sums(matrix: int) -> Value:
            return body.load(body.at(source, body.mul(self.v["sums_nbytes"], matrix)), self.spec.dtype, self.lanes)

        return self._outputs_of([[sums(y * side + x) for x in range(side)] for y in range(side)])

    def _store_complete(self, values: list[Value], places: list[Value], to: Value) -> None:
        body, finish, steps = self.body, self.finish, self.output_steps
        fixed = {i: finish.operand(i, place) for i, place in enumerate(places) if finish.kinds[i] != "full"}
        for index, value in enumerate(values):
            y, x = divmod(index, self.m)
            operands = []
            for i, place in enumerate(places):
                across, down = self.operand_steps[i]
                operands.append(
                    fixed[i] if i in fixed else finish.operand(i, body.at(place, body.mul(across, x), body.mul(down, y)))
                )
            finish.store(value, operands, body.at(to, body.mul(steps[0], x), body.mul(steps[1], y)))

    def _store_partial(
        self, values: list[Value], places: list[Value], to: Value, rows: Value, columns: Value, left: Value
    ) -> None:
        body = self.body
        for index, value in enumerate(values):
            body.store(value, body.at(self.outputs, index * self.vector_nbytes), self.spec.dtype)
        self._store_pixels(places, to, rows, columns, left)

    def _store_pixels(self, places: list[Value], to: Value, rows: Value, columns: Value, left: Value) -> None:
        """The finished vectors of `outputs`, as many lanes as are `left`."""
        self._each_pixel(places, to, rows, columns, self.body.mask(left, self.lanes))

    def _each_pixel(self, places: list[Value], to: Value, rows: Value, columns: Value, mask: Value | None) -> None:
        body, finish, steps = self.body, self.finish, self.output_steps
        with body.loop(0, rows) as y, body.loop(0, columns) as x:
            operands = []
            for i, place in enumerate(places):
                (across, below), full = self.operand_steps[i], finish.kinds[i] == "full"
                at = body.at(place, body.mul(across, x), body.mul(below, y)) if full else place
                operands.append(finish.operand(i, at, None if finish.kinds[i] == "scalar" else mask))
            number = body.add(body.mul(y, self.m), x)
            value = body.load(body.at(self.outputs, body.mul(number, self.vector_nbytes)), self.spec.dtype, self.lanes)
            finish.store(value, operands, body.at(to, body.mul(steps[0], x), body.mul(steps[1], y)), mask)
