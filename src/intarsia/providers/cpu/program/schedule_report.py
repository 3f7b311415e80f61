"""Which schedules there are for each node of a lowered graph, which one was taken, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.schedule import Considered, LoweringEnv, considered
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.value_names import original_name

if TYPE_CHECKING:
    from intarsia.providers.cpu.lowering.lower import Lowered


@dataclass(frozen=True)
class NodeSchedules:
    """What was thought of each schedule for a node; `output`: the value that the node computes, as the model calls it."""

    op_type: str
    output: str
    types: str
    schedules: tuple[Considered, ...]

    @property
    def chosen(self) -> str:
        """The name of the schedule that was taken."""
        return next(s.name for s in self.schedules if s.chosen)

    def __str__(self) -> str:
        return "\n".join([f"{self.op_type} -> {self.output}: {self.types}", *(f"  {s}" for s in self.schedules)])


def schedule_report(lowered: Lowered) -> list[NodeSchedules]:
    """The nodes that have several schedules, in the order in which they run; those of bodies of control flow are left out. A
    node that was written anew by its schedule comes before the first of the nodes that it became."""
    written, found = list(lowered.written), list[NodeSchedules]()
    for g in lowered.grouping.groups:
        if g.template is None or g.host:
            continue
        before = [t for t in written if t.node.origin == g.template.node.origin]
        for template in (*before, g.template):
            found += _told(template, lowered.env)
        written = [t for t in written if t not in before]
    return [*found, *(told for template in written for told in _told(template, lowered.env))]


def _told(template: Template, env: LoweringEnv) -> list[NodeSchedules]:
    schedules = considered(template, env)
    if not schedules:
        return []
    types = f"{', '.join(str(t) for t in template.types[:2] if t is not None)} -> {template.output}"
    return [NodeSchedules(template.node.op_type, original_name(template.node.outputs[0]), types, schedules)]
