"""LSTM, GRU and RNN layers: the loop over a sequence, whose input products are known. How work is divided, how data lie, and
the arguments of the kernel (`kernels.recurrent.rnn_kernel`).

`X W^T + bias` of the whole sequence is one matrix product (`kernels.matmul.gemm_kernel`) whose columns are arranged as
`arrange` says;
the kernel adds the recurrent product of every step and updates the state. Of one row it computes the input products as well
(`Inputs`). A unit of work is one direction of a few rows of the batch, over all steps: it needs nothing of another thread. A
thread may do its share in pieces, some steps at a time, so that a long sequence can be stopped.

Where there are fewer units than threads and R is large, threads share a unit: each has a range of the hidden units, with its
part of R in a cache of its own, with a barrier after every step (`kernels.common.phased_threads`). An R that no cache of a core
holds is read for as many rows as there are, up to some register tiles of them.

Columns are arranged by blocks of one vector of hidden units, each block all gates in turn (the last block and the last
panel are filled with zeros), so that one pass over the hidden units has all it needs in vectors.

R is read once for every step and unit. One row is a product by a vector, as fast as the second-level cache delivers
(`kernels.recurrent.rnn_row_product`); more rows go through the micro-kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.primitives.activations import ACTIVATIONS
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.pieces import MOST_PARTS
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
TILE_ROWS = 8  # of a tile beside: with two vectors each, 8 sums of the row and what they multiply, 27 of 32 registers
_LINE = 64
FIELDS = (
    "micro x x_step x_row x_direction x_area weights weights_direction inner extra extra_direction taps lengths status "
    "seq hidden blocks state_nbytes initial_h initial_c y_h y_c h_direction h_row y y_step y_direction y_row "
    "source source_step source_row inputs inputs_direction bias depth chunks_deep lead groups products group_nbytes "
    "reverse units chunks rows extra_rows claims parts group area unit_nbytes scratch scratch_nbytes pieces"
).split()
PIECES = FIELDS.index("pieces")
POINTERS = frozenset("micro x weights extra inputs bias taps claims scratch".split())
_SHARED_NBYTES = 1 << 17  # bytes of R from which on threads share a unit of one row
_COMPUTED_NBYTES = 1 << 15  # bytes of R from which on units of one row compute their input products
COMPUTED_SHARE = 0.55  # of an input product's time, which it takes beside the steps
_MOST_COMPUTED_NBYTES = 1 << 24  # bytes of W and R that some groups of steps read in turn: what a third-level cache keeps
_CACHED_NBYTES = 1 << 20  # bytes of R that stay in a core's cache from step to step
_MOST_TILES = 4  # register tiles of rows that go through a panel of a larger R

Activation = tuple[str, float, float]


@dataclass(frozen=True)
class RecurrentSpec:
    """Compile-time parameters of the kernel.

    Attributes:
        cell: "LSTM", "GRU" or "RNN".
        activations: (name, alpha, beta) of f, g, h as far as the cell has them, the same for all directions.
        dtype: FLOAT or DOUBLE.
        clip: bound of the activations' arguments.
        peepholes: whether an LSTM has them.
        input_forget: whether an LSTM's forget gate is 1 - i.
        linear_before_reset: whether a GRU's reset gate applies to the recurrent product, not to its operand.
        stored: whether R is of 8 bits, as `rnn_row_product_int8` packs it (of float; not of a GRU that resets first).
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


_ORDERED_THREADS = 2  # for so many the batch is divided where results must not depend on how many there are


@dataclass(frozen=True)
class Division:
    """Division of work: the batch into `chunks` of at most `rows` rows. A direction of a chunk is a unit, of one thread or
    of several with `parts` ranges of hidden units (0: one)."""

    chunks: int
    rows: int
    parts: int = 0


def divide(spec: RecurrentSpec, shape: RecurrentShape, threads: int, tile: Tile) -> Division:
    """As many units as threads if rows are enough, else ranges of hidden units where R is large.

    Where R stays in each core's cache, rows are divided rather than hidden units: threads need no barrier then.
    """
    if spec.stored:  # all rows of the state have one scale
        return Division(1, max(1, shape.batch))
    weights_nbytes = GATES[spec.cell] * shape.hidden**2 * tile.itemsize
    streamed = weights_nbytes > _CACHED_NBYTES
    rows = tile.rows * (_MOST_TILES if streamed else 1)
    least = max(1, -(-shape.batch // rows))
    units = shape.directions * least
    if (streamed or (shape.batch == 1 and weights_nbytes >= _SHARED_NBYTES)) and not spec.reset_first:
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


def has_registers(spec: RecurrentSpec, tile: Tile) -> bool:
    """Whether a kernel can compute input products beside its steps."""
    return tile.rows > TILE_ROWS and not spec.stored


def may_compute_inputs(spec: RecurrentSpec, target: Target, hidden: int, depth: int, directions: int) -> Support:
    """Whether `computes_inputs` may be true for some sizes: R is what steps wait for, and caches keep it and W."""
    tile = tile_of(spec.dtype, target)
    if not has_registers(spec, tile):
        return Support.no("registers have no room for input products beside the steps")
    row = GATES[spec.cell] * hidden * tile.itemsize
    if row * hidden < _COMPUTED_NBYTES:
        return Support.no(f"reading R of {row * hidden} bytes leaves steps no time for input products")
    if directions * row * (hidden + depth) > _MOST_COMPUTED_NBYTES:
        return Support.no("W and R are larger than what caches keep from step to step")
    return Support.yes()


def computes_inputs(spec: RecurrentSpec, target: Target, shape: RecurrentShape, threads: int) -> bool:
    """Whether the kernel, where it may, is to be given `Inputs`: for units of one row, several groups of steps, and so many
    threads at work that a product by all of them before would not be faster."""
    found = _divided(spec, target, shape, threads)
    if shape.seq <= TILE_ROWS or found.rows != 1 or shape.batch == 0:
        return False
    callers = _ORDERED_THREADS if target.ordered else threads
    return shape.directions * found.chunks * max(1, found.parts) > COMPUTED_SHARE * callers


@dataclass(frozen=True)
class Inputs:
    """Addresses of X [seq, batch, depth] ([batch, seq, depth] if batch first), of `input_matrix` in panels, and of its columns'
    biases."""

    x: Address
    weights: Address
    bias: Address
    depth: int


def _unit_nbytes(spec: RecurrentSpec, tile: Tile, hidden: int, found: Division) -> int:
    """Bytes of a unit's states and sums."""
    state, first, second = _widths(spec, hidden, tile)
    states = STATES[spec.cell] + (2 if spec.reset_first else 1 if found.parts else 0)
    return -(-found.rows * (states * state + max(first, second) * tile.itemsize) // _LINE) * _LINE


def scratch_nbytes(spec: RecurrentSpec, target: Target, shape: RecurrentShape, threads: int, *, computes: bool = False) -> int:
    """Bytes for each of `threads` threads: states, sums of the products, and input products where it `computes` them."""
    tile, found, spare = tile_of(spec.dtype, target), _divided(spec, target, shape, threads), 0
    if spec.stored:
        from intarsia.providers.cpu.kernels.recurrent.rnn_row_product_int8 import spare_nbytes

        spare = spare_nbytes(blocks_of(shape.hidden, tile) * tile.lanes, found.rows)
    own = _products_nbytes(spec, tile, shape.hidden, found) if computes else 0
    return _unit_nbytes(spec, tile, shape.hidden, found) + spare + own


def _products_nbytes(spec: RecurrentSpec, tile: Tile, hidden: int, found: Division) -> int:
    """Bytes of two groups' products, and of what comes behind them."""
    state, _, _ = _widths(spec, hidden, tile)
    return 2 * _group_nbytes(spec, tile, hidden) + -(-found.rows * state // _LINE) * _LINE


def _group_nbytes(spec: RecurrentSpec, tile: Tile, hidden: int) -> int:
    return TILE_ROWS * columns_of(hidden, GATES[spec.cell], tile) * tile.itemsize


def recurrent_args(
    spec: RecurrentSpec,
    target: Target,
    shape: RecurrentShape,
    threads: int,
    *,
    micro: Address,
    x: Address,
    weights: Address,
    taps: Address,
    claims: Address,
    scratch: Address,
    extra: Address = 0,
    lengths: Address = 0,
    status: Address = 0,
    initial: Sequence[Address] = (0, 0),
    y: Address = 0,
    finals: Sequence[Address] = (0, 0),
    inputs: Inputs | None = None,
) -> list[Argument]:
    """The kernel's arguments; addresses may be 0 for what is omitted.

    `x` holds the input products, [seq, batch, directions * columns] ([batch, seq, ...] if batch first); `weights` is
    `pack_recurrent`'s; `extra` the arranged peepholes [directions, columns of 3 gates] or, of a GRU that is linear before
    reset, the bias of the candidate's recurrent product [directions, columns of 1 gate]; `lengths` int32 [batch], and
    `status` an int64 that is set where one of them is no length (both or neither). `scratch`
    is `scratch_nbytes` bytes for every thread, `taps` one int64 0; `claims` too, which the kernel leaves as it was. `inputs`
    may be given instead of `x` where units have one row and the kernel `has_registers`.
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
    weights_direction = shape.hidden * (first + second) * item
    if spec.stored:
        from intarsia.providers.cpu.kernels.recurrent.rnn_row_product_int8 import packed_words

        weights_direction = packed_words(shape.hidden, first) * 4
    initials, ends = (*initial, 0)[:2], (*finals, 0)[:2]
    unit = _unit_nbytes(spec, tile, shape.hidden, found)
    x_area = tile.width * item
    own: list[Argument] = [0] * 12
    if inputs is not None:
        own, x_area = _input_args(spec, tile, shape, inputs, unit), TILE_ROWS * x_area
        unit += _products_nbytes(spec, tile, shape.hidden, found)
    return [
        micro, x, x_step, x_row, row, x_area, weights, weights_direction, shape.hidden * first * item, extra, extra_row, taps,
        lengths, status, shape.seq, shape.hidden, blocks_of(shape.hidden, tile), state, *initials, *ends, h_direction, h_row,
        y, y_step, y_direction, y_row, *own, int(shape.reverse), shape.directions * chunks if shape.batch else 0, chunks,
        shape.batch // chunks, shape.batch % chunks, claims, found.parts, _group(spec, tile), found.rows * state, unit, scratch,
        scratch_nbytes(spec, target, shape, threads, computes=inputs is not None), 1,
    ]  # fmt: skip


def _input_args(spec: RecurrentSpec, tile: Tile, shape: RecurrentShape, inputs: Inputs, products: int) -> list[Argument]:
    """`source` to `group_nbytes`; `products` is where a unit has them."""
    row = inputs.depth * tile.itemsize
    step, pitch = (row, shape.seq * row) if shape.batch_first else (shape.batch * row, row)
    columns = columns_of(shape.hidden, GATES[spec.cell], tile)
    lead = (shape.seq - 1) % TILE_ROWS + 1
    return [
        inputs.x, step, pitch, inputs.weights, columns * row, inputs.bias, inputs.depth,
        max(1, -(-inputs.depth // shape.hidden)), lead, 1 + (shape.seq - lead) // TILE_ROWS, products,
        _group_nbytes(spec, tile, shape.hidden),
    ]  # fmt: skip
