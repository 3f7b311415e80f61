from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, STATES, RecurrentShape, RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_kernel import kernel_text

DEFAULT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def default(cell: str, **given: object) -> RecurrentSpec:
    return RecurrentSpec(cell, tuple((name, 0.0, 0.0) for name in DEFAULT[cell]), **given)  # type: ignore[arg-type]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def next_state(
    spec: RecurrentSpec, x: np.ndarray, r: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step of ONNX's equations in float64, default activations, no biases or peepholes."""
    n = len(h)
    if spec.cell == "RNN":
        return np.tanh(x + r @ h), c
    if spec.cell == "GRU":
        z, reset = sigmoid(x[:n] + r[:n] @ h), sigmoid(x[n : 2 * n] + r[n : 2 * n] @ h)
        inner = reset * (r[2 * n :] @ h) if spec.linear_before_reset else r[2 * n :] @ (reset * h)
        return (1 - z) * np.tanh(x[2 * n :] + inner) + z * h, c
    i, o, f, g = np.split(x + r @ h, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def reference(
    spec: RecurrentSpec, shape: RecurrentShape, x: np.ndarray, r: np.ndarray, lengths: np.ndarray, initial: list[np.ndarray]
) -> tuple[np.ndarray, ...]:
    y = np.zeros((shape.seq, shape.directions, shape.batch, shape.hidden))
    ends = [s.astype(np.float64) for s in initial]
    for d in range(shape.directions):
        for b in range(shape.batch):
            h, c = ends[0][d, b], ends[-1][d, b]
            order = range(lengths[b])
            for step in reversed(order) if d or shape.reverse else order:
                h, c = next_state(spec, x[step, b, d].astype(np.float64), r[d].astype(np.float64), h, c)
                y[step, d, b] = h
            ends[-1][d, b] = c if lengths[b] else 0
            ends[0][d, b] = h if lengths[b] else 0
    return y, *ends


def call(
    spec: RecurrentSpec,
    shape: RecurrentShape,
    x: np.ndarray,
    r: np.ndarray,
    lengths: np.ndarray | None,
    initial: list[np.ndarray],
    threads: int,
    pieces: int = 1,
    together: bool = False,
    inputs: rnn_arguments.Inputs | None = None,
) -> list[np.ndarray]:
    """Y and the final states; x is [seq, batch, directions, gates * hidden], and not read where there are `inputs`."""
    tile = t.tile(spec.dtype)
    products = rnn_arguments.arrange(x, GATES[spec.cell], tile)
    packed = rnn_arguments.pack_recurrent(r, spec, tile)
    scratch_nbytes = rnn_arguments.scratch_nbytes(spec, t.host(), shape, threads, computes=inputs is not None)
    scratch = aligned_zeros((threads * scratch_nbytes,), np.dtype(np.uint8))
    scratch[:] = 255
    claims = np.zeros(1, np.int64)
    inner = aligned_zeros((shape.directions, rnn_arguments.columns_of(shape.hidden, 1, tile)), x.dtype)
    made = [
        t.guarded(s, x.dtype.type)
        for s in [(shape.seq, shape.directions, shape.batch, shape.hidden), *(i.shape for i in initial)]
    ]
    given = 0 if inputs else products.ctypes.data
    args = rnn_arguments.recurrent_args(
        spec, t.host(), shape, threads, micro=t.micro(spec.dtype), x=given, weights=packed.ctypes.data,
        taps=t.ZERO_TAP.ctypes.data, scratch=scratch.ctypes.data, extra=inner.ctypes.data, claims=claims.ctypes.data,
        lengths=0 if lengths is None else lengths.ctypes.data, initial=[i.ctypes.data for i in initial],
        y=made[0][0].ctypes.data, finals=[m.ctypes.data for m, _ in made[1:]], inputs=inputs,
    )  # fmt: skip
    text = kernel_text(spec, t.host())
    args[rnn_arguments.PIECES] = pieces
    if together:
        t.run_together(text, args, threads, pieces, rnn_arguments.PIECES - 2)
    elif pieces == 1:
        t.run(text, args, threads)
    else:
        t.run_in_pieces(text, args, threads, pieces, rnn_arguments.PIECES - 2)
    for _, whole in made:
        t.check_margin(whole)
    assert claims == 0
    return [m for m, _ in made]


def operands(spec: RecurrentSpec, shape: RecurrentShape) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    kind = spec.dtype.numpy.type
    gates = GATES[spec.cell] * shape.hidden
    x = t.random(rng, shape.seq, shape.batch, shape.directions, gates, dtype=kind)
    r = (t.random(rng, shape.directions, gates, shape.hidden) / np.sqrt(shape.hidden)).astype(kind)
    initial = [t.random(rng, shape.directions, shape.batch, shape.hidden, dtype=kind) for _ in range(STATES[spec.cell])]
    return x, r, initial


SHAPES = [
    RecurrentShape(4, 1, 5, 2), RecurrentShape(3, 17, 20, 1, reverse=True), RecurrentShape(5, 3, 80, 2),
    RecurrentShape(2, 1, 33, 1), RecurrentShape(4, 1, 200, 1), RecurrentShape(2, 20, 370, 1, reverse=True),
    RecurrentShape(0, 2, 4, 1),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "spec",
    [*(default(c) for c in GATES), default("GRU", linear_before_reset=True)],
    ids=lambda s: f"{s.cell}{s.linear_before_reset:d}",
)
def test_against_float64(spec: RecurrentSpec, shape: RecurrentShape, threads: int) -> None:
    x, r, initial = operands(spec, shape)
    found = call(spec, shape, x, r, None, initial, threads)
    expected = reference(spec, shape, x, r, np.full(shape.batch, shape.seq), initial)
    for f, e in zip(found, expected, strict=False):
        np.testing.assert_allclose(f, e, atol=3e-6)


@pytest.mark.parametrize("pieces", [2, 3, 40])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_share_in_pieces_is_the_same(shape: RecurrentShape, threads: int, pieces: int) -> None:
    for spec in (default("LSTM"), default("GRU")):
        x, r, initial = operands(spec, shape)
        whole = call(spec, shape, x, r, None, initial, threads)
        found = call(spec, shape, x, r, None, initial, threads, pieces)
        for f, e in zip(found, whole, strict=True):
            np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize("cell", list(GATES))
def test_sequences_of_different_lengths(cell: str) -> None:
    spec, shape = default(cell), RecurrentShape(6, 5, 18, 2)
    x, r, initial = operands(spec, shape)
    lengths = np.array([6, 0, 3, 1, 6], np.int32)
    found = call(spec, shape, x, r, lengths, initial, 2)
    for f, e in zip(found, reference(spec, shape, x, r, lengths, initial), strict=False):
        np.testing.assert_allclose(f, e, atol=3e-6)


def test_double() -> None:
    spec, shape = default("LSTM", dtype=DType.DOUBLE), RecurrentShape(4, 2, 9, 2)
    x, r, initial = operands(spec, shape)
    found = call(spec, shape, x, r, None, initial, 1)
    for f, e in zip(found, reference(spec, shape, x, r, np.full(2, 4), initial), strict=False):
        np.testing.assert_allclose(f, e, atol=1e-13)


def test_units_cover_the_threads() -> None:
    tile = t.tile()

    def found(shape: RecurrentShape, threads: int, cell: str = "LSTM", **given: object) -> tuple[int, int, int]:
        made = rnn_arguments.divide(default(cell, **given), shape, threads, tile)
        return made.chunks, made.rows, made.parts

    assert found(RecurrentShape(1, 1, 8, 2), 2) == (1, 1, 0)
    assert found(RecurrentShape(1, 4, 8, 1), 2) == (2, 2, 0)
    assert found(RecurrentShape(1, 4 * tile.rows, 8, 1), 3) == (6, -(-4 * tile.rows // 6), 0)
    assert found(RecurrentShape(1, 0, 8, 1), 3) == (1, 1, 0)


def test_threads_share_a_unit_where_r_is_large() -> None:
    tile = t.tile()

    def found(shape: RecurrentShape, threads: int, cell: str = "LSTM", **given: object) -> tuple[int, int]:
        made = rnn_arguments.divide(default(cell, **given), shape, threads, tile)
        return made.chunks, made.parts

    assert found(RecurrentShape(9, 1, 256, 1), 2) == (1, 2)
    assert found(RecurrentShape(9, 1, 256, 1), 1) == (1, 0)
    assert found(RecurrentShape(9, 1, 256, 2), 2) == (1, 0)  # a direction each
    assert found(RecurrentShape(9, 1, 256, 2), 4) == (1, 2)
    assert found(RecurrentShape(9, 1, 16, 1), 2) == (1, 0)  # not worth meeting for
    assert found(RecurrentShape(9, 4, 256, 1), 2) == (2, 0)  # rows of their own, for which R stays in the cache
    assert found(RecurrentShape(9, 4, 1024, 1), 2) == (1, 2)
    assert found(RecurrentShape(9, 4 * tile.rows, 1024, 1), 2) == (1, 2)
    assert found(RecurrentShape(9, 5 * tile.rows, 1024, 1), 2) == (2, 0)
    assert found(RecurrentShape(9, 1, 1024, 1), 2, "GRU") == (1, 0)  # its products wait for each other
    assert found(RecurrentShape(9, 1, 1024, 1), 2, "GRU", linear_before_reset=True) == (1, 2)
    assert found(RecurrentShape(9, 1, 1024, 1), 64)[1] == 16


@pytest.mark.parametrize("spec", [default("LSTM"), default("GRU", linear_before_reset=True), default("RNN")], ids=str)
def test_threads_that_share_a_unit_side_by_side(spec: RecurrentSpec) -> None:
    """Each thread at once, in whatever order they come, and in pieces; lengths that end early."""
    shape = RecurrentShape(12, 2, 530, 1)
    x, r, initial = operands(spec, shape)
    lengths = np.array([12, 5], np.int32)
    expected = reference(spec, shape, x, r, lengths, initial)
    for threads in (2, 3):
        assert rnn_arguments.divide(spec, shape, threads, t.tile()).parts > 1
        for pieces in (1, 7):
            found = call(spec, shape, x, r, lengths, initial, threads, pieces, together=True)
            for f, e in zip(found, expected, strict=False):
                np.testing.assert_allclose(f, e, atol=1e-5)


# One row each: of one group of steps and less, of some, with something left over; X narrower and wider than the state.
INPUTS = [
    (RecurrentShape(3, 1, 20, 2), 7), (RecurrentShape(8, 1, 70, 1), 70), (RecurrentShape(9, 1, 70, 1, reverse=True), 1),
    (RecurrentShape(29, 1, 70, 2), 150), (RecurrentShape(16, 1, 200, 1), 450), (RecurrentShape(0, 1, 20, 1), 5),
]  # fmt: skip


@pytest.mark.skipif(not rnn_arguments.has_registers(default("RNN"), t.tile()), reason="too few registers on this machine")
@pytest.mark.parametrize(("threads", "pieces", "together"), [(1, 1, False), (1, 3, False), (2, 1, True), (3, 5, True)])
@pytest.mark.parametrize(("shape", "depth"), INPUTS, ids=str)
@pytest.mark.parametrize("cell", list(GATES))
def test_input_products_beside_the_steps(
    cell: str, shape: RecurrentShape, depth: int, threads: int, pieces: int, together: bool
) -> None:
    rng = np.random.default_rng(2)
    for spec in (default(cell), default(cell, dtype=DType.DOUBLE), default(cell, linear_before_reset=cell == "GRU")):
        tile, kind = t.tile(spec.dtype), spec.dtype.numpy.type
        _, r, initial = operands(spec, shape)
        x = aligned_zeros((shape.seq, shape.batch, depth), spec.dtype.numpy)
        x[...] = t.random(rng, *x.shape, dtype=kind)
        w = (t.random(rng, *r.shape[:2], depth, dtype=kind) / np.sqrt(depth)).astype(kind)
        b = t.random(rng, *r.shape[:2], dtype=kind)
        panels = pack_matrix(rnn_arguments.input_matrix(w, GATES[cell], tile), tile)
        bias = rnn_arguments.arrange(b, GATES[cell], tile)
        inputs = rnn_arguments.Inputs(x.ctypes.data, panels.ctypes.data, bias.ctypes.data, depth)
        products = np.einsum("sbk,dgk->sbdg", x.astype(np.float64), w.astype(np.float64)) + b
        found = call(spec, shape, products.astype(kind), r, None, initial, threads, pieces, together, inputs)
        for f, e in zip(found, reference(spec, shape, products, r, np.full(1, shape.seq), initial), strict=False):
            np.testing.assert_allclose(f, e, atol=1e-5 if spec.dtype is DType.FLOAT else 1e-13)


def test_where_input_products_are_computed_beside_the_steps() -> None:
    if not rnn_arguments.has_registers(default("LSTM"), t.tile()):
        assert not rnn_arguments.may_compute_inputs(default("LSTM"), t.host(), 256, 256, 1)
        return

    def may(hidden: int, depth: int, **given: object) -> bool:
        return rnn_arguments.may_compute_inputs(default("LSTM", **given), t.host(), hidden, depth, 1)

    assert may(256, 512)
    assert not may(256, 512, stored=True)
    assert not may(16, 512)  # R stays in the first cache
    assert not may(1024, 4096)  # caches do not keep W until the next group of steps

    def does(shape: RecurrentShape, threads: int, cell: str = "LSTM") -> bool:
        return rnn_arguments.computes_inputs(default(cell), t.host(), shape, threads)

    assert does(RecurrentShape(100, 1, 256, 2), 2)
    assert does(RecurrentShape(100, 1, 256, 1), 2)
    assert does(RecurrentShape(100, 1, 256, 2), 3)
    assert not does(RecurrentShape(100, 1, 256, 1), 2, "GRU")  # one thread at work
    assert not does(RecurrentShape(100, 2, 256, 1), 1)
    assert not does(RecurrentShape(100, 0, 256, 1), 1)
    assert not does(RecurrentShape(8, 1, 256, 1), 1)


def test_unknown_cell_and_activation() -> None:
    with pytest.raises(ValueError, match=r"cell is one of LSTM, GRU, RNN; got 'QRNN'"):
        RecurrentSpec("QRNN", ())
    with pytest.raises(ValueError, match=r"activation 'Gelu' is not known; expected one of sigmoid, tanh"):
        RecurrentSpec("RNN", (("Gelu", 0.0, 0.0),))
