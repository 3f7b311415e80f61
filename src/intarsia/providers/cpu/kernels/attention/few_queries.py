"""The schedule of attention of few queries, for which keys and values are read where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Code, Step
from intarsia.providers.cpu.kernels.attention import few_queries_kernel
from intarsia.providers.cpu.kernels.attention.attention_arguments import ANY_QUERIES, least_in_lanes
from intarsia.providers.cpu.kernels.attention.attention_calls import FewQueriesCall
from intarsia.providers.cpu.kernels.attention.attention_schedule import AttentionSchedule, estimated
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.attention.attention import Attention

_YES = Support.yes()
_RATE = 0.75  # multiply-adds in the time of one of a tile that is full: scores are summed up across lanes


@dataclass(frozen=True)
class FewQueries(AttentionSchedule):
    """A row of scores for each query; one query's heads that share keys are the rows of one product."""

    def applies(self, node: Attention, env: LoweringEnv) -> Support:
        return _YES

    def pays(self, node: Attention, env: LoweringEnv) -> Support:
        queries, least = node.queries, least_in_lanes(env.target)
        if not isinstance(queries, int):
            return Support.no("how many queries there are is known only in a run")
        return _YES if queries < least else Support.no(f"{queries} queries are worth packing keys and values for")

    def cost(self, node: Attention, env: LoweringEnv) -> float:
        return estimated(node, env, queries=1, rate=_RATE)

    def attend(self, node: Attention, request: KernelRequest) -> list[Step]:
        return [few_queries_step(node, request)]


def few_queries_step(node: Attention, request: KernelRequest, below: int = ANY_QUERIES) -> Step:
    """Does nothing where there are `below` queries or more."""
    target, spec = request.target, node.spec
    calls = micro, pack = micro_text(DType.FLOAT, target), few_queries_kernel.pack_text(target)
    taps = node.taps(request)
    call = FewQueriesCall(
        node.operands, spec, node.scoring, target, 0, below, taps, Code(micro.symbol), Code(pack.symbol), request.out
    )
    return Step(
        few_queries_kernel.kernel_text(spec, target), (*node.operands.sources(), *node.operands.others, taps), (request.out,),
        call, serial=call.serial, work=call.work, label=node.label, calls=calls,
    )  # fmt: skip
