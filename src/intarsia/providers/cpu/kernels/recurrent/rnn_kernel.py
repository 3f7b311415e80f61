"""The kernel of LSTM, GRU and RNN layers; see `rnn_arguments` for how its work is divided."""

from __future__ import annotations

import functools
from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.phased_threads import emit_lockstep
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import FIELDS, POINTERS, STATES, RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_input_products import InputWriter
from intarsia.providers.cpu.kernels.recurrent.rnn_row_product_int8 import byte_product, state_range
from intarsia.run_status import LENGTH_OUT_OF_RANGE


@functools.lru_cache(maxsize=64)
def kernel_text(spec: RecurrentSpec, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `recurrent_args`."""
    return _Recurrent(spec, target).text()


class _Recurrent(InputWriter):
    """Writes one kernel. `v[name]` is the argument of that name; the state and the sums of a unit lie in scratch."""

    def __init__(self, spec: RecurrentSpec, target: Target) -> None:
        super().__init__(spec, target)
        if spec.stored:
            self.product = byte_product(self.module, target, self.tile)

    def text(self) -> KernelText:
        walk = self._walk_function()
        self.body = body = self.module.kernel()
        args, tid, nthreads = body.args
        v = self._fields(args)
        phases, pieces = body.add(v["seq"], 1), v["pieces"]
        piece, players, player = body.rem(tid, pieces), body.div(nthreads, pieces), body.div(tid, pieces)
        with body.either(body.equal(v["parts"], 0)) as (alone, together):
            with alone:
                first, last = body.share(v["units"], player, players)
                begin, end = body.share(body.mul(body.sub(last, first), phases), piece, pieces)
                memory = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
                with body.loop(first, last) as unit:
                    done = body.mul(body.sub(unit, first), phases)
                    start = body.min(body.max(body.sub(begin, done), 0), phases)
                    stop = body.min(body.max(body.sub(end, done), 0), phases)
                    with body.when(body.less(start, stop)):
                        body.b.call(walk, [args, unit, memory, body.i(0), start, stop, body.i(0), v["blocks"]])
            with together:
                shared = body.at(v["scratch"], body.mul(body.sub(tid, player), v["scratch_nbytes"]))
                groups = body.div(body.add(v["blocks"], body.sub(v["group"], 1)), v["group"])

                def task(number: Value, phase: Value) -> None:
                    unit = body.div(number, v["parts"])
                    low, high = body.share(groups, body.rem(number, v["parts"]), v["parts"])
                    first, end = body.mul(low, v["group"]), body.min(body.mul(high, v["group"]), v["blocks"])
                    memory, other = body.at(shared, body.mul(unit, v["unit_nbytes"])), body.sub(v["unit_nbytes"], v["area"])
                    body.b.call(walk, [args, unit, memory, other, phase, body.add(phase, 1), first, end])

                until = body.div(body.mul(phases, body.add(piece, 1)), pieces)
                tasks = body.mul(v["units"], v["parts"])
                emit_lockstep(body, self.module.target, v["claims"], tasks, phases, until, (player, players), task)
        body.b.ret_void()
        return self.module.text(self.spec.cell.lower())

    def _fields(self, args: Value) -> dict[str, Value]:
        """The kernel's arguments."""
        body = self.body
        return {n: body.load_pointer(args, i) if n in POINTERS else body.load_i64(args, i) for i, n in enumerate(FIELDS)}

    def _walk_function(self) -> Value:
        """An internal function: some blocks of a unit in some phases.

        Phase 0 sets its states, `p` is step `p - 1`, and the last one gives the final states as well. The unit's states and
        sums begin at `memory`; h lies in two buffers in turn, the second `other` bytes behind the first.
        """
        self.body = body = self.module.function("walk", ("p", "i", "p", "i", "i", "i", "i", "i"))
        self.emitter = Emitter(body.b, self.tile.lanes)
        args, unit, memory, other, start, stop, self.first, self.end = body.args
        v = self.v = self._fields(args)
        self.memory, self.direction = memory, body.div(unit, v["chunks"])
        direction, chunk = self.direction, body.rem(unit, v["chunks"])
        self.row = body.add(body.mul(chunk, v["rows"]), body.min(chunk, v["extra_rows"]))
        self.rows = body.add(v["rows"], body.select(body.less(chunk, v["extra_rows"]), 1, 0))
        self.sum_area = body.mul(self.rows, self.panel_row)
        self.place = body.add(body.mul(direction, v["h_direction"]), body.mul(self.row, v["h_row"]))
        self.weights = body.at(v["weights"], body.mul(direction, v["weights_direction"]))
        self.extra = body.at(v["extra"], body.mul(direction, v["extra_direction"]))
        states = [memory]
        for _ in range(STATES[self.spec.cell] + (2 if self.spec.reset_first else 0)):
            states.append(body.at(states[-1], v["area"]))
        self.sums, self.spare = states.pop(), body.at(memory, v["unit_nbytes"])
        self.cell = states[1] if self.spec.cell == "LSTM" else None
        if self.spec.reset_first:
            self.reset, self.update = states[1:]
        self.backward = body.less(0, body.b.or_(direction, v["reverse"]))
        with body.when(body.equal(start, 0)):
            self._check_lengths()
            for state, name in zip((memory, self.cell), ("initial_h", "initial_c"), strict=True):
                if state is not None:
                    self._begin(state, v[name])
            if self.beside is not None:
                with body.when(self._computes()):
                    self._first_inputs()
        x = body.at(v["x"], body.mul(direction, v["x_direction"]), body.mul(self.row, v["x_row"]))
        y = body.add(body.mul(direction, v["y_direction"]), body.mul(self.row, v["y_row"]))
        with body.loop(body.max(start, 1), stop) as phase:
            self._turn(memory, other, phase)
            self.number = body.sub(phase, 1)
            t = body.select(self.backward, body.sub(v["seq"], phase), self.number)
            self.x_area = v["x_area"]
            self._step(t, self._products(body.at(x, body.mul(t, v["x_step"]))), body.add(y, body.mul(t, v["y_step"])))
        with body.when(body.equal(stop, body.add(v["seq"], 1))):
            self._turn(memory, other, v["seq"])
            for state, name in zip((self.new, self.cell), ("y_h", "y_c"), strict=True):
                if state is not None:
                    self._finish(state, v[name])
        body.b.ret_void()
        return body.function

    def _products(self, given: Value) -> Value:
        """The input products of the step: `given`, or what the unit computed."""
        body = self.body
        if self.beside is None:
            return given
        return body.b.select(self._computes(), self._inputs(self.number), given)

    def _turn(self, memory: Value, other: Value, phase: Value) -> None:
        """Where a phase reads and writes h, and which way it goes through R."""
        body = self.body
        self.backwards = body.b.and_(phase, body.i(1))
        odd = body.mul(self.backwards, other)
        self.new, self.hidden = body.at(memory, odd), body.at(memory, body.sub(other, odd))

    def _copy(self, source: Value, target: Value) -> None:
        start, nbytes = self._range()
        self.body.copy(self.body.at(source, start), self.body.at(target, start), nbytes)

    def _range(self) -> tuple[Value, Value]:
        """Where the hidden units of the blocks begin in a row, and their bytes."""
        body = self.body
        start = body.mul(self.first, self.vector_bytes)
        end = body.min(body.mul(self.end, self.vector_bytes), body.mul(self.v["hidden"], self.tile.itemsize))
        return start, body.sub(end, start)

    def _given(self, address: Value) -> Value:
        return self.body.b.icmp_unsigned("!=", address, self.body.i(0))

    def _begin(self, state: Value, initial: Value) -> None:
        body, v = self.body, self.v
        start, end = body.mul(self.first, self.vector_bytes), body.mul(self.end, self.vector_bytes)
        with body.loop(0, self.rows) as i:
            at = body.at(state, body.mul(i, v["state_nbytes"]))
            body.fill(body.at(at, start), body.sub(end, start))
            with body.when(self._given(initial)):
                self._copy(body.at(body.pointer(initial), self.place, body.mul(i, v["h_row"])), at)

    def _finish(self, state: Value, final: Value) -> None:
        body, v = self.body, self.v
        with body.when(self._given(final)), body.loop(0, self.rows) as i:
            to = body.at(body.pointer(final), self.place, body.mul(i, v["h_row"]))
            with body.either(body.less(0, self._length(i))) as (some, none):
                with some:
                    self._copy(body.at(state, body.mul(i, v["state_nbytes"])), to)
                with none:
                    start, nbytes = self._range()
                    body.fill(body.at(to, start), nbytes)

    def _step(self, t: Value, x: Value, y: Value) -> None:
        body, v = self.body, self.v
        first = 2 if self.spec.reset_first else self.gates
        self._multiply(self.hidden, self.weights, first)
        if self.spec.reset_first:
            self._rows(t, x, None, self._reset_block, first)
            self._multiply(self.reset, body.at(self.weights, v["inner"]), 1)
            self._rows(t, x, y, self._candidate_block, 1)
        else:
            blocks = {"LSTM": self._lstm_block, "GRU": self._gru_block, "RNN": self._rnn_block}
            self._rows(t, x, y, blocks[self.spec.cell], first)

    def _multiply(self, a: Value, weights: Value, gates: int) -> None:
        """sums [panel][row][width] = states x weights."""
        body, v = self.body, self.v
        per_panel = self.tile.vectors
        begin = body.div(body.mul(self.first, gates), per_panel)
        panels = body.sub(body.div(body.add(body.mul(self.end, gates), per_panel - 1), per_panel), begin)
        panel_nbytes = body.mul(v["hidden"], self.panel_row)
        if self.spec.stored:
            state_range(body, self.tile, self.rows, lambda i: self._counted_row(a, i), self.spare)
            place = [v["hidden"], v["blocks"], panels, self.sum_area, body.i(self.panel_row), self.sums, self.spare]
            body.b.call(self.product, [a, v["state_nbytes"], self.rows, weights, *place])
            return
        weights, sums = body.at(weights, body.mul(begin, panel_nbytes)), body.at(self.sums, body.mul(begin, self.sum_area))
        with body.either(body.equal(self.rows, 1)) as (single, several):
            with single:
                self._multiply_row(a, weights, panels, panel_nbytes, sums, beside=gates != 1 or self.gates == 1)
            with several:
                tiles = body.div(body.add(self.rows, self.tile.rows - 1), self.tile.rows)
                with body.loop(0, panels) as panel, body.loop(0, tiles) as number:
                    low, high = body.share(self.rows, number, tiles)
                    b = body.at(weights, body.mul(panel, panel_nbytes))
                    out = body.at(sums, body.mul(panel, self.sum_area), body.mul(low, self.panel_row))
                    row, pitch = body.at(a, body.mul(low, v["state_nbytes"])), v["state_nbytes"]
                    place = [row, pitch, b, self.panel_row, v["hidden"], v["taps"], 1, out, 0]
                    ahead = [body.at(b, panel_nbytes), self.panel_row]
                    body.call_pointer(v["micro"], PARAMETERS, [*place, *ahead, body.sub(high, low), per_panel])

    def _counted_row(self, a: Value, i: Value) -> tuple[Value, Value]:
        """A row of the state, and its vectors: none from the second step behind a sequence's end on, as onnxruntime has it."""
        body, v = self.body, self.v
        ended = body.less(self._length(i), self.number)
        return body.at(a, body.mul(i, v["state_nbytes"])), body.select(ended, 0, v["blocks"])

    def _multiply_row(
        self, a: Value, weights: Value, panels: Value, panel_nbytes: Value, sums: Value, *, beside: bool
    ) -> None:  # fmt: skip
        """The same for one row, and its share of input products, unless another product of the step has that."""
        body, hidden = self.body, self.v["hidden"]
        alone = [a, weights, hidden, panels, panel_nbytes, sums, self.backwards]
        if self.beside is None or not beside:
            body.b.call(self.product, alone)
            return
        with body.either(self._computes()) as (computes, given):
            with computes:
                self._multiply_beside(self.number, a, weights, sums, panels, panel_nbytes)
            with given:
                body.b.call(self.product, alone)

    def _rows(self, t: Value, x: Value, y: Value | None, block: Callable[[Value], None], gates: int) -> None:
        """Run `block` over the hidden units of every row whose sequence has not ended; then store the row's output."""
        body, v = self.body, self.v
        with body.loop(0, self.rows) as i:
            live, moved = self._live(t, i)
            self.x = body.at(x, body.mul(i, v["x_row"]), *([body.mul(moved, v["x_step"])] if moved is not None else []))
            self.line, self.sum_gates = body.at(self.sums, body.mul(i, self.panel_row)), gates
            self.at_row = body.mul(i, v["state_nbytes"])
            with body.when(live), body.loop(self.first, self.end) as self.block:
                block(body.add(self.at_row, body.mul(self.block, self.vector_bytes)))
            if y is not None:
                out = body.add(y, body.mul(i, v["y_row"]))
                self._output(live, out if moved is None else body.add(out, body.mul(moved, v["y_step"])))

    def _output(self, live: Value, y: Value) -> None:
        """Y at a row and step: the state, or zero where the sequence has ended, whose state stays as it is."""
        body, given = self.body, self._given(self.v["y"])
        out = body.at(body.pointer(self.v["y"]), y)
        new = body.at(self.new, self.at_row)
        with body.either(live) as (running, ended):
            with running, body.when(given):
                self._copy(new, out)
            with ended:
                self._copy(body.at(self.hidden, self.at_row), new)
                with body.when(given):
                    start, nbytes = self._range()
                    body.fill(body.at(out, start), nbytes)

    def _live(self, t: Value, i: Value) -> tuple[Value, Value | None]:
        """Whether step `t` lies in the sequence of row `i`. Rows that share a scale all begin together, so that each is at a
        step of its own where they go backwards: how many behind `t`."""
        body, length = self.body, self._length(i)
        if not self.spec.stored:
            return body.less(t, length), None
        live = body.less(self.number, length)
        own = body.select(live, body.sub(body.sub(length, 1), self.number), self.number)
        return live, body.sub(body.select(self.backward, own, self.number), t)

    def _length(self, i: Value) -> Value:
        """Steps of the sequence of row `i`; those of X bound what is given."""
        body, v = self.body, self.v
        length = body.cell(v["seq"], "length")
        with body.when(self._given(v["lengths"])):
            length.set(body.min(body.max(self._given_length(i), 0), v["seq"]))
        return length.get()

    def _given_length(self, i: Value) -> Value:
        body, v = self.body, self.v
        at = body.at(body.pointer(v["lengths"]), body.mul(body.add(self.row, i), 4))
        return body.b.sext(body.load(at, DType.INT32, 1), v["seq"].type)

    def _check_lengths(self) -> None:
        """Tell `status` of a length that is negative or more than there are steps."""
        body, v = self.body, self.v
        with body.when(self._given(v["lengths"])), body.loop(0, self.rows) as i:
            outside = body.b.icmp_unsigned(">", self._given_length(i), v["seq"])
            with body.when(outside):
                body.store(body.i(LENGTH_OUT_OF_RANGE), body.pointer(v["status"]), DType.INT64)
