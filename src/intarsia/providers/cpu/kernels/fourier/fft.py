"""DFT, STFT, Rfft and Irfft: passes over the lines along an axis, one after the other (`fft_passes`), and their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, result_spec
from intarsia.providers.cpu.kernels.fourier import fft_kernel as template
from intarsia.providers.cpu.kernels.fourier.fft_kernel import Form
from intarsia.providers.cpu.kernels.fourier.fft_passes import Pass
from intarsia.providers.cpu.kernels.fourier.fft_schedules import LongLines, OnePass, TwoPasses

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference


SCHEDULES: tuple[Schedule[Fourier], ...] = (
    LongLines("long-lines"),
    TwoPasses("two-passes"),
    OnePass("one-pass"),
)  # in the order of preference; the last takes every transform

_MOST_LENGTH = 1 << 22


@dataclass(frozen=True)
class Fourier(Template):
    """`lines`: what is computed from `%x` to `%y`, which stand for the node's operand and its output."""

    lines: tuple[Pass, ...] = field(kw_only=True)
    equal: tuple[tuple[Dim, Dim], ...] = field(default=(), kw_only=True)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        return self.equal

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """`lines`, of which one alone has no other to be computed with in pairs."""

        def form(made: Pass) -> Form:
            alone = product((made.outer, made.inner)) == 1 and made.form.source != "half"
            return replace(made.form, paired=made.form.paired and not alone)

        return tuple(replace(made, form=form(made)) for made in self.lines)

    def named_passes(self, request: KernelRequest) -> list[Pass]:
        """The passes by the names of their buffers."""
        names = {"%x": self.reads[0], "%window": self.reads[-1], "%y": request.out, "": ""}
        where, found = f"node {self.node.name!r} ({self.node.qualified_op})", []
        for made in self.passes:
            if made.target == "%t":
                shape = (product((made.outer, made.inner)) * made.n, 2)
                names["%t"] = request.workspace.temporary(f"{request.out}%spectrum", made.form.dtype, shape)
            source, target, window = names[made.source], names[made.target], names[made.window]
            found.append(replace(made, source=source, target=target, window=window, where=where))
        return found

    def schedule_table(self) -> tuple[Schedule[Fourier], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)


# --- nodes ------------------------------------------------------------------------------------------------------------


def _known(node: Node, index: int, inference: Inference) -> Dim | None:
    """The one element of an integer input, where it is known before the model runs."""
    values = inference.values.get(node.inputs[index])
    if values is None or values.size != 1:
        return None
    found: Dim = values.reshape(-1)[0]
    return found if isinstance(found, Expr) else int(found)


def _is_long(length: Dim) -> bool:
    """Whether the tables of a transform, which would be made with the session, are larger than a model should need."""
    return isinstance(length, int) and length > _MOST_LENGTH


def _given(node: Node, index: int) -> bool:
    return index < len(node.inputs) and bool(node.inputs[index])


def _floats(kind: TensorSpec | None) -> TensorSpec | None:
    """The spec, if it is of a type that transforms have."""
    return kind if kind is not None and kind.dtype in template.DTYPES else None


def dft(node: Node, inference: Inference) -> Template | None:
    """DFT along a known axis, by a length that is known once shapes are."""
    x, out = _floats(operand_specs(node, inference)[0]), _floats(result_spec(node, inference))
    if x is None or out is None or len(x.shape) < 2 or x.shape[-1] not in (1, 2):
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
    if length is None or _is_long(length):
        return None
    form = Form(x.dtype, "half" if inverse and onesided else "real" if real else "complex", "complex", inverse)
    form = replace(form, target="real" if form.source == "half" else "complex", paired=form.source != "complex")
    outer, inner = product(x.shape[:axis]), product(x.shape[axis + 1 : -1])
    bins = out.shape[axis]
    made = Pass(
        form, "%x", "%y", length, have, bins, outer, inner, (have * inner, 1, inner), (bins * inner, 1, inner),
        length if inverse else 1,
    )  # fmt: skip
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, lines=(made,))


def stft(node: Node, inference: Inference) -> Template | None:
    """STFT by steps and lengths that are known once shapes are."""
    types = operand_specs(node, inference)
    x, out, step = _floats(types[0]), _floats(result_spec(node, inference)), _known(node, 1, inference)
    if x is None or out is None or step is None or len(x.shape) not in (2, 3):
        return None
    real, onesided = len(x.shape) == 2 or x.shape[2] == 1, bool(node.attributes.get("onesided", 1))
    window = _floats(types[2]) if _given(node, 2) else None
    if (isinstance(step, int) and step < 1) or (onesided and not real) or (len(x.shape) == 3 and x.shape[2] not in (1, 2)):
        return None
    length: Dim | None = x.shape[1]
    if _given(node, 3):
        length = _known(node, 3, inference)
    elif window is not None:
        length = window.shape[0]
    if length is None or _is_long(length):
        return None
    if _given(node, 2) and (window is None or window.dtype is not x.dtype):
        return None
    equal: tuple[tuple[Dim, Dim], ...] = ()
    if window is not None and window.shape[0] != length:
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
    return Fourier(node, names, kinds, out, takes_epilogue=False, lines=(made,), equal=equal)


def rfft(node: Node, inference: Inference) -> Template | None:
    """com.microsoft::Rfft: the last axis, then the others of the signal in place."""
    x, out = _floats(operand_specs(node, inference)[0]), _floats(result_spec(node, inference))
    axes = int(node.attributes.get("signal_ndim", 1))
    if x is None or out is None or not _plain(node) or not 1 <= axes <= len(x.shape):
        return None
    n, bins = x.shape[-1], out.shape[-2]
    form = Form(x.dtype, "real", "complex", paired=True)
    lines = product(x.shape[:-1])
    passes = [Pass(form, "%x", "%y", n, n, bins, lines, 1, (n, 1, 1), (bins, 1, 1))]
    passes += _along("%y", out.shape[:-1], range(len(x.shape) - axes, len(x.shape) - 1), Form(x.dtype, "complex", "complex"))
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, lines=tuple(passes))


def irfft(node: Node, inference: Inference) -> Template | None:
    """com.microsoft::Irfft: the signal's other axes, then the last."""
    x, out = _floats(operand_specs(node, inference)[0]), _floats(result_spec(node, inference))
    if x is None or out is None or not _plain(node) or x.shape[-1] != 2:
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
    return Fourier(node, (node.inputs[0],), (x,), out, takes_epilogue=False, lines=tuple(passes))


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
