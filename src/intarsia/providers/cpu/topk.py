"""TopK by a kernel of its own: a sorted list or histograms per row, rows shared out among threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intarsia.codegen import topk as template
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import product
from intarsia.graph.model import Node, TensorType
from intarsia.ops.infer import Inference
from intarsia.ops.operands import normal_axis
from intarsia.plan.step import SCRATCH, Argument, Ref, Sizes, Step
from intarsia.providers.cpu.template import FusedOperand, Template, Workspace, tensor_types

_SERIAL_ELEMENTS = 4096


def top_k(node: Node, inference: Inference) -> Template | None:
    """TopK of float, double, int32 or int64, along any axis; k may be known at run time only."""
    types = tensor_types(node, inference)
    x, first = types[0], next((n for n in node.outputs if n), "")
    out = inference.types.get(first)
    if x is None or not x.shape or x.dtype not in template.DTYPES or not isinstance(out, TensorType) or not out.shape:
        return None
    axis = normal_axis(int(node.attributes.get("axis", -1)), len(x.shape))
    largest = bool(node.attributes.get("largest", 1))
    return TopK(node, (node.inputs[0],), types[:1], out, takes_epilogue=False, axis=axis, largest=largest)


@dataclass(frozen=True)
class TopK(Template):
    axis: int = field(kw_only=True)
    largest: bool = field(kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, y, axis = self.types[0], self.output.shape, self.axis
        assert x is not None and x.shape is not None and y is not None
        shape, dtype, source = x.shape, x.dtype, self.reads[0]
        extent, count = shape[axis], y[axis]
        values, indices = (*self.node.outputs, "")[:2]

        def arguments(size: Sizes, threads: int) -> Sequence[Argument]:
            n, k = size(extent), size(count)
            if not 0 <= k <= n:
                where = f"node {self.node.name!r} ({self.node.qualified_op})"
                raise InvalidArgument(f"{where}: k is {k}; expected 0 to the {n} elements of axis {axis}")
            return template.topk_args(
                dtype, outer=size(product(shape[:axis])), n=n, inner=size(product(shape[axis + 1 :])), k=k,
                x=Ref(source), values=Ref(values) if values else 0, indices=Ref(indices) if indices else 0,  # type: ignore[arg-type]
                scratch=Ref(SCRATCH),  # type: ignore[arg-type]
            )  # fmt: skip

        def scratch(size: Sizes, threads: int) -> int:
            return threads * template.scratch_nbytes(dtype, size(extent), max(size(count), 0))

        return [
            Step(
                template.kernel_text(dtype, self.largest, target), (source,), self.outputs, arguments, scratch_nbytes=scratch,
                serial=lambda size: size(product(shape)) < _SERIAL_ELEMENTS, label=f"top k, axis {axis}",
            )
        ]  # fmt: skip
