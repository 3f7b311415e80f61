"""Passes of Fourier transforms over lines, as steps; a long line with few beside it becomes several.

n = rows * columns: the columns are transformed and turned, then the rows, whose results lie as a transposed matrix. So
neighbouring columns or rows fill a vector, and threads share them. Real numbers are taken for half as many complex ones
(`kernels.fourier.long_line_ends`), and a length with a large prime factor becomes two transforms of a smooth length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Dim, number_of, numbers_of, product
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Below, KernelCall, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.template import Workspace
from intarsia.providers.cpu.kernels.fourier import fft_kernel as template
from intarsia.providers.cpu.kernels.fourier import long_line_ends as ends
from intarsia.providers.cpu.kernels.fourier.fft_kernel import Form, Lines
from intarsia.providers.cpu.kernels.fourier.twiddle_tables import split_of, tables, twists

_SERIAL_ELEMENTS = 8192
_LEAST_SPLIT = 512  # shorter lines gain nothing by two passes
_LONG = 8192  # longer ones leave the cache in one pass, however many there are
_DYNAMIC = Support.no("its sizes are known only in a run")


@dataclass(frozen=True)
class Pass:
    """Transforms of all lines from one buffer to another; sizes and strides in elements of a buffer's kind.

    Attributes:
        x, y: strides: of the outer index, of the inner one, along a line.
        have: elements that a line has; the rest up to `n` are zeros.
        bins: elements of the result that are written.
        scaled: the result is divided by it.
        twist: rows and columns of the table of `Form.twisted`.
    """

    form: Form
    source: str
    target: str
    n: Dim
    have: Dim
    bins: Dim
    outer: Dim
    inner: Dim
    x: tuple[Dim, Dim, Dim]
    y: tuple[Dim, Dim, Dim]
    scaled: Dim = 1
    window: str = ""
    twist: tuple[int, int] = (0, 0)
    where: str = ""

    def step(self, target: Target) -> Step:
        reads = (self.source, self.window) if self.window else (self.source,)
        return Step(
            template.kernel_text(self.form, target), reads, (self.target,), PassCall(self, target),
            serial=Below(product((self.n, self.outer, self.inner)), _SERIAL_ELEMENTS), label="Fourier transform",
        )  # fmt: skip


@dataclass(frozen=True)
class PassCall(ScratchCall):
    """A pass's arguments, once sizes are known. A transform of no elements is one zero; no or one element is written of it."""

    made: Pass
    target: Target

    @property
    def _dtype(self) -> str:
        return np.dtype(self.made.form.dtype.numpy).name

    def _length(self, size: Sizes) -> int:
        n = size(self.made.n)
        if n < 0:
            raise NodeFailed(f"{self.made.where}: the length of the transform is {n}; expected 0 or more")
        return max(n, 1)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        smooth = tables(self._length(size), self._dtype).smooth
        return threads * template.scratch_nbytes(self.made.form.dtype, smooth, self.target)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        made, n = self.made, self._length(size)
        have = min(size(made.have), size(made.n))
        x_outer, x_inner, x_step = (size(s) for s in made.x)
        y_outer, y_inner, y_step = (size(s) for s in made.y)
        lines = Lines((x_outer, x_inner, x_step), (y_outer, y_inner, y_step), size(made.outer), size(made.inner))
        turns: Any = twists(*made.twist, made.form.inverse, self._dtype) if made.form.twisted else 0
        pitch = turns.strides[0] if made.form.twisted else 0
        buffers = [
            Ref(made.source),
            Ref(made.target),
            Ref(made.window) if made.window else 0,
            turns,
            Ref(SCRATCH),
        ]
        return template.kernel_args(
            made.form, self.target, tables(n, self._dtype), lines, have=have, bins=size(made.bins),
            scale=1 / max(size(made.scaled), 1), pitch=pitch, buffers=buffers,
        )  # fmt: skip


def may_halve(made: Pass, target: Target) -> Support:
    """Whether a pass over long lines may be two, by rows and columns of a matrix, and is worth it."""
    n, lines, have = made.n, product((made.outer, made.inner)), made.have
    if not isinstance(n, int) or not isinstance(lines, int) or not isinstance(have, int) or not isinstance(made.bins, int):
        return _DYNAMIC
    least = _LEAST_SPLIT if _is_few(made, lines, target) else _LONG
    if n < least:
        return Support.no(f"lines of {n} elements, fewer than {least}, gain nothing by two passes")
    if have < n or made.x[2] != 1 or made.y[2] != 1 or made.inner != 1:
        return Support.no("its lines are filled up, or their elements do not lie side by side")
    if made.form.target != "complex" or made.form.source == "half" or made.form.windowed:
        return Support.no("its result is real, or it has a window")
    split = split_of(n, template.lanes_of(made.form.dtype, target))
    if split is None:
        return Support.no(f"{n} is no product of two factors that fill vectors")
    if made.bins < n and (split[1] % 2 or made.bins != n // 2 + 1):
        return Support.no("what it keeps of the result is not the half that two passes compute")
    return Support.yes()


def _is_few(made: Pass, lines: int, target: Target) -> bool:
    """Whether there are fewer lines than a vector has lanes."""
    return lines * (2 if made.form.paired else 1) < template.lanes_of(made.form.dtype, target)


def in_two(made: Pass, workspace: Workspace, target: Target) -> list[Pass]:
    """A pass over long lines of contiguous elements as two, where it `may_halve`; else as it is."""
    if not may_halve(made, target):
        return [made]
    n, lines = number_of(made.n), number_of(product((made.outer, made.inner)))
    split = split_of(n, template.lanes_of(made.form.dtype, target))
    assert split is not None
    rows, columns = split
    between = workspace.temporary(f"{made.target}%columns", made.form.dtype, (lines * n, 2))
    form = replace(made.form, paired=False, twisted=True)
    outer, y_outer = made.outer, made.y[0]
    first = Pass(
        form, made.source, between, rows, rows, rows, outer, columns, (made.x[0], 1, columns), (n, 1, columns),
        twist=(rows, columns), where=made.where,
    )  # fmt: skip
    last = Pass(
        replace(form, source="complex", twisted=False), between, made.target, columns, columns,
        columns if made.bins == n else columns // 2, outer, rows, (n, columns, 1), (y_outer, 1, rows), made.scaled,
        where=made.where,
    )  # fmt: skip
    if made.bins == n:
        return [first, last]
    middle = replace(last, bins=columns // 2 + 1, inner=1)  # and the element n / 2, which belongs to the first row
    return [first, last, middle]


@dataclass(frozen=True)
class _End(KernelCall):
    """A step of `long_line_ends` over dense lines; strides in elements."""

    kernel: ends.Form
    source: str
    target: str
    lines: int
    x_pitch: int
    y_pitch: int
    have: int
    count: int
    table: str  # "turns", "chirp", "filter" or "ones"
    n: int
    inverse: bool = False
    scaled: int = 1

    def step(self, target: Target) -> Step:
        return Step(
            ends.kernel_text(self.kernel, target), (self.source,), (self.target,), self,
            serial=Below(self.lines * self.count, _SERIAL_ELEMENTS), label=f"Fourier transform, {self.kernel.kind}",
        )  # fmt: skip

    def _table(self) -> np.ndarray:
        dtype = np.dtype(self.kernel.dtype.numpy).name
        if self.table == "turns":
            return ends.turns(max(self.have, self.count), self.n, self.inverse, dtype)
        if self.table == "ones":
            return np.tile(np.array([1, 0], dtype), self.count)
        found = tables(self.n, dtype)
        pairs = found.chirp if self.table == "chirp" else found.filter
        assert pairs is not None
        return pairs * np.tile(np.array([1, -1], dtype), len(pairs) // 2) if self.inverse else pairs

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        itemsize = self.kernel.dtype.bits // 8
        pitches = [
            pitch * itemsize * (1 if kind == "real" else 2)
            for pitch, kind in ((self.x_pitch, self.kernel.source), (self.y_pitch, self.kernel.target))
        ]
        scale = np.array([1 / self.scaled], self.kernel.dtype.numpy)
        return [Ref(self.source), Ref(self.target), self._table(), scale, self.lines, *pitches, self.have, self.count]


def is_long_line(made: Pass, target: Target) -> Support:
    """Whether it is one of few long lines of contiguous elements and known sizes that one or two passes alone do not serve
    well."""
    n, lines, have, bins, scaled = made.n, product((made.outer, made.inner)), made.have, made.bins, made.scaled
    if not all(isinstance(d, int) for d in (n, lines, have, bins, scaled, made.x[0], made.y[0])):
        return _DYNAMIC
    assert isinstance(n, int) and isinstance(lines, int) and isinstance(have, int)
    if not _is_few(made, lines, target):
        return Support.no(f"{lines} lines fill a vector")
    if n < _LEAST_SPLIT:
        return Support.no(f"lines of {n} elements, fewer than {_LEAST_SPLIT}, gain nothing by several passes")
    if made.form.windowed or made.inner != 1 or made.x[2] != 1 or made.y[2] != 1:
        return Support.no("it has a window, or elements of its lines do not lie side by side")
    if made.form.source == "half" and (have < n // 2 + 1 or bins != n):
        return Support.no("its half of a spectrum is filled up, or its result is cut")
    if not _LongLines(made, target).way:
        return Support.no("its lines are complex, of a length with small factors alone, or cut")
    return Support.yes()


def long_line_steps(made: Pass, workspace: Workspace, target: Target) -> list[Step]:
    """The steps of a pass that `is_long_line`."""
    return _LongLines(made, target, workspace).steps()


class _LongLines:
    """The steps of one pass whose sizes are numbers."""

    def __init__(self, made: Pass, target: Target, workspace: Workspace | None = None) -> None:
        """`workspace` is needed by `steps` alone."""
        self.made, self.workspace, self.target, self.form = made, workspace, target, made.form
        self.n, self.have, self.bins, self.scaled = numbers_of((made.n, made.have, made.bins, made.scaled))
        self.lines = number_of(product((made.outer, made.inner)))
        self.x_pitch, self.y_pitch = numbers_of((made.x[0], made.y[0]))

    @property
    def way(self) -> str:
        """How they are computed: as half as many complex numbers ("unfold", "fold"), as two transforms of a smooth length
        ("convolve"), or of the whole spectrum ("fill"); "" for none."""
        form, n, half = self.form, self.n, self.n // 2
        whole = self.have == self.x_pitch == n and self.bins == half + 1
        if form.source == "real" and not form.inverse and n % 2 == 0 and whole:
            return "unfold"
        if form.source == "half" and n % 2 == 0 and self.y_pitch == self.scaled == n:
            return "fold"
        if tables(n, np.dtype(form.dtype.numpy).name).smooth != n:
            return "convolve"
        return "fill" if form.source == "half" else ""

    def steps(self) -> list[Step]:
        form, n, half, made, way = self.form, self.n, self.n // 2, self.made, self.way
        inner = Form(form.dtype, "complex", "complex", form.inverse)
        if way == "unfold":
            z = self._temporary("z", half)
            last = self._end("unfold", z, made.target, half, self.y_pitch, half, half + 1, "turns", n)
            return [*self._lines(inner, made.source, z, half, half, (half, half), 1), last]
        if way == "fold":
            z = self._temporary("z", half)
            first = self._end("fold", made.source, z, self.x_pitch, half, half + 1, half, "turns", n, inverse=True)
            return [first, *self._lines(inner, z, made.target, half, half, (half, half), half)]
        if way == "convolve":
            pitches = self.x_pitch, self.y_pitch
            return self._convolved(form, made.source, made.target, n, self.have, self.bins, pitches, self.scaled)
        assert way == "fill"
        full, result = self._temporary("full", n), self._temporary("result", n)
        first = self._end("multiply", made.source, full, self.x_pitch, n, n, n, "ones", n, source_kind="half")
        last = self._end("multiply", result, made.target, n, self.y_pitch, n, n, "ones", n, target_kind="real")
        return [first, *self._lines(inner, full, result, n, n, (n, n), self.scaled), last]

    def _temporary(self, what: str, elements: int) -> str:
        assert self.workspace is not None
        return self.workspace.temporary(f"{self.made.target}%{what}", self.form.dtype, (self.lines, elements, 2))

    def _end(
        self, kind: str, source: str, target: str, x_pitch: int, y_pitch: int, have: int, count: int, table: str, n: int, *,
        inverse: bool = False, source_kind: str = "complex", target_kind: str = "complex", scaled: int = 1,
    ) -> Step:  # fmt: skip
        form = ends.Form(kind, self.form.dtype, source_kind, target_kind)
        made = _End(form, source, target, self.lines, x_pitch, y_pitch, have, count, table, n, inverse, scaled)
        return made.step(self.target)

    def _lines(
        self, form: Form, source: str, target: str, n: int, bins: int, pitches: tuple[int, int], scaled: int
    ) -> list[Step]:
        """Complex lines of any length."""
        if tables(n, np.dtype(form.dtype.numpy).name).smooth != n:
            return self._convolved(form, source, target, n, n, bins, pitches, scaled)
        x, y = ((pitch, 1, 1) for pitch in pitches)
        made = Pass(form, source, target, n, n, bins, self.lines, 1, x, y, scaled, where=self.made.where)
        assert self.workspace is not None
        return [part.step(self.target) for part in in_two(made, self.workspace, self.target)]

    def _convolved(
        self, form: Form, source: str, target: str, n: int, have: int, bins: int, pitches: tuple[int, int], scaled: int
    ) -> list[Step]:
        """Bluestein's transform: times the chirp, a transform, times the filter, one back, times the chirp."""
        smooth = tables(n, np.dtype(form.dtype.numpy).name).smooth
        here, there = (self._temporary(f"{what}{n}", smooth) for what in ("chirped", "filtered"))
        forward = Form(form.dtype, "complex", "complex")
        present = n if form.source == "half" else min(have, n)
        backward, inverse, kinds = replace(forward, inverse=True), form.inverse, (form.source, form.target)
        return [
            self._end(
                "multiply", source, here, pitches[0], smooth, present, smooth, "chirp", n, inverse=inverse, source_kind=kinds[0]
            ),
            *self._lines(forward, here, there, smooth, smooth, (smooth, smooth), 1),
            self._end("multiply", there, here, smooth, smooth, smooth, smooth, "filter", n, inverse=inverse),
            *self._lines(backward, here, there, smooth, smooth, (smooth, smooth), 1),
            self._end(
                "multiply", there, target, smooth, pitches[1], bins, bins, "chirp", n, inverse=inverse, target_kind=kinds[1],
                scaled=scaled,
            ),
        ]  # fmt: skip
