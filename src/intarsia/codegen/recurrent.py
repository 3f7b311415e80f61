"""LSTM, GRU and RNN layers: the loop over a sequence, whose input products are known.

`X W^T + bias` of the whole sequence is one matrix product (`codegen.gemm`) whose columns are arranged as `arrange` says;
this kernel adds the recurrent product of every step and updates the state. A unit of work is one direction of a few rows
of the batch, over all steps: it needs nothing of another thread. A thread may do its share in pieces, some steps at a time,
so that a long sequence can be stopped.

Columns are arranged by blocks of one vector of hidden units, each block all gates in turn (the last block and the last
panel are filled with zeros), so that one pass over the hidden units has all it needs in vectors.

R is read once for every step and unit. One row is a product by a vector, as fast as the second-level cache delivers; more
rows go through the micro-kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.emit import Emitter
from intarsia.codegen.engine import KernelText
from intarsia.codegen.microkernel import PARAMETERS, Tile, tile_of
from intarsia.codegen.pack import aligned_zeros, pack_matrix
from intarsia.codegen.recurrent_bytes import byte_row_product, packed_words, spare_nbytes
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.activations import ACTIVATIONS

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_TOGETHER = 4  # panels that the product of one row reads at a time: 8 accumulators hide the latency of an addition
_LINE = 64
_FIELDS = (
    "micro x x_step x_row x_direction weights weights_direction inner extra extra_direction taps lengths "
    "seq hidden blocks state_nbytes initial_h initial_c y_h y_c h_direction h_row y y_step y_direction y_row "
    "reverse units chunks rows extra_rows scratch scratch_nbytes pieces"
).split()
PIECES = _FIELDS.index("pieces")
_POINTERS = frozenset("micro x weights extra taps scratch".split())

Activation = tuple[str, float, float]


@dataclass(frozen=True)
class RecurrentSpec:
    """What is compiled in.

    Attributes:
        cell: "LSTM", "GRU" or "RNN".
        activations: (name, alpha, beta) of f, g, h as far as the cell has them, the same for all directions.
        dtype: FLOAT or DOUBLE.
        clip: bound of the activations' arguments.
        peepholes: whether an LSTM has them.
        input_forget: whether an LSTM's forget gate is 1 - i.
        linear_before_reset: whether a GRU's reset gate applies to the recurrent product, not to its operand.
        stored: whether R is of 8 bits, as `recurrent_bytes` packs it (of float; not of a GRU that resets first).
    """

    cell: str
    activations: tuple[Activation, ...]
    dtype: DType = DType.FLOAT
    clip: float | None = None
    peepholes: bool = False
    input_forget: bool = False
    linear_before_reset: bool = False
    stored: bool = False

    def __post_init__(self) -> None:
        if self.cell not in GATES:
            raise ValueError(f"cell is one of {', '.join(GATES)}; got {self.cell!r}")
        for name, _, _ in self.activations:
            if name.lower() not in ACTIVATIONS:
                raise ValueError(f"activation {name!r} is not known; expected one of {', '.join(ACTIVATIONS)}")

    @property
    def reset_first(self) -> bool:
        """Whether the candidate gate's product has to wait for the reset gate: a product of its own."""
        return self.cell == "GRU" and not self.linear_before_reset


# --- layout -------------------------------------------------------------------------------------------------------


def blocks_of(hidden: int, tile: Tile) -> int:
    """Vectors that hold the hidden units."""
    return -(-hidden // tile.lanes)


def columns_of(hidden: int, gates: int, tile: Tile) -> int:
    """Columns of an arranged product: whole panels."""
    return -(-blocks_of(hidden, tile) * gates * tile.lanes // tile.width) * tile.width


def arrange(w: np.ndarray, gates: int, tile: Tile) -> np.ndarray:
    """[..., gates * hidden] in ONNX's order to [..., columns]: block by block of hidden units, each with all its gates."""
    *lead, rows = w.shape
    hidden = rows // gates
    blocks = blocks_of(hidden, tile)
    out = np.zeros((*lead, columns_of(hidden, gates, tile)), w.dtype)
    padded = np.zeros((*lead, gates, blocks * tile.lanes), w.dtype)
    padded[..., :hidden] = w.reshape(*lead, gates, hidden)
    moved = np.moveaxis(padded.reshape(*lead, gates, blocks, tile.lanes), -3, -2)
    out[..., : blocks * gates * tile.lanes] = moved.reshape(*lead, blocks * gates * tile.lanes)
    return out


def input_matrix(w: np.ndarray, gates: int, tile: Tile) -> np.ndarray:
    """W [directions, gates * hidden, input] as the [input, directions * columns] matrix of one product."""
    arranged = arrange(np.moveaxis(w, 2, 1), gates, tile)  # [directions, input, columns]
    return np.moveaxis(arranged, 0, 1).reshape(w.shape[2], -1)


def pack_recurrent(r: np.ndarray, spec: RecurrentSpec, tile: Tile) -> np.ndarray:
    """R [directions, gates * hidden, hidden] as panels; a GRU that resets first has its candidate gate's behind the others."""
    gates, hidden = GATES[spec.cell], r.shape[2]
    parts = [(0, gates)] if not spec.reset_first else [(0, 2), (2, 3)]
    packed = [
        pack_matrix(arrange(np.moveaxis(r[:, first * hidden : last * hidden], 2, 1), last - first, tile), tile)
        for first, last in parts
    ]
    out = aligned_zeros((len(r), sum(p.shape[-1] for p in packed)), r.dtype)
    np.concatenate(packed, axis=1, out=out)
    return out


# --- arguments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecurrentShape:
    """Sizes of a call; strides are for dense tensors, batch first if `batch_first` (ONNX's layout 1)."""

    seq: int
    batch: int
    hidden: int
    directions: int
    reverse: bool = False
    batch_first: bool = False


_ORDERED_THREADS = 2  # for so many the batch is cut where results must not depend on how many there are


def chunks_of(shape: RecurrentShape, threads: int, tile: Tile) -> int:
    """Into how many parts the batch is cut: no more rows than a register tile's, and as many units as threads."""
    least = max(1, -(-shape.batch // tile.rows))
    for chunks in range(least, min(shape.batch, least + threads) + 1):
        if shape.directions * chunks % threads == 0:
            return chunks
    return min(max(1, shape.batch), max(least, -(-threads // shape.directions)))


def _widths(spec: RecurrentSpec, hidden: int, tile: Tile) -> tuple[int, int, int]:
    """Bytes of a row of state, and columns of the (first) recurrent product, and of the candidate gate's own."""
    state = blocks_of(hidden, tile) * tile.lanes * tile.itemsize + _LINE
    first = columns_of(hidden, 2 if spec.reset_first else GATES[spec.cell], tile)
    return state, first, columns_of(hidden, 1, tile) if spec.reset_first else 0


def scratch_nbytes(spec: RecurrentSpec, target: Target, hidden: int) -> int:
    """Bytes that a thread needs: states, sums of the products."""
    tile = tile_of(spec.dtype, target)
    state, first, second = _widths(spec, hidden, tile)
    states = STATES[spec.cell] + (2 if spec.reset_first else 0)
    spare = spare_nbytes(blocks_of(hidden, tile) * tile.lanes) if spec.stored else 0
    return -(-tile.rows * (states * state + max(first, second) * tile.itemsize) // _LINE) * _LINE + spare


def recurrent_args(
    spec: RecurrentSpec,
    target: Target,
    shape: RecurrentShape,
    threads: int,
    *,
    micro: int,
    x: int,
    weights: int,
    taps: int,
    scratch: int,
    extra: int = 0,
    lengths: int = 0,
    initial: Sequence[int] = (0, 0),
    y: int = 0,
    finals: Sequence[int] = (0, 0),
) -> list[int]:
    """The kernel's arguments; addresses may be 0 for what is omitted.

    `x` holds the input products, [seq, batch, directions * columns] ([batch, seq, ...] if batch first); `weights` is
    `pack_recurrent`'s; `extra` the arranged peepholes [directions, columns of 3 gates] or, of a GRU that is linear before
    reset, the bias of the candidate's recurrent product [directions, columns of 1 gate]; `lengths` int32 [batch]. `scratch`
    is `scratch_nbytes` bytes for every thread, `taps` one int64 0.
    """
    tile = tile_of(spec.dtype, target)
    item = tile.itemsize
    state, first, second = _widths(spec, shape.hidden, tile)
    row = columns_of(shape.hidden, GATES[spec.cell], tile) * item
    extra_row = columns_of(shape.hidden, 3 if spec.peepholes else 1, tile) * item
    hidden_nbytes = shape.hidden * item
    x_pixel, y_pixel = shape.directions * row, shape.directions * hidden_nbytes
    if shape.batch_first:
        x_step, x_row = x_pixel, shape.seq * x_pixel
        y_step, y_direction, y_row = y_pixel, hidden_nbytes, shape.seq * y_pixel
        h_direction, h_row = hidden_nbytes, y_pixel
    else:
        x_step, x_row = shape.batch * x_pixel, x_pixel
        y_step, y_direction, y_row = shape.batch * y_pixel, shape.batch * hidden_nbytes, hidden_nbytes
        h_direction, h_row = y_direction, hidden_nbytes
    # One row alone has a product of its own, which sums in another order.
    chunks = chunks_of(shape, _ORDERED_THREADS if target.ordered else threads, tile)
    weights_direction = packed_words(shape.hidden, first) * 4 if spec.stored else shape.hidden * (first + second) * item
    initials, ends = (*initial, 0)[:2], (*finals, 0)[:2]
    return [
        micro, x, x_step, x_row, row, weights, weights_direction, shape.hidden * first * item, extra, extra_row, taps,
        lengths, shape.seq, shape.hidden, blocks_of(shape.hidden, tile), state, *initials, *ends, h_direction, h_row, y, y_step,
        y_direction, y_row, int(shape.reverse), shape.directions * chunks if shape.batch else 0, chunks, shape.batch // chunks,
        shape.batch % chunks, scratch, scratch_nbytes(spec, target, shape.hidden), 1,
    ]  # fmt: skip


# --- code ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def kernel_text(spec: RecurrentSpec, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `recurrent_args`."""
    return _Recurrent(spec, target).text()


class _Recurrent:
    """Writes one kernel. `v[name]` is the argument of that name; the state and the sums of a unit lie in scratch."""

    def __init__(self, spec: RecurrentSpec, target: Target) -> None:
        self.spec, self.module = spec, Module(target)
        self.tile = tile_of(spec.dtype, target)
        self.vector_bytes = self.tile.lanes * self.tile.itemsize
        self.panel_row = self.tile.width * self.tile.itemsize
        self.gates = GATES[spec.cell]
        if spec.stored:
            self.product = byte_row_product(self.module, target, self.tile)
        else:
            self.product = _row_product(self.module, spec.dtype, self.tile)
        self.body: Body = self.module.kernel()
        self.emitter = Emitter(self.body.b, self.tile.lanes)

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        self.v: dict[str, Value] = {}
        for index, name in enumerate(_FIELDS):
            self.v[name] = body.load_pointer(args, index) if name in _POINTERS else body.load_i64(args, index)
        v = self.v
        self.area = body.mul(v["state_nbytes"], self.tile.rows)
        states = [body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))]
        for _ in range(STATES[self.spec.cell] + (2 if self.spec.reset_first else 0)):
            states.append(body.at(states[-1], self.area))
        self.sums = states.pop()
        self.hidden, self.cell = states[0], states[1] if self.spec.cell == "LSTM" else None
        self.states = states[: STATES[self.spec.cell]]
        if self.spec.reset_first:
            self.reset, self.update = states[1:]
        pieces = v["pieces"]
        piece, players = body.rem(tid, pieces), body.div(nthreads, pieces)
        first, last = body.share(v["units"], body.div(tid, pieces), players)
        begin, end = body.share(body.mul(body.sub(last, first), v["seq"]), piece, pieces)
        empty = body.less(v["seq"], 1)
        with body.loop(first, last) as unit:
            done = body.mul(body.sub(unit, first), v["seq"])
            start = body.min(body.max(body.sub(begin, done), 0), v["seq"])
            stop = body.min(body.max(body.sub(end, done), 0), v["seq"])
            with body.when(body.b.or_(body.less(start, stop), empty)):
                self._unit(body.div(unit, v["chunks"]), body.rem(unit, v["chunks"]), start, stop)
        body.b.ret_void()
        return self.module.text(self.spec.cell.lower())

    def _unit(self, direction: Value, chunk: Value, start: Value, stop: Value) -> None:
        """Steps from `start` to `stop` of some rows of the batch in one direction."""
        body, v = self.body, self.v
        self.row = body.add(body.mul(chunk, v["rows"]), body.min(chunk, v["extra_rows"]))
        self.rows = body.add(v["rows"], body.select(body.less(chunk, v["extra_rows"]), 1, 0))
        self.sum_area = body.mul(self.rows, self.panel_row)
        backward = body.less(0, body.b.or_(direction, v["reverse"]))
        place = body.add(body.mul(direction, v["h_direction"]), body.mul(self.row, v["h_row"]))
        self.weights = body.at(v["weights"], body.mul(direction, v["weights_direction"]))
        self.extra = body.at(v["extra"], body.mul(direction, v["extra_direction"]))
        x = body.at(v["x"], body.mul(direction, v["x_direction"]), body.mul(self.row, v["x_row"]))
        y = body.add(body.mul(direction, v["y_direction"]), body.mul(self.row, v["y_row"]))
        with body.when(body.less(start, 1)):
            for state, name in zip(self.states, ("initial_h", "initial_c"), strict=False):
                self._begin(state, v[name], place)
        with body.loop(start, stop) as step:
            t = body.select(backward, body.sub(body.sub(v["seq"], 1), step), step)
            self._step(t, body.at(x, body.mul(t, v["x_step"])), body.add(y, body.mul(t, v["y_step"])))
        with body.when(body.equal(stop, v["seq"])):
            for state, name in zip(self.states, ("y_h", "y_c"), strict=False):
                with body.when(self._given(v[name])), body.loop(0, self.rows) as i:
                    end = body.at(body.pointer(v[name]), place, body.mul(i, v["h_row"]))
                    body.copy(body.at(state, body.mul(i, v["state_nbytes"])), end, self._hidden_nbytes())

    def _given(self, address: Value) -> Value:
        return self.body.b.icmp_unsigned("!=", address, self.body.i(0))

    def _hidden_nbytes(self) -> Value:
        return self.body.mul(self.v["hidden"], self.tile.itemsize)

    def _begin(self, state: Value, initial: Value, place: Value) -> None:
        body, v = self.body, self.v
        body.fill(state, body.mul(self.rows, v["state_nbytes"]))
        with body.when(self._given(initial)), body.loop(0, self.rows) as i:
            source = body.at(body.pointer(initial), place, body.mul(i, v["h_row"]))
            body.copy(source, body.at(state, body.mul(i, v["state_nbytes"])), self._hidden_nbytes())

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
        panels = body.div(body.add(body.mul(v["blocks"], gates), per_panel - 1), per_panel)
        panel_nbytes = body.mul(v["hidden"], self.panel_row)
        if self.spec.stored:
            spare = body.at(self.sums, body.mul(body.mul(panels, self.panel_row), self.tile.rows))
            with body.loop(0, self.rows) as i:
                row, sums = body.at(a, body.mul(i, v["state_nbytes"])), body.at(self.sums, body.mul(i, self.panel_row))
                place = [v["hidden"], v["blocks"], panels, self.sum_area, sums, spare]
                body.b.call(self.product, [row, weights, *place])
            return
        with body.either(body.equal(self.rows, 1)) as (single, several):
            with single:
                body.b.call(self.product, [a, weights, v["hidden"], panels, panel_nbytes, self.sums])
            with several, body.loop(0, panels) as panel:
                b = body.at(weights, body.mul(panel, panel_nbytes))
                place = [b, self.panel_row, v["hidden"], v["taps"], 1, body.at(self.sums, body.mul(panel, self.sum_area))]
                body.call_pointer(
                    v["micro"], PARAMETERS,
                    [a, v["state_nbytes"], *place, 0, body.at(b, panel_nbytes), self.panel_row, self.rows, per_panel],
                )  # fmt: skip

    def _rows(self, t: Value, x: Value, y: Value | None, block: Callable[[Value], None], gates: int) -> None:
        """Run `block` over the hidden units of every row whose sequence has not ended; then store the row's output."""
        body, v = self.body, self.v
        with body.loop(0, self.rows) as i:
            live = self._live(t, i)
            self.x = body.at(x, body.mul(i, v["x_row"]))
            self.line, self.sum_gates = body.at(self.sums, body.mul(i, self.panel_row)), gates
            self.at_row = body.mul(i, v["state_nbytes"])
            with body.when(live), body.loop(0, v["blocks"]) as self.block:
                block(body.add(self.at_row, body.mul(self.block, self.vector_bytes)))
            if y is not None:
                self._output(live, body.add(y, body.mul(i, v["y_row"])))

    def _output(self, live: Value, y: Value) -> None:
        """Y at a row and step: the state, or zero where the sequence has ended."""
        body = self.body
        with body.when(self._given(self.v["y"])):
            out = body.at(body.pointer(self.v["y"]), y)
            with body.either(live) as (running, ended):
                with running:
                    body.copy(body.at(self.hidden, self.at_row), out, self._hidden_nbytes())
                with ended:
                    body.fill(out, self._hidden_nbytes())

    def _live(self, t: Value, i: Value) -> Value:
        """Whether step `t` lies in the sequence of row `i`."""
        body, v = self.body, self.v
        length = body.cell(v["seq"], "length")
        with body.when(self._given(v["lengths"])):
            at = body.at(body.pointer(v["lengths"]), body.mul(body.add(self.row, i), 4))
            length.set(body.b.sext(body.load(at, DType.INT32, 1), v["seq"].type))
        return body.less(t, length.get())

    # --- one vector of hidden units ---

    def _load(self, base: Value, offset: Value) -> Value:
        return self.body.load(self.body.at(base, offset), self.spec.dtype, self.tile.lanes)

    def _store(self, value: Value, base: Value, offset: Value) -> None:
        self.body.store(value, self.body.at(base, offset), self.spec.dtype)

    def _input(self, gate: int) -> Value:
        """The gate's input product, bias included."""
        body = self.body
        return self._load(self.x, body.mul(body.add(body.mul(self.block, self.gates), gate), self.vector_bytes))

    def _sum(self, gate: int) -> Value:
        """The gate's recurrent product: vector `block * gates + gate` of panels of `vectors` vectors."""
        body, n = self.body, self.tile.vectors
        index = body.add(body.mul(self.block, self.sum_gates), gate)
        inside = body.mul(body.rem(index, n), self.vector_bytes)
        return self._load(self.line, body.add(body.mul(body.div(index, n), self.sum_area), inside))

    def _constant(self, index: int, count: int) -> Value:
        """Vector `index` of the `count` that `extra` holds for a block."""
        body = self.body
        return self._load(self.extra, body.mul(body.add(body.mul(self.block, count), index), self.vector_bytes))

    def _activate(self, which: int, value: Value) -> Value:
        """Activation f, g or h (0, 1, 2) of a value, clipped before."""
        name, alpha, beta = self.spec.activations[which]
        x = k.input(0, self.spec.dtype, ())
        if self.spec.clip is not None:
            x = k.minimum(k.maximum(x, -self.spec.clip), self.spec.clip)
        return self.emitter.evaluate(ACTIVATIONS[name.lower()](x, alpha, beta), {0: value})

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.body.fma(a, b, c, self.spec.dtype, self.tile.lanes)

    def _one_minus(self, x: Value) -> Value:
        return self.body.b.fsub(self.body.constant(1.0, self.spec.dtype, self.tile.lanes), x)

    def _lstm_block(self, offset: Value) -> None:
        """c' = f c + i g(z_c), h' = o h(c'); gates in the order i, o, f, c, peepholes in the order i, o, f."""
        b, spec = self.body.b, self.spec
        assert self.cell is not None
        cell = self._load(self.cell, offset)

        def gate(index: int, state: Value) -> Value:
            total = b.fadd(self._input(index), self._sum(index))
            return self._fma(self._constant(index, 3), state, total) if spec.peepholes else total

        i = self._activate(0, gate(0, cell))
        forget = self._one_minus(i) if spec.input_forget else self._activate(0, gate(2, cell))
        candidate = self._activate(1, b.fadd(self._input(3), self._sum(3)))
        cell = self._fma(forget, cell, b.fmul(i, candidate))
        o = self._activate(0, gate(1, cell))
        name, alpha, beta = spec.activations[2]
        x = k.input(0, spec.dtype, ())
        squashed = self.emitter.evaluate(ACTIVATIONS[name.lower()](x, alpha, beta), {0: cell})
        self._store(cell, self.cell, offset)
        self._store(b.fmul(o, squashed), self.hidden, offset)

    def _gru_block(self, offset: Value) -> None:
        """h' = (1 - z) g(x_h + r (R_h h + b)) + z h; gates in the order z, r, h."""
        b = self.body.b
        z = self._activate(0, b.fadd(self._input(0), self._sum(0)))
        r = self._activate(0, b.fadd(self._input(1), self._sum(1)))
        inner = b.fadd(self._sum(2), self._constant(0, 1))
        self._mix(z, self._activate(1, self._fma(r, inner, self._input(2))), offset)

    def _reset_block(self, offset: Value) -> None:
        """The first half of a GRU that resets first: z, and r h, which the candidate's product takes."""
        b = self.body.b
        self._store(self._activate(0, b.fadd(self._input(0), self._sum(0))), self.update, offset)
        r = self._activate(0, b.fadd(self._input(1), self._sum(1)))
        self._store(b.fmul(r, self._load(self.hidden, offset)), self.reset, offset)

    def _candidate_block(self, offset: Value) -> None:
        """h' = (1 - z) g(x_h + R_h (r h)) + z h."""
        candidate = self._activate(1, self.body.b.fadd(self._input(2), self._sum(0)))
        self._mix(self._load(self.update, offset), candidate, offset)

    def _mix(self, z: Value, candidate: Value, offset: Value) -> None:
        hidden = self._load(self.hidden, offset)
        self._store(self._fma(z, hidden, self.body.b.fmul(self._one_minus(z), candidate)), self.hidden, offset)

    def _rnn_block(self, offset: Value) -> None:
        """h' = f(x + R h)."""
        self._store(self._activate(0, self.body.b.fadd(self._input(0), self._sum(0))), self.hidden, offset)


def _row_product(module: Module, dtype: DType, tile: Tile) -> Value:
    """An internal function: one row times panels.

    (ptr a, ptr b, i64 k, i64 panels, i64 panel_nbytes, ptr sums): sums[panel][j] = sum over p < k of a[p] * b[panel][p][j].
    """
    body = module.function("row_product", ("p", "p", "i", "i", "i", "p"))
    a, b, depth, panels, panel_nbytes, sums = body.args
    row = tile.width * tile.itemsize
    whole = body.sub(panels, body.rem(panels, _TOGETHER))
    for first, last, count, sets in ((body.i(0), whole, _TOGETHER, 1), (whole, panels, 1, 4)):
        with body.loop(first, last, count) as panel:
            origin = body.at(b, body.mul(panel, panel_nbytes))
            bases = [body.at(origin, body.mul(panel_nbytes, j)) if j else origin for j in range(count)]
            totals = _dot_row(body, a, bases, depth, dtype, tile, sets)
            out = body.at(sums, body.mul(panel, row))
            for j, total in enumerate(totals):
                body.store(total, body.at(out, j * tile.lanes * tile.itemsize), dtype)
    body.b.ret_void()
    return body.function


def _dot_row(body: Body, a: Value, bases: list[Value], depth: Value, dtype: DType, tile: Tile, sets: int) -> list[Value]:
    """Sums of `a[p] * base[p][j]`, for all vectors of all bases, in `sets` sets of accumulators that alternate along p."""
    row, vector_bytes = tile.width * tile.itemsize, tile.lanes * tile.itemsize
    cells = len(bases) * tile.vectors
    state = [body.zero(dtype, tile.lanes)] * (cells * sets)
    unroll = max(2, sets)

    def steps(p: Value, count: int) -> None:
        for u in range(count):
            index = body.add(p, u)
            scalar = body.broadcast(body.at(a, body.mul(index, tile.itemsize)), dtype, tile.lanes)
            offset = body.mul(index, row)
            for j in range(cells):
                place = body.at(bases[j // tile.vectors], offset, j % tile.vectors * vector_bytes)
                at = u % sets * cells + j
                state[at] = body.fma(scalar, body.load(place, dtype, tile.lanes), state[at], dtype, tile.lanes)

    whole = body.sub(depth, body.rem(depth, unroll))
    with body.carry(0, whole, unroll, state) as p:
        steps(p, unroll)
    with body.carry(whole, depth, 1, state) as p:
        steps(p, 1)
    totals = state[:cells]
    for s in range(1, sets):
        totals = [body.b.fadd(x, y) for x, y in zip(totals, state[s * cells : (s + 1) * cells], strict=True)]
    return totals
