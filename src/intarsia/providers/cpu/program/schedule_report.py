"""Which schedules there are for each node of a lowered graph, which one was taken, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.schedule import Considered, considered
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
    """The nodes that have several schedules, in the order in which they run; those of bodies of control flow are left out."""
    found = []
    for g in lowered.grouping.groups:
        if g.template is None or g.host:
            continue
        schedules = considered(g.template, lowered.env)
        if schedules:
            node = g.template.node
            types = f"{', '.join(str(t) for t in g.template.types[:2] if t is not None)} -> {g.template.output}"
            found.append(NodeSchedules(node.op_type, original_name(node.outputs[0]), types, schedules))
    return found
