"""Four neighbours along the last axis for each thread: element-wise kernels by vectors, window sums that share what they read.

- Element-wise: memory is read and written four elements at a time; what does not change along the last axis (a bias per
  channel) is read once for the four. Where any element would have to be read by itself, `map_kernel` is the better schedule.
- Sums over windows (depthwise convolutions, pooling): written out, so that neighbours share elements and their bounds, and
  no index is divided at run time: 18 loads for four elements of a 3 x 3 window instead of 36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.schedules import THREADS, Kernel, _extent, _finished, _flat, _grid
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.vec4 import LANES, Fours
from intarsia.codegen.clike.writer import Block
from intarsia.codegen.loops.collapse_axes import collapse
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.index_expr import ELEMENTWISE, ZERO, Index, add, linear, regroup, scale
from intarsia.primitives.lang import Tensor, walk

_MOST_TERMS = 64  # of a window
_MOST_PRIMITIVES = 40
_LEAST = 1 << 12  # elements: fewer are no work for a device as it is
_PLAIN = ELEMENTWISE | frozenset("input scalar iota broadcast expand reshape transpose slice pad".split())


def lane_kernel(dialect: Dialect, root: Tensor) -> Kernel | None:
    """The kernel, or None where a thread for each element is better."""
    (root,) = collapse([stripped(root)])
    order = walk([root])
    plain = all(t.prim in _PLAIN for t in order)
    if not plain and not _is_window_sum(order):
        return None
    if len(order) > _MOST_PRIMITIVES or dialect.packed(root.dtype) > 1 or _extent(*root.shape) < _LEAST:
        return None
    last = _extent(root.shape[-1])
    whole = last % LANES == 0 and bool(dialect.vector_of(root.dtype))
    if last < LANES or plain and not whole:
        return None
    trial = _Lanes(dialect, root, whole)
    kernel = trial.kernel()
    if plain and (trial.scattered or not trial.vectors | trial.words):
        return None
    if not dialect.typed_buffers:
        return kernel
    return _Lanes(dialect, root, whole, trial.vectors - trial.scattered).kernel()


def _is_window_sum(order: Sequence[Tensor]) -> bool:
    sums = [t for t in order if t.prim in ("dot", "reduce")]
    if len(sums) != 1 or not any(t.prim == "windows" for t in order) or any(t.prim not in _SUMS for t in order):
        return False
    return _terms(sums[0]) <= _MOST_TERMS


_SUMS = _PLAIN | frozenset(("windows", "dot", "reduce"))


def _terms(t: Tensor) -> int:
    shape = t.args[0].shape
    return _extent(shape[-1]) if t.prim == "dot" else _extent(*(shape[a] for a in t.attrs[1]))


class _Lanes(Fours):
    """The kernel of a root, whose last axis is `whole` vectors."""

    def __init__(self, dialect: Dialect, root: Tensor, whole: bool, vectors: frozenset[object] | None = None) -> None:
        super().__init__(dialect, vectors)
        self.root, self.whole = root, whole
        self.sizes_of = [_extent(d) for d in root.shape]
        self.along = (f"a{root.rank - 1}", "start")

    def kernel(self) -> Kernel:
        d, sizes = self.dialect, self.sizes_of
        out = self.output(self.root.dtype, sizes, self.whole and d.typed_buffers)
        groups = -(-sizes[-1] // LANES)
        total = _extent(*sizes[:-1]) * groups
        block = _flat(self, "w", THREADS, total, self.top)
        outer, start = self._places(block, groups)
        values = []
        for lane in range(LANES):
            at = [*outer, add(start, ("c", lane))]
            values.append((self.value(self.root, at, block), at))
        if self.whole:
            parts = [self.stored(value, self.root.dtype, block) for value, _ in values]
            self.write_vector(out, self.root.dtype, "w", parts, block)
        else:
            for value, at in values:
                self.store(out, self.root.dtype, self.index(linear(at, sizes), block), value, block)
        return _finished(self, _grid(d, -(-total // THREADS)), THREADS)

    def _places(self, block: Block, groups: int) -> tuple[list[Index], Index]:
        """A variable for each axis, and the first of this thread's places along the last one.

        A last group that is not whole begins earlier: what it shares with the one before is the same.
        """
        d, sizes = self.dialect, self.sizes_of
        total = _extent(*sizes[:-1]) * groups
        *outer, last = regroup([("v", "w")], [total], [*sizes[:-1], groups])
        names: list[Index] = []
        for i, (index, size) in enumerate(zip([*outer, last], [*sizes[:-1], groups], strict=True)):
            if index == ZERO:
                names.append(ZERO)
                continue
            self.define(f"a{i}", index, size - 1, block)
            names.append(("v", f"a{i}"))
        if self.whole:
            return names[:-1], scale(names[-1], LANES)
        limit = self.number(sizes[-1] - LANES)
        first = self.index(scale(names[-1], LANES), block)
        block.write(d.let("start", Kind.I32, d.select(f"({first} < {limit})", first, limit)))
        block.names.add("start")
        self.bounds["start"] = sizes[-1] - LANES
        return names[:-1], ("v", "start")

    # --- sums, written out ---

    def _reduction(
        self,
        t: Tensor,
        op: str,
        extents: list[int],
        element: Callable[[list[Index], Block], str],
        at: list[Index],
        block: Block,
    ) -> str:
        total = self.elements.variable(block, self.identity(op, t.dtype), KINDS[t.dtype])
        terms = _extent(*extents)
        for n in range(terms):
            where = [self.plain(i) for i in regroup([("c", n)], [terms], extents)]
            value = element(where, block)
            block.write(f"{total} = {self.combined(op, total, value, t.dtype, block)};")
        return total
