"""Transposes that move the innermost axis, and the schedules that compute them: by squares in registers or, of a few long rows,
by shuffles. The others are copies of rows, which loops do well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from intarsia.codegen.elementwise.element_types import SUPPORTED_DTYPES
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, Shape, product
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument, Below, KernelCall, Ref, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.movement import interleave_kernel
from intarsia.providers.cpu.kernels.movement import transpose_kernel as template
from intarsia.providers.cpu.kernels.movement.transpose_kernel import Moved

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_LEAST_ELEMENTS = 4096
_TABLE = 2  # axes
_USUAL_SIZE = 128  # where sizes are not known
_BYTES_PER_SECOND = 20e9
_LEAST_SIDE = 12  # of a known matrix: narrower ones are mostly cut squares, and loops with constant bounds are faster


def transpose(node: Node, inference: Inference) -> Template | None:
    """Transpose, or an Einsum that is one, that moves the innermost axis of a tensor large enough, or of unknown size."""
    types = operand_specs(node, inference)
    if len(types) != 1:
        return None
    x, out = types[0], result_spec(node, inference)
    if x is None or x.dtype not in SUPPORTED_DTYPES or out is None:
        return None
    perm = _permutation(node, len(x.shape))
    if perm is None:
        return None
    how = template.moved(x.shape, perm)
    elements = product(x.shape)
    if how is None or (isinstance(elements, int) and elements < _LEAST_ELEMENTS):
        return None
    made = Transpose(node, (node.inputs[0],), types, out, takes_epilogue=False, perm=perm, how=how)
    narrow = any(isinstance(side, int) and side < _LEAST_SIDE for side in made.sides)
    return None if narrow and (made.rows is None or made.is_dynamic_table) else made


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
    """`how`: the transpose by its merged axes."""

    perm: tuple[int, ...] = field(kw_only=True)
    how: Moved = field(kw_only=True)

    @property
    def shape(self) -> Shape:
        """Of the input."""
        return self.operand(0).shape

    @property
    def itemsize(self) -> int:
        return self.output.dtype.numpy.itemsize

    @property
    def sides(self) -> tuple[Dim, Dim]:
        """Rows and columns of the matrices that are transposed."""
        row, column = (product(self.shape[axis] for axis in axes) for axes in (self.how.row, self.how.column))
        return row, column

    @property
    def rows(self) -> interleave_kernel.Interleave | None:
        """The transpose as one of a few long rows; None where it is none."""
        return interleave_kernel.interleave(self.shape, self.perm, self.how, self.itemsize)

    @property
    def is_dynamic_table(self) -> bool:
        """Whether it has two axes of which one is known only in a run: that is short more often than long."""
        return len(self.shape) <= _TABLE and not isinstance(product(self.shape), int)

    def step(self, text: KernelText, call: _Moving) -> Step:
        serial = Below(product(self.shape), 2 * _LEAST_ELEMENTS)
        return Step(text, self.reads[:1], (call.y,), call, serial=serial, label=f"transpose {list(self.perm)}")

    def schedule_table(self) -> tuple[Schedule[Transpose], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)


@dataclass(frozen=True)
class InterleavedRows(Schedule[Transpose]):
    """A few long rows on one side: as many vectors are mixed by shuffles."""

    def applies(self, node: Transpose, env: LoweringEnv) -> Support:
        if node.rows is None:
            few = interleave_kernel.FEW
            return Support.no(f"neither side of its matrices is {few[0]} to {few[-1]} long rows beside the other")
        return Support.yes()

    def cost(self, node: Transpose, env: LoweringEnv) -> float:
        return _moved_seconds(node, 1.0)

    def steps(self, node: Transpose, request: KernelRequest) -> list[Step]:
        spec = node.rows
        assert spec is not None, self.name
        call = InterleaveCall(node.reads[0], request.out, node.shape, node.perm, node.how, spec)
        return [node.step(interleave_kernel.kernel_text(spec, request.target), call)]


@dataclass(frozen=True)
class Squares(Schedule[Transpose]):
    """Squares of vectors are transposed in registers."""

    def applies(self, node: Transpose, env: LoweringEnv) -> Support:
        return Support.yes()

    def cost(self, node: Transpose, env: LoweringEnv) -> float:
        square, wasted = template.square_of(node.itemsize, env.target), 1.0
        for side in map(_usual, node.sides):
            wasted *= -(-side // square) * square / max(side, 1)
        return _moved_seconds(node, wasted)

    def steps(self, node: Transpose, request: KernelRequest) -> list[Step]:
        target, itemsize = request.target, node.itemsize
        call = TransposeCall(node.reads[0], request.out, node.shape, node.perm, node.how, target, itemsize)
        return [node.step(template.kernel_text(itemsize, target), call)]


SCHEDULES: tuple[Schedule[Transpose], ...] = (
    InterleavedRows("interleaved-rows"),
    Squares("squares"),
)  # in the order of preference; the last takes every transpose that has a kernel


def _usual(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, size.evaluate(dict.fromkeys(size.symbols, _USUAL_SIZE)))


def _moved_seconds(node: Transpose, times: float) -> float:
    """Of reading and writing all elements; `times`: how much work that is, in that of copying them."""
    return 2 * _usual(product(node.shape)) * node.itemsize * times / _BYTES_PER_SECOND


@dataclass(frozen=True)
class _Moving(KernelCall):
    """Base of both kernels' calls. `shape`: of x."""

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
