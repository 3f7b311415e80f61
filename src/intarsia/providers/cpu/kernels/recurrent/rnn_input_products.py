"""The input products of a recurrent layer of one row, computed beside its steps.

A step of one row waits for R, multiply-adds are idle meanwhile; an input product waits for multiply-adds only. So rows of X are
taken `TILE_ROWS` at a time, in the order of the steps: while the steps of one group of them run, the products of the next one
are computed, chunk by chunk (a panel of W, at most as many of its rows as R has), each beside `TOGETHER` panels of R
(`rnn_row_product.row_and_tile`). Chunks are dealt out evenly to the steps of a group, and what a step has no panels of R for
follows it. Only the first group, of what is left over of the sequence, is computed before.

A unit has two groups' products in scratch memory, panel by panel as sums are, instead of those of the whole sequence. A
step's share follows from its number, so that steps may be those of pieces and parts.
"""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import TILE_ROWS, RecurrentSpec, has_registers
from intarsia.providers.cpu.kernels.recurrent.rnn_cells import CellWriter
from intarsia.providers.cpu.kernels.recurrent.rnn_row_product import TOGETHER, row_and_tile, row_product


class InputWriter(CellWriter):
    """Writes a unit's input products, where it has them to compute. Times of the sequence are numbers of steps, from 0."""

    module: Module
    v: dict[str, Value]
    first: Value
    end: Value
    row: Value
    memory: Value
    direction: Value
    backward: Value
    backwards: Value

    def __init__(self, spec: RecurrentSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.module = Module(target)
        self.panel_row = self.tile.width * self.tile.itemsize
        self.product = row_product(self.module, spec.dtype, self.tile) if not spec.stored else None
        beside = has_registers(spec, self.tile)
        self.beside = row_and_tile(self.module, spec.dtype, self.tile) if beside else None
        self.tile_nbytes = TILE_ROWS * self.panel_row

    def _computes(self) -> Value:
        """Whether this unit computes its own input products."""
        return self.body.b.icmp_unsigned("!=", self.v["source"], self.body.i(0))

    def _input_panels(self) -> tuple[Value, Value]:
        """The first panel of W's columns of the blocks, and how many there are."""
        body, n = self.body, self.tile.vectors
        begin = body.div(body.mul(self.first, self.gates), n)
        return begin, body.sub(body.div(body.add(body.mul(self.end, self.gates), n - 1), n), begin)

    def _place_of(self, step: Value) -> tuple[Value, Value]:
        """The group of a step, and its row in there."""
        body, lead = self.body, self.v["lead"]
        behind = body.add(body.sub(step, lead), TILE_ROWS)
        early = body.less(step, lead)
        group = body.select(early, 0, body.div(behind, TILE_ROWS))
        return group, body.select(early, step, body.rem(behind, TILE_ROWS))

    def _group_memory(self, group: Value) -> Value:
        odd = self.body.mul(self.body.b.and_(group, self.body.i(1)), self.v["group_nbytes"])
        return self.body.at(self.memory, self.v["products"], odd)

    def _inputs(self, step: Value) -> Value:
        """The products of a step."""
        group, row = self._place_of(step)
        return self.body.at(self._group_memory(group), self.body.mul(row, self.panel_row))

    def _first_inputs(self) -> None:
        """The products of the first group."""
        _, panels = self._input_panels()
        count = self.body.mul(panels, self.v["chunks_deep"])
        with self.body.loop(0, count) as number:
            self._alone(number, self.body.i(0), self.v["lead"])

    def _alone(self, number: Value, group: Value, rows: Value) -> None:
        """A chunk of a group, by the micro-kernel."""
        left, pitch, right, depth, out = self._chunk(number, group, rows)
        ends = [self.body.at(right, self.body.mul(depth, self.panel_row)), self.panel_row, rows, self.tile.vectors]
        place = [left, pitch, right, self.panel_row, depth, self.v["taps"], 1, out, 1, *ends]
        self.body.call_pointer(self.v["micro"], PARAMETERS, place)

    def _chunk(self, number: Value, group: Value, rows: Value) -> tuple[Value, Value, Value, Value, Value]:
        """Where a chunk's rows of X begin, their pitch, its part of W, how deep it is, and its tile, set to the biases where it
        is the panel's first."""
        body, v = self.body, self.v
        begin, _ = self._input_panels()
        panel = body.add(begin, body.div(number, v["chunks_deep"]))
        start = body.mul(body.rem(number, v["chunks_deep"]), v["hidden"])
        before = body.select(body.equal(group, 0), 0, body.sub(body.add(v["lead"], body.mul(group, TILE_ROWS)), TILE_ROWS))
        step = body.select(self.backward, body.sub(body.sub(v["seq"], 1), before), before)
        pitch = body.select(self.backward, body.sub(0, v["source_step"]), v["source_step"])
        x = body.at(body.pointer(v["source"]), body.mul(self.row, v["source_row"]), body.mul(step, v["source_step"]))
        panel_nbytes = body.mul(v["depth"], self.panel_row)
        w = body.at(v["inputs"], body.mul(self.direction, v["inputs_direction"]), body.mul(panel, panel_nbytes))
        out = body.at(self._group_memory(group), body.mul(panel, self.tile_nbytes))
        with body.when(body.equal(start, 0)):
            self._set_biases(panel, out, rows)
        depth = body.min(v["hidden"], body.sub(v["depth"], start))
        return body.at(x, body.mul(start, self.tile.itemsize)), pitch, body.at(w, body.mul(start, self.panel_row)), depth, out

    def _set_biases(self, panel: Value, out: Value, rows: Value) -> None:
        body, v, lanes = self.body, self.v, self.tile.lanes
        place = body.add(body.mul(self.direction, v["x_direction"]), body.mul(panel, self.panel_row))
        bias = body.at(v["bias"], place)
        offsets = [n * self.vector_bytes for n in range(self.tile.vectors)]
        values = [body.load(body.at(bias, offset), self.spec.dtype, lanes) for offset in offsets]
        with body.loop(0, rows) as i:
            line = body.at(out, body.mul(i, self.panel_row))
            for value, offset in zip(values, offsets, strict=True):
                body.store(value, body.at(line, offset), self.spec.dtype)

    def _multiply_beside(self, step: Value, a: Value, weights: Value, out: Value, panels: Value, panel_nbytes: Value) -> None:
        """The recurrent product of a row's step, and its share of the next group's input products."""
        body, v = self.body, self.v
        group, row = self._place_of(step)
        following = body.add(group, 1)
        steps = body.select(body.equal(group, 0), v["lead"], TILE_ROWS)
        _, input_panels = self._input_panels()
        there = body.less(following, v["groups"])
        chunks = body.select(there, body.mul(input_panels, v["chunks_deep"]), 0)
        low, high = body.share(chunks, row, steps)
        number, rows = body.cell(low, "chunk"), body.i(TILE_ROWS)
        whole = body.div(panels, TOGETHER)
        with body.loop(0, whole) as i:
            forwards = body.equal(self.backwards, 0)
            at = body.mul(body.select(forwards, i, body.sub(body.sub(whole, 1), i)), TOGETHER)
            b, sums = body.at(weights, body.mul(at, panel_nbytes)), body.at(out, body.mul(at, self.panel_row))
            with body.either(body.less(number.get(), high)) as (both, alone):
                with both:
                    chunk = self._chunk(number.get(), following, rows)
                    body.b.call(self.beside, [a, b, v["hidden"], panel_nbytes, sums, *chunk])
                    number.add(1)
                with alone:
                    body.b.call(self.product, [a, b, v["hidden"], body.i(TOGETHER), panel_nbytes, sums, body.i(0)])
        done = body.mul(whole, TOGETHER)
        b, sums = body.at(weights, body.mul(done, panel_nbytes)), body.at(out, body.mul(done, self.panel_row))
        body.b.call(self.product, [a, b, v["hidden"], body.sub(panels, done), panel_nbytes, sums, body.i(0)])
        with body.loop(number.get(), high) as left:
            self._alone(left, following, rows)
