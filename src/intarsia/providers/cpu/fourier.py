"""DFT, STFT, Rfft and Irfft by a kernel: passes over the lines along an axis, one after the other.

A line that is long and has few beside it goes in two passes (n = rows * columns): the columns, whose results are turned, then
the rows, whose results lie as a transposed matrix. So neighbouring columns or rows fill a vector, and threads share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codegen import fourier as template
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.fourier import Form, Lines
from intarsia.codegen.fourier_tables import split_of, tables, twists
from intarsia.codegen.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.model import Node, TensorType
from intarsia.plan.step import SCRATCH, Argument, Below, Ref, Sizes, Step
from intarsia.providers.cpu.template import FusedOperand, Template, Workspace, tensor_types

if TYPE_CHECKING:
    from intarsia.ops.infer import Inference

_SERIAL_ELEMENTS = 8192
_LEAST_SPLIT = 512  # shorter lines gain nothing by two passes
_LONG = 8192  # longer ones leave the cache in one pass, however many there are


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
        arguments = _Arguments(self, target)
        return Step(
            template.kernel_text(self.form, target), reads, (self.target,), arguments, scratch_nbytes=arguments.scratch_nbytes,
            serial=Below(product((self.n, self.outer, self.inner)), _SERIAL_ELEMENTS), label="Fourier transform",
        )  # fmt: skip


@dataclass(frozen=True)
class _Arguments:
    """A pass's arguments, once sizes are known. A transform of no elements is one zero, of which no or one element is kept."""

    made: Pass
    target: Target

    @property
    def _dtype(self) -> str:
        return np.dtype(self.made.form.dtype.numpy).name

    def _length(self, size: Sizes) -> int:
        n = size(self.made.n)
        if n < 0:
            raise InvalidArgument(f"{self.made.where}: the length of the transform is {n}; expected 0 or more")
        return max(n, 1)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        smooth = tables(self._length(size), self._dtype).smooth
        return threads * template.scratch_nbytes(self.made.form.dtype, smooth, self.target)

    def __call__(self, size: Sizes, threads: int) -> Sequence[Argument]:
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


@dataclass(frozen=True)
class Fourier(Template):
    """`passes`: what is computed from `%x` to `%y`, which stand for the node's operand and its output."""

    passes: tuple[Pass, ...] = field(kw_only=True)
    equal: tuple[tuple[Dim, Dim], ...] = field(default=(), kw_only=True)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        return self.equal

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        names = {"%x": self.reads[0], "%window": self.reads[-1], "%y": out, "": ""}
        where = f"node {self.node.name!r} ({self.node.qualified_op})"
        found: list[Step] = []
        for made in self.passes:
            lines = product((made.outer, made.inner))
            if made.target == "%t":
                names["%t"] = workspace.temporary(f"{out}%spectrum", made.form.dtype, (lines * made.n, 2))
            form = replace(made.form, paired=made.form.paired and (lines != 1 or made.form.source == "half"))
            renamed = replace(
                made, form=form, source=names[made.source], target=names[made.target], window=names[made.window], where=where
            )
            found += [part.step(target) for part in _in_two(renamed, workspace, target) or [renamed]]
        return found


def _in_two(made: Pass, workspace: Workspace, target: Target) -> list[Pass] | None:
    """A pass over long lines of contiguous elements as two, where that helps; its sizes have to be known."""
    lanes = template.lanes_of(made.form.dtype, target)
    n, lines, have = made.n, product((made.outer, made.inner)), made.have
    if not isinstance(n, int) or not isinstance(lines, int) or not isinstance(have, int) or not isinstance(made.bins, int):
        return None
    few = lines * (2 if made.form.paired else 1) < lanes
    if n < (_LEAST_SPLIT if few else _LONG) or have < n or made.x[2] != 1 or made.y[2] != 1 or made.inner != 1:
        return None
    if made.form.target != "complex" or made.form.source == "half" or made.form.windowed:
        return None
    split = split_of(n, lanes)
    if split is None or (made.bins < n and (split[1] % 2 or made.bins != n // 2 + 1)):
        return None
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


# --- nodes ------------------------------------------------------------------------------------------------------------


def _known(node: Node, index: int, inference: Inference) -> Dim | None:
    """The one element of an integer input, where it is known before the model runs."""
    values = inference.values.get(node.inputs[index])
    if values is None or values.size != 1:
        return None
    found: Dim = values.reshape(-1)[0]
    return found if isinstance(found, Expr) else int(found)


def _given(node: Node, index: int) -> bool:
    return index < len(node.inputs) and bool(node.inputs[index])


def _shaped(kind: object) -> TensorType | None:
    return kind if isinstance(kind, TensorType) and kind.shape is not None and kind.dtype in template.DTYPES else None


def dft(node: Node, inference: Inference) -> Template | None:
    """DFT along a known axis, by a length that is known once shapes are."""
    x, out = _shaped(tensor_types(node, inference)[0]), _shaped(inference.types.get(node.outputs[0]))
    if x is None or out is None or x.shape is None or out.shape is None or len(x.shape) < 2 or x.shape[-1] not in (1, 2):
        return None
    rank, inverse = len(x.shape), bool(node.attributes.get("inverse", 0))
    onesided, real = bool(node.attributes.get("onesided", 0)), x.shape[-1] == 1
    axis = int(node.attributes.get("axis", 1)) if node.version < 20 else -2
    if node.version >= 20 and _given(node, 2):
        given = _known(node, 2, inference)
        if not isinstance(given, int):
            return None
        axis = given
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank - 1 or (onesided and real == inverse):
        return None
    have = x.shape[axis]
    length: Dim | None = (have - 1) * 2 if inverse and onesided else have
    if _given(node, 1):
        length = _known(node, 1, inference)
    if length is None:
        return None
    form = Form(x.dtype, "half" if inverse and onesided else "real" if real else "complex", "complex", inverse)
    form = replace(form, target="real" if form.source == "half" else "complex", paired=form.source != "complex")
    outer, inner = product(x.shape[:axis]), product(x.shape[axis + 1 : -1])
    bins = out.shape[axis]
    made = Pass(
        form, "%x", "%y", length, have, bins, outer, inner, (have * inner, 1, inner), (bins * inner, 1, inner),
        length if inverse else 1,
    )  # fmt: skip
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, passes=(made,))


def stft(node: Node, inference: Inference) -> Template | None:
    """STFT by steps and lengths that are known once shapes are."""
    types = tensor_types(node, inference)
    x, out, step = _shaped(types[0]), _shaped(inference.types.get(node.outputs[0])), _known(node, 1, inference)
    if x is None or out is None or x.shape is None or out.shape is None or step is None or len(x.shape) not in (2, 3):
        return None
    real, onesided = len(x.shape) == 2 or x.shape[2] == 1, bool(node.attributes.get("onesided", 1))
    window = _shaped(types[2]) if _given(node, 2) else None
    if (isinstance(step, int) and step < 1) or (onesided and not real) or (len(x.shape) == 3 and x.shape[2] not in (1, 2)):
        return None
    length: Dim | None = x.shape[1]
    if _given(node, 3):
        length = _known(node, 3, inference)
    elif window is not None and window.shape is not None:
        length = window.shape[0]
    if length is None or (_given(node, 2) and (window is None or window.shape is None or window.dtype is not x.dtype)):
        return None
    equal: tuple[tuple[Dim, Dim], ...] = ()
    if window is not None and window.shape is not None and window.shape[0] != length:
        if isinstance(length, int) and isinstance(window.shape[0], int):
            return None
        equal = ((window.shape[0], length),)
    form = Form(x.dtype, "real" if real else "complex", "complex", paired=real, windowed=window is not None)
    batch, frames, bins = out.shape[:3]
    made = Pass(
        form, "%x", "%y", length, length, bins, batch, frames, (x.shape[1], step, 1), (frames * bins, bins, 1),
        window="%window" if window is not None else "",
    )  # fmt: skip
    names = (node.inputs[0], *((node.inputs[2],) if window is not None else ()))
    kinds = (x, *((window,) if window is not None else ()))
    return Fourier(node, names, kinds, out, takes_epilogue=False, passes=(made,), equal=equal)


def rfft(node: Node, inference: Inference) -> Template | None:
    """com.microsoft::Rfft: the last axis, then the others of the signal in place."""
    x, out = _shaped(tensor_types(node, inference)[0]), _shaped(inference.types.get(node.outputs[0]))
    axes = int(node.attributes.get("signal_ndim", 1))
    if x is None or out is None or x.shape is None or out.shape is None or not _plain(node) or not 1 <= axes <= len(x.shape):
        return None
    n, bins = x.shape[-1], out.shape[-2]
    form = Form(x.dtype, "real", "complex", paired=True)
    lines = product(x.shape[:-1])
    passes = [Pass(form, "%x", "%y", n, n, bins, lines, 1, (n, 1, 1), (bins, 1, 1))]
    passes += _along("%y", out.shape[:-1], range(len(x.shape) - axes, len(x.shape) - 1), Form(x.dtype, "complex", "complex"))
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, passes=tuple(passes))


def irfft(node: Node, inference: Inference) -> Template | None:
    """com.microsoft::Irfft: the signal's other axes, then the last."""
    x, out = _shaped(tensor_types(node, inference)[0]), _shaped(inference.types.get(node.outputs[0]))
    if x is None or out is None or x.shape is None or out.shape is None or not _plain(node) or x.shape[-1] != 2:
        return None
    axes, shape = int(node.attributes["signal_ndim"]), x.shape[:-1]
    if not 1 <= axes <= len(shape):
        return None
    passes = _along("%t", shape, range(len(shape) - axes, len(shape) - 1), Form(x.dtype, "complex", "complex", True))
    if passes:
        passes[0] = replace(passes[0], source="%x")
    have, n, lines = shape[-1], out.shape[-1], product(shape[:-1])
    form = Form(x.dtype, "half", "real", True, paired=True)
    source = "%t" if passes else "%x"
    passes.append(Pass(form, source, "%y", n, have, n, lines, 1, (have, 1, 1), (n, 1, 1), n))
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, passes=tuple(passes))


def _plain(node: Node) -> bool:
    return bool(node.attributes.get("onesided", 1)) and not node.attributes.get("normalized", 0)


def _along(name: str, shape: Sequence[Dim], axes: Sequence[int], form: Form) -> list[Pass]:
    """Transforms of complex numbers along each of `axes`, in place."""
    found = []
    for axis in axes:
        n, inner = shape[axis], product(shape[axis + 1 :])
        strides = (n * inner, 1, inner)
        scale: Dim = n if form.inverse else 1
        found.append(Pass(form, name, name, n, n, n, product(shape[:axis]), inner, strides, strides, scale))
    return found
