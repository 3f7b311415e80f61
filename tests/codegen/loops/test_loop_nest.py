"""Loop nests: one kernel for all sizes and numbers of threads, compared with the NumPy interpreter."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")

from loop_kernels import check_loops, compiled, run_kernel, run_loops

from intarsia.codegen.elementwise.element_types import SUPPORTED_DTYPES
from intarsia.codegen.elementwise.emitter import UnsupportedPrimitive
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.loops.loop_nest import CHUNK, ROW_CHUNK, unsupported
from intarsia.graph.dims import Dim, Expr, floordiv, symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.run_status import INDEX_OUT_OF_RANGE

F, I64 = DType.FLOAT, DType.INT64
A, B = symbol("a"), symbol("b")
SIZES = (0, 1, 2, 3, 8, 17)


def arange(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "count"), [(0, 0), (3, 0), (3, 5)])
def test_rows_taken_from_what_may_have_none(rows: int, count: int) -> None:
    x, places = k.input(0, F, (A, 40)), k.input(1, I64, (B,))
    taken = np.arange(count, dtype=np.int64) % max(rows, 1)
    check_loops([k.take(x, places, 0) * 2.0], [normal(rows, 40), taken], {"a": rows, "b": count})


def test_rows_taken_from_none_are_reported() -> None:
    x, places = k.input(0, F, (A, 40)), k.input(1, I64, (B,))
    roots = [k.take(x, places, 0)]
    arrays = [normal(0, 40), np.zeros(2, np.int64)]
    _, status = run_kernel(compiled(roots), roots, arrays, {"a": 0, "b": 2})
    assert status == INDEX_OUT_OF_RANGE


# --- random graphs -----------------------------------------------------------------------------------------------------


class Case:
    """A graph of primitives over `input(0)`, `input(1)`, ...; `taken`: sizes of the axes that index inputs point into."""

    def __init__(self, root: k.Tensor, inputs: list[k.Tensor], taken: dict[int, Dim]) -> None:
        self.root, self.inputs, self.taken = root, inputs, taken

    def __repr__(self) -> str:
        order = k.walk([self.root])
        place = {id(t): i for i, t in enumerate(order)}
        return "; ".join(f"%{i} = {t!r}({', '.join(f'%{place[id(a)]}' for a in t.args)})" for i, t in enumerate(order))

    def arrays(self, env: dict[str, int]) -> list[np.ndarray]:
        made = []
        for i, t in enumerate(self.inputs):
            shape = [d.evaluate(env) if isinstance(d, Expr) else d for d in t.shape]
            rng = np.random.default_rng(i)
            if i in self.taken:
                extent = self.taken[i]
                made.append(
                    rng.integers(0, max(extent if isinstance(extent, int) else extent.evaluate(env), 1), shape, np.int64)
                )
            else:
                low = 0 if t.dtype.is_unsigned_integer or t.dtype is DType.BOOL else -3
                made.append(rng.integers(low, 2 if t.dtype is DType.BOOL else 4, shape).astype(t.dtype.numpy))
        return made

    def fits(self, env: dict[str, int]) -> bool:
        """Whether nothing is taken from an axis without elements, which the interpreter rejects."""
        return all((d if isinstance(d, int) else d.evaluate(env)) > 0 for d in self.taken.values())


class Graphs:
    """Draws a graph: each step puts one primitive on what there is."""

    def __init__(self, draw: Callable[..., object], dtype: DType) -> None:
        self.draw, self.dtype = draw, dtype
        self.inputs: list[k.Tensor] = []
        self.taken: dict[int, Dim] = {}

    def pick(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def input(self, shape: tuple[Dim, ...], dtype: DType | None = None) -> k.Tensor:
        made = k.input(len(self.inputs), dtype or self.dtype, shape)
        self.inputs.append(made)
        return made

    def axis(self, x: k.Tensor) -> int:
        return self.draw(st.integers(0, x.rank - 1))

    def unary(self, x: k.Tensor) -> k.Tensor:
        return k.unary("not", x) if self.dtype is DType.BOOL else k.absolute(-x) if self.pick(0, 1) else -x

    def binary(self, x: k.Tensor) -> k.Tensor:
        """With an input that has some of the axes: the others are 1 or missing."""
        shape = tuple(1 if self.pick(0, 0, 1) else d for d in x.shape)[self.draw(st.integers(0, x.rank)) :]
        op = self.pick("or", "and", "xor") if self.dtype is DType.BOOL else self.pick("add", "sub", "min", "max")
        other = self.input(shape)
        return k.binary(op, x, other) if self.pick(0, 1) else k.binary(op, other, x)

    def both(self, x: k.Tensor) -> k.Tensor:
        """The same value twice, once in another way."""
        return k.select(k.equal(x, self.unary(x)), x, self.binary(x))

    def reduce(self, x: k.Tensor) -> k.Tensor:
        axes = self.draw(st.sets(st.integers(0, x.rank - 1), min_size=1, max_size=2))
        op = self.pick("any", "all") if self.dtype is DType.BOOL else self.pick("sum", "max", "min")
        out = k.reduce(x, op, sorted(axes), keepdims=bool(self.pick(0, 1)))
        return k.binary("xor" if self.dtype is DType.BOOL else "max", x, out) if out.rank == x.rank and self.pick(0, 1) else out

    def transpose(self, x: k.Tensor) -> k.Tensor:
        return k.transpose(x, self.draw(st.permutations(range(x.rank))))

    def slice(self, x: k.Tensor) -> k.Tensor:
        """Backwards, or every second."""
        starts: list[Dim] = [0] * x.rank
        steps, shape, axis = [1] * x.rank, list(x.shape), self.axis(x)
        if self.pick(0, 1):
            starts[axis], steps[axis] = x.shape[axis] - 1, -1
        else:
            steps[axis], shape[axis] = 2, floordiv(x.shape[axis] + 1, 2)
        return k.strided_slice(x, starts, steps, shape)

    def pad(self, x: k.Tensor) -> k.Tensor:
        low, high = ([self.draw(st.integers(0, 2)) for _ in x.shape] for _ in range(2))
        return k.pad(x, low, high, 1)

    def concat(self, x: k.Tensor) -> k.Tensor:
        axis = self.axis(x)
        shape = list(x.shape)
        shape[axis] = self.pick(2, A)
        parts = [x, self.input(tuple(shape)), self.unary(x)]
        return k.concat(self.draw(st.permutations(parts)), axis)

    def windows(self, x: k.Tensor) -> k.Tensor:
        axis = self.axis(x)
        size, dilation, stride = self.draw(st.integers(1, 3)), self.draw(st.integers(1, 2)), self.draw(st.integers(1, 2))
        margin = [(size - 1) * dilation if i == axis else 0 for i in range(x.rank)]
        seen = k.windows(k.pad(x, margin, margin, 0), [axis], [size], [stride], [dilation])
        return k.reduce(seen, "any" if self.dtype is DType.BOOL else self.pick("sum", "max"), [x.rank])

    def take(self, x: k.Tensor) -> k.Tensor:
        axis = self.axis(x)
        self.taken[len(self.inputs)] = x.shape[axis]
        return k.take(x, self.input(self.pick((), (3,), (B,), (2, A)), I64), axis)

    def merge(self, x: k.Tensor) -> k.Tensor:
        axis = self.axis(x)
        merged = x.shape[axis : axis + 2]
        return k.reshape(x, (*x.shape[:axis], functools.reduce(lambda a, b: a * b, merged), *x.shape[axis + 2 :]))

    def unmerge(self, x: k.Tensor) -> k.Tensor:
        """Flatten, then the same axes in another order."""
        perm = self.draw(st.permutations(range(x.rank)))
        flat = k.reshape(x, (functools.reduce(lambda a, b: a * b, x.shape, 1),))
        return k.reshape(flat, [x.shape[p] for p in perm])

    def argreduce(self, x: k.Tensor) -> k.Tensor:
        axis = self.axis(x)
        padded = k.pad(x, [0] * x.rank, [int(i == axis) for i in range(x.rank)], 0)
        return k.cast(k.arg_reduce(padded, self.pick("max", "min"), axis, last=self.pick(False, True)), self.dtype)

    def grid(self, x: k.Tensor) -> k.Tensor:
        return k.select(k.iota(x.shape, self.axis(x)) < k.size(A), x, self.unary(x))


STEPS = sorted(n for n in vars(Graphs) if not n.startswith("_") and n not in ("pick", "input", "axis"))


@st.composite
def cases(draw: Callable[..., object], dtypes: tuple[DType, ...]) -> Case:
    g = Graphs(draw, draw(st.sampled_from(dtypes)))
    x = g.input(tuple(draw(st.lists(st.sampled_from([A, B, 1, 2, 3, 5]), min_size=1, max_size=3))))
    for name in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4)):
        if 0 < x.rank < 5:
            x = getattr(g, name)(x)
    return Case(x, g.inputs, g.taken)


@given(
    cases(tuple(sorted(SUPPORTED_DTYPES))),
    st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)), min_size=1, max_size=3, unique=True),
)
@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_random_graphs(case: Case, sizes: list[tuple[int, int]]) -> None:
    if unsupported([case.root]):
        return
    for a, b in sizes:
        env = {"a": a, "b": b}
        if case.fits(env):
            check_loops([case.root], case.arrays(env), env)


# --- one claim each ----------------------------------------------------------------------------------------------------


def softmax(x: k.Tensor, axis: int) -> k.Tensor:
    e = k.exp(x - k.reduce_max(x, [axis], True))
    return e / k.reduce_sum(e, [axis], True)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("last", [1, 7, ROW_CHUNK + 1])
def test_softmax_along_any_axis(axis: int, last: int) -> None:
    """Values found once a row, or once a chunk of rows where the reduced axis is not the last."""
    x = normal(3, 4, last)
    (found,) = run_loops([softmax(k.input(0, F, (A, B, last)), axis)], x, nthreads=2, a=3, b=4)
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(found, wide / wide.sum(axis, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_long_axes_are_cut_into_chunks(size: int) -> None:
    x = normal(size)
    for nthreads in (1, 2, 7):
        (found,) = run_loops([k.input(0, F, (A,)) * 2.0], x, nthreads=nthreads, a=size)
        np.testing.assert_array_equal(found, 2 * x)


@pytest.mark.parametrize(
    "shapes", [((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((1, 2, 3), (4, 3, 2)), ((5, 0), (0, 6)), ((1, 1), (1, 1))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
def test_matrix_products(shapes: tuple[tuple[int, ...], ...], dtype: type) -> None:
    x, y = (arange(*s, dtype=dtype) % 5 for s in shapes)
    out = DType.INT32 if dtype is np.int8 else None
    root = k.dot(*(k.input(i, DType.of(dtype), s) for i, s in enumerate(shapes)), out)
    for nthreads in (1, 3):
        (found,) = run_loops([root], x.astype(dtype), y.astype(dtype), nthreads=nthreads)
        np.testing.assert_array_equal(found, x.astype(np.int64) @ y.astype(np.int64))


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.INT64, DType.UINT8])
@pytest.mark.parametrize("size", [8, 9, 13, 16, 17])
def test_short_rows_of_known_size(size: int, dtype: DType) -> None:
    """LLVM writes out loops of few iterations, element by element, unless it is told not to."""
    x, row, column = k.input(0, dtype, (A, size)), k.input(1, dtype, (size,)), k.input(2, dtype, (A, 1))
    arrays = [(arange(*shape) % 7).astype(dtype.numpy) for shape in ((5, size), (size,), (5, 1))]
    check_loops([(x - row) * column], arrays, {"a": 5})


def test_several_outputs() -> None:
    x = k.input(0, F, (A, 5))
    check_loops([x + 1.0, k.exp(x), k.cast(x, DType.INT32), x < 0.5], [normal(3, 5)], {"a": 3})


def test_outputs_of_different_shapes_have_no_nest() -> None:
    x = k.input(0, F, (2, 3))
    with pytest.raises(UnsupportedPrimitive, match="outputs of different shapes in one kernel"):
        compiled([x + 1.0, k.reduce_sum(x, [0])])


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (k.sort(k.input(0, F, (3,)), 0)[0], "primitive 'sort' has no loop form"),
        (k.cast(k.input(0, F, (3,)), DType.COMPLEX64), "complex64 is not compiled"),
        (k.scan(k.input(0, F, (3,)), "sum", 0) + 1.0, "'scan' inside a larger expression"),
    ],
)
def test_what_cannot_be_compiled(root: k.Tensor, reason: str) -> None:
    assert unsupported([root]) == reason
    with pytest.raises(UnsupportedPrimitive, match=reason):
        compiled([root])


@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema_propagate_nan(op: str) -> None:
    x = np.array([[1, np.nan, 3], [np.inf, 0, -np.inf], [np.nan, np.nan, np.nan]], np.float32)
    leaf = k.input(0, F, (A, 3))
    expected = {"max": np.max, "min": np.min}[op]
    for axis in (0, 1):
        (found,) = run_loops([k.reduce(leaf, op, [axis])], x, a=3)
        np.testing.assert_array_equal(found, expected(x, axis))
    (found,) = run_loops([k.binary(op, leaf, k.input(1, F, (3,)))], x, x[0], a=3)
    np.testing.assert_array_equal(found, {"max": np.maximum, "min": np.minimum}[op](x, x[0]))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, bool])
def test_index_of_the_extremum(dtype: type, op: str, last: bool) -> None:
    """The first (or last) of equal elements; NaN counts as the extremum."""
    rows = [[1, 3, 3, 0, 0], [2, 2, 2, 2, 2], [5, 1, 5, 1, 5], [0, 0, 0, 0, 1]]
    if np.issubdtype(dtype, np.floating):
        rows += [[1, np.nan, 0, np.nan, 9], [np.inf, -np.inf, np.inf, -np.inf, 0], [np.nan] * 5]
    x = np.array(rows).astype(dtype)
    for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        check_loops([k.arg_reduce(k.input(0, DType.of(dtype), array.shape), op, axis, last=last)], [array])


@pytest.mark.parametrize(("op", "expected"), [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)])
@pytest.mark.parametrize("axis", [0, 1])
def test_empty_reductions(op: str, expected: float, axis: int) -> None:
    shape = (A, 3) if axis == 0 else (3, A)
    (found,) = run_loops(
        [k.reduce(k.input(0, F, shape), op, [axis])], np.zeros((0, 3) if axis == 0 else (3, 0), np.float32), a=0
    )
    np.testing.assert_array_equal(found, np.full(3, expected))


@pytest.mark.parametrize("dtype", sorted(SUPPORTED_DTYPES), ids=lambda d: d.onnx_name)
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_every_type(dtype: DType, axis: int) -> None:
    x = (arange(5, 6) % 4).astype(dtype.numpy)
    for op in ("any", "all") if dtype is DType.BOOL else ("sum", "prod", "max", "min"):
        check_loops([k.reduce(k.input(0, dtype, (A, 6)), op, [axis])], [x], {"a": 5})


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(op: str, exclusive: bool, reverse: bool, axis: int) -> None:
    for dtype in (DType.FLOAT, DType.INT64):
        root = k.scan(k.input(0, dtype, (A, B)), op, axis, exclusive, reverse)
        for shape in ((3, 4), (1, 5), (5, 1), (0, 4), (4, 0)):
            check_loops([root], [(arange(*shape) % 5 + 1).astype(dtype.numpy)], dict(zip("ab", shape, strict=True)))


@pytest.mark.parametrize(
    ("reduction", "expected"), [("none", 5), ("add", 10 + 2 + 3 + 5), ("mul", 300), ("min", 2), ("max", 10)]
)
def test_scatter_with_repeated_indices_applies_updates_in_order(reduction: str, expected: int) -> None:
    x = np.full(4, 10, np.int32)
    index, updates = np.array([1, 1, 1]), np.array([2, 3, 5], np.int32)
    root = k.scatter(k.input(0, DType.INT32, (A,)), [k.input(1, I64, (B,))], k.input(2, DType.INT32, (B,)), reduction)
    for nthreads in (1, 3):
        (found,) = run_loops([root], x, index, updates, nthreads=nthreads, a=4, b=3)
        np.testing.assert_array_equal(found, [10, expected, 10, 10])


@pytest.mark.parametrize("dtype", sorted(SUPPORTED_DTYPES), ids=lambda d: d.onnx_name)
def test_scatter_of_every_type(dtype: DType) -> None:
    leaves = [k.input(0, dtype, (4, 2)), k.input(1, I64, (3, 1)), k.input(2, dtype, (3, 2))]
    arrays = [(arange(4, 2) % 2).astype(dtype.numpy), np.array([[3], [0], [3]]), (arange(3, 2) % 2).astype(dtype.numpy)]
    for reduction in ("none", "add", "mul", "min", "max"):
        check_loops([k.scatter(leaves[0], [leaves[1], k.iota((3, 2), 1)], leaves[2], reduction)], arrays)


@pytest.mark.parametrize("make", [
    lambda x, i: k.take(x, i, 0), lambda x, i: k.take(x, i, 1),
    lambda x, i: k.index(x, [i, i]), lambda x, i: k.scatter(x, [i, i], k.broadcast(k.scalar(1.0, F), (3,))),
], ids=["take0", "take1", "index", "scatter"])  # fmt: skip
@pytest.mark.parametrize("indices", [[0, 1, 4], [-1, 0, 0], [2**62, 0, 0], [-(2**63), 0, 0]])
def test_indices_out_of_range_are_reported_and_not_followed(make: Callable[..., k.Tensor], indices: list[int]) -> None:
    root = make(k.input(0, F, (4, 4)), k.input(1, I64, (3,)))
    _, status = run_kernel(compiled([root]), [root], [normal(4, 4), np.array(indices)], {})
    assert status == 1


def test_nothing_is_read_from_an_axis_without_elements() -> None:
    """The operand is empty, but its other axis is long: an address computed from it would lie far outside."""
    x, y, i = k.input(0, F, (A, 100_000)), k.input(1, F, (2, 100_000)), k.input(2, I64, (1,))
    empty, full = np.zeros((0, 100_000), np.float32), np.ones((2, 100_000), np.float32)
    (padded,) = run_loops([k.pad(x, (1, 0), (1, 0), 3.0) + 0.0], empty, a=0)
    np.testing.assert_array_equal(padded, np.full((2, 100_000), 3))
    (joined,) = run_loops([-k.concat([x, y], 0)], empty, full, a=0)
    np.testing.assert_array_equal(joined, -full)
    tail = k.strided_slice(y, (A, 0), (1, 1), (2 - A, 100_000))
    (joined,) = run_loops([-k.concat([tail, y], 0)], full, full, a=2)
    np.testing.assert_array_equal(joined, -full)
    root = k.take(x, i, 0)
    _, status = run_kernel(compiled([root]), [root], [empty, full, np.zeros(1, np.int64)], {"a": 0})
    assert status == 1


@pytest.mark.parametrize(("a", "b"), [(1, 3), (3, 1), (3, 3), (1, 1)])
def test_sizes_that_may_turn_out_as_1(a: int, b: int) -> None:
    x, y = k.input(0, F, (A, 4)), k.input(1, F, (B, 4))
    check_loops([x + y], [normal(a, 4), normal(b, 4)], {"a": a, "b": b})


def test_signed_zeros_are_different_kernels() -> None:
    x = k.input(0, F, (2,))
    for zero in (0.0, -0.0):
        (found,) = run_loops([k.unary("abs", x) / k.scalar(zero, F)], np.ones(2, np.float32))
        np.testing.assert_array_equal(found, np.copysign(np.inf, zero))


def test_equal_graphs_share_one_kernel() -> None:
    first, second = (compiled([k.exp(k.input(0, F, (A, 3)) + 1.0)]) for _ in range(2))
    assert first is second


def test_a_reduced_row_read_at_two_places() -> None:
    """The parts of a concatenation read the same sums at different positions."""
    total = k.reduce_sum(k.input(0, F, (3, 4)), [0])
    check_loops([-k.concat([total, total * 2.0], 0)], [normal(3, 4)])


def test_tables_belong_to_the_kernel() -> None:
    table = k.constant(np.array([[1.5, 2.5], [3.5, 4.5]], np.float32))
    check_loops([table + k.transpose(table, (1, 0)) * k.input(0, F, (2,)) + table], [normal(2)])


@pytest.mark.parametrize("have", [(2, 3, 4), (24,), (6, 1, 4), (1, 24, 1), (4, 6)])
@pytest.mark.parametrize("want", [(2, 3, 4), (24,), (6, 1, 4), (3, 8), (4, 6), (2, 2, 2, 3)])
def test_reshapes_of_computed_values(have: tuple[int, ...], want: tuple[int, ...]) -> None:
    """A transposition first, so that the reshape is index arithmetic and not another view of the buffer."""
    x = k.input(0, F, have[::-1])
    check_loops([k.reshape(k.transpose(x, range(len(have))[::-1]), want) + 1.0], [normal(*have[::-1])])


def test_reshapes_with_unknown_sizes() -> None:
    x = k.transpose(k.input(0, F, (A, 2, B)), (1, 0, 2))
    for shape in ((2, A * B), (2 * A, B), (2, 1, A, B), (B, 2, A), (A * B * 2,)):
        check_loops([k.reshape(x, shape) + 1.0], [normal(3, 2, 5)], {"a": 3, "b": 5})


@pytest.mark.parametrize("last", [(2,), (3, 2), (8,), (1, 2, 1), (9,), (0,)])
def test_few_last_elements_are_written_out(last: tuple[int, ...]) -> None:
    x = k.expand_dims(k.input(0, F, (A, B)), range(2, 2 + len(last)))
    root = k.broadcast(x, (A, B, *last)) * k.input(1, F, last)
    for a, b in ((3, 5), (1, 1), (0, 4), (2, CHUNK // 8 + 3)):
        check_loops([root], [normal(a, b), normal(*last)], {"a": a, "b": b})


@pytest.mark.parametrize("ends", [((0, 0), (0, 1)), ((1, 0), (0, 2)), ((2, 0), (1, 1))])
def test_windows_of_what_is_padded_twice(ends: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """As with ceil_mode: the inner border is met earlier than the outer one, at the same index."""
    (low, more), (behind, most) = ends
    x = k.pad(k.input(0, F, (A, B)), (0, low), (0, behind), -1.0)
    view = k.windows(k.pad(x, (0, more), (0, most), 5.0), [1], [2], [2], [1])
    for a, b in ((2, 7), (3, 8), (1, 41), (2, 0), (2, 2)):
        if b + low + behind + more + most > 1:
            check_loops([k.reduce(view, "max", [2])], [normal(a, b)], {"a": a, "b": b})


def test_parts_of_what_is_padded_and_put_together() -> None:
    """Every region is a nest of its own."""
    x, y = k.input(0, F, (A, B, 3)), k.input(1, F, (A, 2, 3))
    whole = k.concat([k.pad(x + 1.0, (0, 2, 1), (0, 0, 1), 7.0), k.pad(y, (0, 0, 0), (0, 1, 2), k.input(2, F, ()))], 1)
    root = k.concat([whole, k.take(whole, k.iota((1,), 0), 0)], 0)
    for a, b in ((3, 5), (1, 0), (2, 40)):
        check_loops([root], [normal(a, b, 3), normal(a, 2, 3), np.float32(5).reshape(())], {"a": a, "b": b})


@pytest.mark.parametrize(("size", "stride", "dilation"), [((3, 3), 2, 1), ((2, 5), 1, 2), ((1, 3), 3, 1), ((7, 5), 2, 1)])
@pytest.mark.parametrize("op", ["max", "sum"])
def test_windows_with_a_border(op: str, size: tuple[int, int], stride: int, dilation: int) -> None:
    """Few elements are written out; along a row what is inside, and what is not, are loops of their own."""
    low, high = (4, 5), (5, 4)
    x = k.pad(k.input(0, F, (2, A, B)), (0, *low), (0, *high), k.input(1, F, ()))
    view = k.windows(x, [1, 2], size, [stride, stride], [dilation, dilation])
    root = k.reduce(view * view - view, op, [3, 4])
    for a, b in ((9, 33), (6, 9), (5, 2), (12, 70), (20, 0), (0, 20)):
        check_loops([root], [normal(2, a, b), np.float32(0.5).reshape(())], {"a": a, "b": b})


def test_scalars() -> None:
    """Rank 0 on both sides."""
    check_loops([k.exp(k.input(0, F, ()))], [np.float32(0.5).reshape(())])
    check_loops([k.size(A * B + 1) + k.input(0, I64, ())], [np.array(3)], {"a": 4, "b": 5})
    check_loops([k.reduce_sum(k.input(0, F, (3, A)), [0, 1])], [normal(3, 4)], {"a": 4})


def test_indices_into_reshaped_empty_operands_divide_by_no_zero() -> None:
    x = k.transpose(k.input(0, F, (A, B)), (1, 0))
    root = k.pad(k.reshape(x, (A, B)), (1, 0), (0, 1), 2.0)
    for a, b in ((0, 0), (0, 3), (3, 0), (2, 3)):
        check_loops([root], [normal(a, b)], {"a": a, "b": b})


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5, 3), (1, 3, 1, 5, 2), (4, 1, 1, 1, 9), (0, 3, 2, 2, 2), (2, 3, 0, 5, 1)])
def test_places_along_many_axes_are_counted(sizes: tuple[int, ...]) -> None:
    """Axes that cannot be merged, from any place on that a thread begins at, at known sizes and at open ones."""
    names = [symbol(f"s{n}") for n in range(5)]
    x, y = normal(*sizes), normal(sizes[0], 1, sizes[2], 1, sizes[4])
    env = {f"s{n}": d for n, d in enumerate(sizes)}
    for shape in (sizes, tuple(names)):
        other = (shape[0], 1, shape[2], 1, shape[4])
        root = k.input(0, F, shape) + k.broadcast(k.input(1, F, other), shape)
        for threads in (1, 2, 3, 7):
            (got,) = run_loops([root], x, y, nthreads=threads, **({} if shape is sizes else env))
            np.testing.assert_array_equal(got, x + y)


@pytest.mark.parametrize(("axes", "effort"), [(8, Effort.ALL), (28, Effort.VECTORS)])
def test_deep_nests_are_compiled_without_passes_for_loops(axes: int, effort: str) -> None:
    """What these passes take doubles with every loop or two around another."""
    names = [symbol(f"s{n}") for n in range(axes)]
    x, odd = k.input(0, F, tuple(names)), list(range(1, axes, 2))
    assert compiled([k.reduce_sum(x, odd)]).text.effort == effort
    sizes = [2 if n in (0, 1, axes - 1) else 1 for n in range(axes)]
    check_loops([k.reduce_sum(x, odd)], [normal(*sizes)], {f"s{n}": d for n, d in enumerate(sizes)})
