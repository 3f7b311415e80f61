"""LSTM, GRU and RNN layers: the loop over a sequence, whose input products are known.

`X W^T + bias` of the whole sequence is one matrix product (`codegen.gemm`) whose columns are arranged as `arrange` says;
this kernel adds the recurrent product of every step and updates the state. A unit of work is one direction of a few rows
of the batch, over all steps: it needs nothing of another thread. A thread may do its share in pieces, some steps at a time,
so that a long sequence can be stopped.

Where there are fewer units than threads and R is large, threads share a unit: each has a range of the hidden units, with its
part of R in a cache of its own, and they meet after every step (`codegen.lockstep`). An R that no cache of a core holds is
read for as many rows as there are, up to some register tiles of them.

Columns are arranged by blocks of one vector of hidden units, each block all gates in turn (the last block and the last
panel are filled with zeros), so that one pass over the hidden units has all it needs in vectors.

R is read once for every step and unit. One row is a product by a vector, as fast as the second-level cache delivers; more
rows go through the micro-kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.emit import Emitter
from intarsia.codegen.engine import KernelText
from intarsia.codegen.lockstep import MOST_PARTS, emit_lockstep
from intarsia.codegen.microkernel import PARAMETERS, Tile, tile_of
from intarsia.codegen.pack import aligned_zeros, pack_matrix
from intarsia.codegen.recurrent_bytes import byte_row_product, packed_words, spare_nbytes
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.activations import ACTIVATIONS
from intarsia.records import dataclass

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_TOGETHER = 4  # panels that the product of one row reads at a time: 8 accumulators hide the latency of an addition
_LINE = 64
_FIELDS = (
    "micro x x_step x_row x_direction weights weights_direction inner extra extra_direction taps lengths "
    "seq hidden blocks state_nbytes initial_h initial_c y_h y_c h_direction h_row y y_step y_direction y_row "
    "reverse units chunks rows extra_rows claims parts group area unit_nbytes scratch scratch_nbytes pieces"
).split()
PIECES = _FIELDS.index("pieces")
_POINTERS = frozenset("micro x weights extra taps claims scratch".split())
_SHARED_NBYTES = 1 << 17  # bytes of R from which on threads share a unit of one row
_CACHED_NBYTES = 1 << 20  # bytes of R that stay in a core's cache from step to step
_MOST_TILES = 4  # register tiles of rows that go through a panel of a larger R

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


@dataclass(frozen=True)
class Division:
    """How the work is cut: the batch into `chunks` of at most `rows` rows. A direction of a chunk is a unit, of one thread or
    of several with `parts` ranges of hidden units (0: one)."""

    chunks: int
    rows: int
    parts: int = 0


def divide(spec: RecurrentSpec, shape: RecurrentShape, threads: int, tile: Tile) -> Division:
    """As many units as threads if rows are enough, else ranges of hidden units where R is large.

    Where R stays in each core's cache, rows are cut rather than hidden units: threads need not meet then.
    """
    weights_nbytes = GATES[spec.cell] * shape.hidden**2 * tile.itemsize
    streamed = weights_nbytes > _CACHED_NBYTES and not spec.stored
    rows = tile.rows * (_MOST_TILES if streamed else 1)
    least = max(1, -(-shape.batch // rows))
    units = shape.directions * least
    if (streamed or (shape.batch == 1 and weights_nbytes >= _SHARED_NBYTES)) and not (spec.reset_first or spec.stored):
        groups = -(-blocks_of(shape.hidden, tile) // _group(spec, tile))
        parts = min(threads // units, MOST_PARTS // units, groups)
        if parts > 1 and shape.batch:
            return Division(least, -(-shape.batch // least), parts)
    chunks = min(max(1, shape.batch), max(least, -(-threads // shape.directions)))
    for more in range(threads + 1):
        if least + more > shape.batch:
            break
        if shape.directions * (least + more) % threads == 0:
            chunks = least + more
            break
    return Division(chunks, max(1, -(-shape.batch // chunks)))


def _group(spec: RecurrentSpec, tile: Tile) -> int:
    """Blocks of hidden units whose gates are whole panels."""
    return tile.vectors // math.gcd(tile.vectors, GATES[spec.cell])


def _widths(spec: RecurrentSpec, hidden: int, tile: Tile) -> tuple[int, int, int]:
    """Bytes of a row of state, and columns of the (first) recurrent product, and of the candidate gate's own."""
    state = blocks_of(hidden, tile) * tile.lanes * tile.itemsize + _LINE
    first = columns_of(hidden, 2 if spec.reset_first else GATES[spec.cell], tile)
    return state, first, columns_of(hidden, 1, tile) if spec.reset_first else 0


def _divided(spec: RecurrentSpec, target: Target, shape: RecurrentShape, threads: int) -> Division:
    """As `divide`. One row alone has a product of its own, which sums in another order, as panels do that are not four
    together: where results must not depend on the number of threads, neither does the division."""
    return divide(spec, shape, _ORDERED_THREADS if target.ordered else threads, tile_of(spec.dtype, target))


def _unit_nbytes(spec: RecurrentSpec, tile: Tile, hidden: int, found: Division) -> int:
    """Bytes of a unit's states and sums."""
    state, first, second = _widths(spec, hidden, tile)
    states = STATES[spec.cell] + (2 if spec.reset_first else 1 if found.parts else 0)
    return -(-found.rows * (states * state + max(first, second) * tile.itemsize) // _LINE) * _LINE


def scratch_nbytes(spec: RecurrentSpec, target: Target, shape: RecurrentShape, threads: int) -> int:
    """Bytes for each of `threads` threads: states, sums of the products."""
    tile = tile_of(spec.dtype, target)
    spare = spare_nbytes(blocks_of(shape.hidden, tile) * tile.lanes) if spec.stored else 0
    return _unit_nbytes(spec, tile, shape.hidden, _divided(spec, target, shape, threads)) + spare


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
    claims: int,
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
    is `scratch_nbytes` bytes for every thread, `taps` one int64 0; `claims` too, which the kernel leaves as it was.
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
    found = _divided(spec, target, shape, threads)
    chunks = found.chunks
    weights_direction = packed_words(shape.hidden, first) * 4 if spec.stored else shape.hidden * (first + second) * item
    initials, ends = (*initial, 0)[:2], (*finals, 0)[:2]
    return [
        micro, x, x_step, x_row, row, weights, weights_direction, shape.hidden * first * item, extra, extra_row, taps,
        lengths, shape.seq, shape.hidden, blocks_of(shape.hidden, tile), state, *initials, *ends, h_direction, h_row, y, y_step,
        y_direction, y_row, int(shape.reverse), shape.directions * chunks if shape.batch else 0, chunks, shape.batch // chunks,
        shape.batch % chunks, claims, found.parts, _group(spec, tile), found.rows * state,
        _unit_nbytes(spec, tile, shape.hidden, found), scratch, scratch_nbytes(spec, target, shape, threads), 1,
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
        self.body: Body

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
        return {n: body.load_pointer(args, i) if n in _POINTERS else body.load_i64(args, i) for i, n in enumerate(_FIELDS)}

    def _walk_function(self) -> Value:
        """An internal function: some blocks of a unit in some phases.

        Phase 0 sets its states, `p` is step `p - 1`, and the last one gives the final states as well. The unit's states and
        sums begin at `memory`; h lies in two buffers in turn, the second `other` bytes behind the first.
        """
        self.body = body = self.module.function("walk", ("p", "i", "p", "i", "i", "i", "i", "i"))
        self.emitter = Emitter(body.b, self.tile.lanes)
        args, unit, memory, other, start, stop, self.first, self.end = body.args
        v = self.v = self._fields(args)
        direction, chunk = body.div(unit, v["chunks"]), body.rem(unit, v["chunks"])
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
        with body.when(body.equal(start, 0)):
            for state, name in zip((memory, self.cell), ("initial_h", "initial_c"), strict=True):
                if state is not None:
                    self._begin(state, v[name])
        x = body.at(v["x"], body.mul(direction, v["x_direction"]), body.mul(self.row, v["x_row"]))
        y = body.add(body.mul(direction, v["y_direction"]), body.mul(self.row, v["y_row"]))
        backward = body.less(0, body.b.or_(direction, v["reverse"]))
        with body.loop(body.max(start, 1), stop) as phase:
            self._turn(memory, other, phase)
            t = body.select(backward, body.sub(v["seq"], phase), body.sub(phase, 1))
            self._step(t, body.at(x, body.mul(t, v["x_step"])), body.add(y, body.mul(t, v["y_step"])))
        with body.when(body.equal(stop, body.add(v["seq"], 1))):
            self._turn(memory, other, v["seq"])
            for state, name in zip((self.new, self.cell), ("y_h", "y_c"), strict=True):
                if state is not None:
                    self._finish(state, v[name])
        body.b.ret_void()
        return body.function

    def _turn(self, memory: Value, other: Value, phase: Value) -> None:
        """Where a phase reads and writes h."""
        body = self.body
        odd = body.mul(body.b.and_(phase, body.i(1)), other)
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
            self._copy(body.at(state, body.mul(i, v["state_nbytes"])), to)

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
            with body.loop(0, self.rows) as i:
                row, sums = body.at(a, body.mul(i, v["state_nbytes"])), body.at(self.sums, body.mul(i, self.panel_row))
                place = [v["hidden"], v["blocks"], panels, self.sum_area, sums, self.spare]
                body.b.call(self.product, [row, weights, *place])
            return
        weights, sums = body.at(weights, body.mul(begin, panel_nbytes)), body.at(self.sums, body.mul(begin, self.sum_area))
        with body.either(body.equal(self.rows, 1)) as (single, several):
            with single:
                body.b.call(self.product, [a, weights, v["hidden"], panels, panel_nbytes, sums])
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

    def _rows(self, t: Value, x: Value, y: Value | None, block: Callable[[Value], None], gates: int) -> None:
        """Run `block` over the hidden units of every row whose sequence has not ended; then store the row's output."""
        body, v = self.body, self.v
        with body.loop(0, self.rows) as i:
            live = self._live(t, i)
            self.x = body.at(x, body.mul(i, v["x_row"]))
            self.line, self.sum_gates = body.at(self.sums, body.mul(i, self.panel_row)), gates
            self.at_row = body.mul(i, v["state_nbytes"])
            with body.when(live), body.loop(self.first, self.end) as self.block:
                block(body.add(self.at_row, body.mul(self.block, self.vector_bytes)))
            if y is not None:
                self._output(live, body.add(y, body.mul(i, v["y_row"])))

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
        self._store(b.fmul(o, squashed), self.new, offset)

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
        self._store(self._fma(z, hidden, self.body.b.fmul(self._one_minus(z), candidate)), self.new, offset)

    def _rnn_block(self, offset: Value) -> None:
        """h' = f(x + R h)."""
        self._store(self._activate(0, self.body.b.fadd(self._input(0), self._sum(0))), self.new, offset)


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
