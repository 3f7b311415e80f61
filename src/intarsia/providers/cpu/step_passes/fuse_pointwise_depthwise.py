"""Steps that run together, stripe by stripe: a pointwise convolution and the depthwise one that alone reads its result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import is_static
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Code, Jump, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.conv import fused_pointwise_depthwise_kernel, window_products
from intarsia.providers.cpu.kernels.conv.conv_arguments import DepthwiseCall, ProductCall
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_arguments
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec, window_operand
from intarsia.providers.cpu.kernels.conv.window_geometry import WHOLE

_LEAST_NBYTES = 1 << 20  # of the map between: smaller ones stay in the second-level cache anyway
_STRIPE_NBYTES = 3 << 18


def depth_first(steps: Sequence[Step | Jump], read_elsewhere: Collection[str], target: Target) -> list[Step | Jump]:
    """The steps with pairs fused; values in `read_elsewhere` are read elsewhere, too."""
    if any(isinstance(s, Jump) for s in steps):
        return list(steps)
    uses = Counter(name for step in steps for name in step.reads)
    made: list[Step | Jump] = []
    for step in steps:
        before = made[-1] if made else None
        if isinstance(before, Step) and isinstance(step, Step) and _fit(before, step, uses, read_elsewhere):
            made[-1] = _joined(before, step, target)
        else:
            made.append(step)
    return made


def _fit(before: Step, step: Step, uses: Counter[str], read_elsewhere: Collection[str]) -> bool:
    product, window = before.call, step.call
    if not isinstance(product, ProductCall) or not isinstance(window, DepthwiseCall):
        return False
    if window.x != product.y or uses[product.y] != 1 or product.y in read_elsewhere:
        return False
    if not product.x_place == product.y_place == window.x_place == window.y_place == WHOLE:
        return False
    x, y = product.geometry.x, product.geometry.y
    if (
        len(x) != 4
        or not is_static((*x[1:], *y[1:], *window.geometry.y[1:]))
        or "full" in {o.kind for o in (*product.operands, *window.operands)}
    ):
        return False
    shape = product.geometry.at(lambda d: d if type(d) is int else 1)  # one image of a batch that is not known
    same = product.spec.epilogue is None or product.spec.epilogue.dtype is DType.FLOAT
    nbytes = shape.batch * shape.spatial[0] * shape.spatial[1] * shape.filters * 4
    return shape.is_pointwise and shape.group == 1 and same and product.spec.dtype is DType.FLOAT and nbytes >= _LEAST_NBYTES


def _joined(before: Step, step: Step, target: Target) -> Step:
    product, window = before.call, step.call
    assert isinstance(product, ProductCall) and isinstance(window, DepthwiseCall)
    call = PairCall(product, window, before.kernel.symbol, step.kernel.symbol, target)
    reads = tuple(dict.fromkeys((*before.reads, *(n for n in step.reads if n != product.y))))
    return Step(
        fused_pointwise_depthwise_kernel.kernel_text(target), reads, step.writes, call,
        nodes=(*before.nodes, *step.nodes), label=f"{before.label}, {step.label}", where=before.where,
        calls=(before.kernel, *before.calls, step.kernel, *step.calls),
    )  # fmt: skip


@dataclass(frozen=True)
class PairCall(ScratchCall):
    """The arguments of one joined step."""

    product: ProductCall
    window: DepthwiseCall
    product_symbol: str
    window_symbol: str
    target: Target

    def _cut(
        self, size: Sizes, threads: int
    ) -> tuple[window_products.ConvShape, list[fused_pointwise_depthwise_kernel.Stripe], int]:
        """The window's sizes, the stripes of an image, and the bytes of a line of the map between."""
        shape = self.window.geometry.at(size)
        line_nbytes = shape.spatial[1] * shape.channels * itemsize(DType.FLOAT)
        seen = (shape.kernel[0] - 1) * shape.dilations[0] + 1, shape.strides[0], shape.pads[0]
        most = max(1, _STRIPE_NBYTES // line_nbytes)
        return shape, fused_pointwise_depthwise_kernel.cut(shape.output[0], shape.spatial[0], seen, most, threads), line_nbytes

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        _, found, line_nbytes = self._cut(size, threads)
        return threads * fused_pointwise_depthwise_kernel.scratch_nbytes(self._lines_nbytes(found, line_nbytes))

    @staticmethod
    def _lines_nbytes(found: Sequence[fused_pointwise_depthwise_kernel.Stripe], line_nbytes: int) -> int:
        return -(-max(s.inner[1] - s.inner[0] for s in found) * line_nbytes // 64) * 64 + 64

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        shape, found, line_nbytes = self._cut(size, threads)
        given = self.product.geometry.at(size)
        nbytes = {
            "lines": self._lines_nbytes(found, line_nbytes), "line": line_nbytes,
            "x": math.prod(given.spatial) * given.channels * itemsize(DType.FLOAT),
            "y": math.prod(shape.output) * shape.filters * self._out_size,
        }  # fmt: skip
        blocks: list[Any] = []
        for stripe in found:
            low, high = stripe.inner
            lacking = self._product(size, shape, low, low + stripe.retained)
            adding = self._product(size, shape, low + stripe.retained, high)
            blocks.append((stripe, lacking, adding, self._window(shape, stripe)))
        return fused_pointwise_depthwise_kernel.stripe_args(
            Code(self.product_symbol), Code(self.window_symbol), Ref(SCRATCH), nbytes, shape.batch, blocks
        )  # fmt: skip

    @property
    def _out_size(self) -> int:
        spec: WindowSpec = self.window.spec
        return itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)

    def _product(self, size: Sizes, shape: window_products.ConvShape, first: int, last: int) -> Sequence[Argument]:
        """The product for some lines of the first image; its result's address is set when it runs."""
        lines = replace(self.product.geometry.at(size), batch=1, spatial=(last - first, shape.spatial[1]))
        skipped = first * shape.spatial[1] * lines.channels * itemsize(DType.FLOAT)
        return self.product.placed(lines, Ref(self.product.x, skipped), 0)

    def _window(self, shape: window_products.ConvShape, stripe: fused_pointwise_depthwise_kernel.Stripe) -> Sequence[Argument]:
        (first, last), (low, high) = stripe.out, stripe.inner
        spec: WindowSpec = self.window.spec
        above = low - (first * shape.strides[0] - shape.pads[0])  # lines of the border that the stripe begins with
        reach = (last - first - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0] + 1
        pads = (above, shape.pads[1], reach - above - (high - low), shape.pads[3])
        part = replace(shape, batch=1, spatial=(high - low, shape.spatial[1]), pads=pads)
        skipped = first * shape.output[1] * shape.filters * self._out_size
        given = [window_operand(o.kind, o.dtype, Ref(o.name), shape.filters, part.output) for o in self.window.operands]
        data = window_products.WindowOperands(0, Ref(self.window.y, skipped), Ref(self.window.weights), given)
        return depthwise_arguments.depthwise_args(spec, self.target, part, data)
