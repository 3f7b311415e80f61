"""Transposes that move the innermost axis, by squares in registers or, of a few long rows, by shuffles; the others are copies
of rows, which loops do well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from intarsia.codegen.elementwise.emitter import SUPPORTED_DTYPES
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Shape, product
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, Below, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.movement import interleave_kernel
from intarsia.providers.cpu.kernels.movement import transpose_kernel as template
from intarsia.providers.cpu.kernels.movement.transpose_kernel import Moved

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_LEAST_ELEMENTS = 4096
_TABLE = 2  # axes
_LEAST_SIDE = 12  # of a known matrix: narrower ones are mostly cut squares, and loops with constant bounds are faster


def transpose(node: Node, inference: Inference) -> Template | None:
    """Transpose, or an Einsum that is one, that moves the innermost axis of a tensor large enough, or of unknown size."""
    types = tensor_types(node, inference)
    if len(types) != 1:
        return None
    x, out = types[0], inference.types.get(node.outputs[0])
    if x is None or x.shape is None or x.dtype not in SUPPORTED_DTYPES or not isinstance(out, TensorType) or out.shape is None:
        return None
    perm = _permutation(node, len(x.shape))
    if perm is None:
        return None
    how = template.moved(x.shape, perm)
    elements = product(x.shape)
    if how is None or (isinstance(elements, int) and elements < _LEAST_ELEMENTS):
        return None
    few = None
    if len(x.shape) > _TABLE or isinstance(elements, int):  # a table of open length is short more often than long
        few = interleave_kernel.interleave(x.shape, perm, how, x.dtype.numpy.itemsize)
    for side in (product(x.shape[axis] for axis in axes) for axes in (how.row, how.column)):
        if few is None and isinstance(side, int) and side < _LEAST_SIDE:
            return None
    return Transpose(node, (node.inputs[0],), types, out, takes_epilogue=False, perm=perm, how=how, few=few)


def _permutation(node: Node, rank: int) -> tuple[int, ...] | None:
    """The input's axes in the output's order; None where the output is not a permutation."""
    if node.op_type == "Transpose":
        return tuple(int(p) for p in node.attributes.get("perm") or range(rank)[::-1])
    equation = str(node.attributes.get("equation", "")).replace(" ", "")
    source, arrow, target = equation.partition("->")
    if not arrow or len(source) != rank or len(set(source)) != rank or sorted(source) != sorted(target) or "." in source:
        return None
    return tuple(source.index(label) for label in target)


@dataclass(frozen=True)
class Transpose(Template):
    perm: tuple[int, ...] = field(kw_only=True)
    how: Moved = field(kw_only=True)
    few: interleave_kernel.Interleave | None = field(kw_only=True)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x = self.types[0]
        assert x is not None and x.shape is not None
        itemsize, source = x.dtype.numpy.itemsize, self.reads[0]
        if self.few is not None:
            text = interleave_kernel.kernel_text(self.few, target)
            call: KernelCall = InterleaveCall(source, out, x.shape, self.perm, self.how, self.few)
        else:
            text = template.kernel_text(itemsize, target)
            call = TransposeCall(source, out, x.shape, self.perm, self.how, target, itemsize)
        return [
            Step(
                text, (source,), (out,), call,
                serial=Below(product(x.shape), 2 * _LEAST_ELEMENTS), label=f"transpose {list(self.perm)}",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class _Moving(KernelCall):
    """What both kernels are called with. `shape`: of x."""

    x: str
    y: str
    shape: Shape
    perm: tuple[int, ...]
    how: Moved


@dataclass(frozen=True)
class TransposeCall(_Moving):
    target: Target
    itemsize: int

    @property
    def form(self) -> object:
        return self.shape, self.perm, self.how, self.target, self.itemsize

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        sizes = [size(d) for d in self.shape]
        return template.transpose_args(self.target, self.itemsize, sizes, self.perm, self.how, x=Ref(self.x), y=Ref(self.y))


@dataclass(frozen=True)
class InterleaveCall(_Moving):
    spec: interleave_kernel.Interleave

    @property
    def form(self) -> object:
        return self.shape, self.perm, self.how, self.spec

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        sizes = [size(d) for d in self.shape]
        return interleave_kernel.interleave_args(self.spec, sizes, self.perm, self.how, x=Ref(self.x), y=Ref(self.y))
