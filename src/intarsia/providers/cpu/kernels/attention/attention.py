"""Attention as calls of the fused kernels, and the schedules that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Shape
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.attention import append_kv_kernel, attention_arguments
from intarsia.providers.cpu.kernels.attention.attention_arguments import AttentionSpec, Scoring
from intarsia.providers.cpu.kernels.attention.attention_calls import AppendCall, AttentionOperands, View
from intarsia.providers.cpu.kernels.attention.few_queries import FewQueries
from intarsia.providers.cpu.kernels.attention.many_queries import DynamicQueries, ManyQueries
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace

SCHEDULES: tuple[Schedule[Attention], ...] = (
    ManyQueries("many-queries-bfloat16", pairs=True),
    ManyQueries("many-queries"),
    FewQueries("few-queries"),
    DynamicQueries("dynamic-queries-bfloat16", pairs=True),
    DynamicQueries("dynamic-queries"),
)  # in the order of preference; the last takes what is known too little of for the others


@dataclass(frozen=True)
class Attention(Template):
    """One node. `reads`: buffers of Q, K, V, the mask, the numbers of keys, past keys and values, as far as they are there.

    Attributes:
        views: Q, K and V as the node has them.
        appended: where past keys, and values, with the node's own behind them go ("": there are none, nor are they outputs).
        before: how many past keys there are.
    """

    views: tuple[View, ...] = ()
    appended: tuple[str, str] = ("", "")
    before: Dim = 0
    mask: Shape | None = None
    spec: AttentionSpec = field(default_factory=AttentionSpec)
    scoring: Scoring = field(default_factory=Scoring)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs[:3] if n)

    @property
    def queries(self) -> Dim:
        """How many rows Q has."""
        return self.views[0].shape[2]

    @property
    def label(self) -> str:
        return f"attention {self.views[0].shape[1]}x{self.queries}x{self.views[1].shape[2]}"

    @cached_property
    def operands(self) -> AttentionOperands:
        """Buffers and shapes that the kernel calls read."""
        title = f"node {self.node.name!r} ({self.node.qualified_op})"
        itemsize = 4 if self.spec.mask == "float" else 1
        return AttentionOperands(
            title, self.reads, self.views, self.appended, self.before, self.mask, itemsize, self.output.shape
        )

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        q, k, v = (view.shape for view in self.views)
        pairs = [(q[0], k[0]), *zip(k[:3], v[:3], strict=True), (q[3], k[3])]
        for view, past in zip((k, v), self.types[5:7], strict=True):
            if past is not None:
                pairs += zip(past.shape, (view[0], view[1], self.before, view[3]), strict=True)
        return pairs

    def fits(self) -> bool:
        """Whether sizes that are numbers are equal where they must be, and groups of heads even."""
        if any(a != b and isinstance(a, int) and isinstance(b, int) for a, b in self.equal_sizes()):
            return False
        heads, kv_heads = self.views[0].shape[1], self.views[1].shape[1]
        if isinstance(heads, int) and isinstance(kv_heads, int):
            return kv_heads > 0 and heads % kv_heads == 0
        return heads == kv_heads

    def schedule_table(self) -> tuple[Schedule[Any], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)

    def append_steps(self, request: KernelRequest) -> list[Step]:
        """Past keys, and values, and those of this call, one behind the other for each head."""
        return [self._append_step(request, which) for which in (1, 2) if self.appended[which - 1]]

    def _append_step(self, request: KernelRequest, which: int) -> Step:
        batch, heads, rows, width = self.views[which].shape
        past, out = self.reads[4 + which], self.appended[which - 1]
        if out not in self.outputs:
            request.workspace.temporary(out, DType.FLOAT, (batch, heads, self.before + rows, width))
        reads = tuple(dict.fromkeys(n for n in (past, self.reads[which]) if n))
        made = AppendCall(self.operands, which, streams=out in self.outputs)
        label = f"append {('keys', 'values')[which - 1]}"
        return Step(append_kv_kernel.kernel_text(request.target), reads, (out,), made, label=label)

    def taps(self, request: KernelRequest) -> str:
        """The buffer of the displacements that both kernels read."""
        made = attention_arguments.taps(request.target)
        return request.workspace.add("", Packing(Layout.TAPS, view=tuple(made)), lambda: np.array(made, np.int64))
