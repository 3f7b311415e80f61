"""Base of the schedules of products by n-bits blocks, and steps for few rows beside those for many."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_arguments import OfRowsCall

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul.matmul import MatMul
    from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import BlockMatMul

    BlockSchedule = Schedule[BlockMatMul]
else:
    BlockSchedule = Schedule


@dataclass(frozen=True)
class ManyRows(BlockSchedule):
    """A way to multiply many rows. Where only a run knows how many there are, few of them are multiplied by `few`."""

    few: Schedule[MatMul]

    def multiplies_few(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        """Whether `few` can be what multiplies few rows."""
        found = self.few.applies(node, env)
        return found or Support.no(f"{self.few.name} cannot take few rows: {found.reason}")

    def steps_of_few(self, node: BlockMatMul, request: KernelRequest, least: int) -> list[Step]:
        """Steps that do nothing for `least` rows and more; none where there surely are so many."""
        rows = node.rows_and_batches.rows
        if isinstance(rows, int):
            return []
        steps = self.few.steps(node, request)
        return [replace(step, call=OfRowsCall(step.call, rows, least, many=False)) for step in steps]
