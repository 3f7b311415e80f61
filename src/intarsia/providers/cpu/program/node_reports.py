"""What became of each node, as `explain` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.provider import NodeReport
from intarsia.plan.step import Step
from intarsia.providers.cpu.executable import Executable
from intarsia.providers.cpu.program.calls.host_kernels import NATIVE, native_kernel
from intarsia.providers.cpu.value_names import original_name

if TYPE_CHECKING:
    from intarsia.providers.cpu.lowering.lower import Lowered


def node_reports(lowered: Lowered, executable: Executable) -> list[NodeReport]:
    reports: dict[str, NodeReport] = {}
    steps = [s for segment in executable.segments() for s in segment.steps if isinstance(s, Step)]
    reduced = {name: s.arithmetic for s in steps if s.arithmetic for name in s.nodes}
    for g in lowered.grouping.groups:
        label = "+".join(n.op_type for n in g.nodes)
        in_less = next((reduced[n.outputs[0]] for n in g.nodes if n.outputs[0] in reduced), "")
        label += f" ({in_less})" if in_less else ""
        for node in g.nodes:
            first = original_name(next(n for n in node.outputs if n))
            called = f"{node.op_type}{NATIVE}" if native_kernel(node) else node.op_type
            report = NodeReport(first, "host", called, g.host) if g.host else NodeReport(first, "compiled", label)
            reports.setdefault(first, report)  # a transpose that layout put behind a node has the same original name
    for first, reason in lowered.grouping.folded.items():
        first = original_name(first)
        reports.setdefault(first, NodeReport(first, "view" if "memory" in reason else "folded", "", reason))
    return list(reports.values())
