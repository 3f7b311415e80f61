"""Caches of keys and values that this call's rows go into; written into the memory of the cache before where callers bind both
to the same (`Step.onto`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.target import Target, streamed_nbytes
from intarsia.graph.dims import Dim, product
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, BuffersAndSizes, Shares, Step
from intarsia.providers.cpu.kernels.attention.kv_cache_kernel import cache_rows_text
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_SERIAL_ELEMENTS = 8192


def cache_rows(node: Node, inference: Inference) -> Template | None:
    """GroupedCache: rows [batch, groups, steps, size] into a past [batch, groups, rows, size]."""
    types, out = operand_specs(node, inference)[:3], result_spec(node, inference)
    if out is None or None in types:
        return None
    return CacheRows(node, tuple(node.inputs[:3]), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class CacheRows(Template):
    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        new, past = self.operand(0).shape, self.operand(1).shape
        return [(new[i], past[i]) for i in (0, 1, 3)]

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        new, past = self.operand(0).shape, self.operand(1).shape
        shape, itemsize = self.output.shape, self.output.dtype.numpy.itemsize
        elements = product(shape)
        sizes = (shape[0] * shape[1], shape[1], past[2], new[2], shape[2], shape[3] * itemsize, streamed_nbytes())
        rows, before, lengths = self.reads
        return [
            Step(
                cache_rows_text(target), (before, rows, lengths), (out,),
                BuffersAndSizes((before, rows, lengths, out), sizes), serial=Below(elements, _SERIAL_ELEMENTS),
                label="rows of a cache", work=Shares(elements, _SERIAL_ELEMENTS // 2), onto=before,
            )
        ]  # fmt: skip
