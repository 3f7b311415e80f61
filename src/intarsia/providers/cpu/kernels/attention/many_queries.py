"""The schedules of attention of many queries, for which keys and values are packed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Code, Step
from intarsia.providers.cpu.kernels.attention import many_queries_kernel, pack_keys_values
from intarsia.providers.cpu.kernels.attention.attention_arguments import (
    ANY_QUERIES,
    lane_tile,
    least_in_lanes,
    packed_group,
)
from intarsia.providers.cpu.kernels.attention.attention_calls import ManyQueriesCall, PackKeysAndValuesCall
from intarsia.providers.cpu.kernels.attention.attention_schedule import AttentionSchedule, estimated
from intarsia.providers.cpu.kernels.attention.few_queries import few_queries_step
from intarsia.providers.cpu.kernels.attention.many_queries_microkernel import lane_micro_text
from intarsia.providers.cpu.kernels.common.lowering_options import ARITHMETIC
from intarsia.providers.cpu.kernels.common.precision import described_unit, pair_unit
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import tiled_pairs_text

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.attention.attention import Attention

_YES = Support.yes()
_PAIRS_RATE = 2.0  # multiply-adds of pairs in the time of one of float32


def _in_pairs(node: Attention, env: LoweringEnv) -> Support:
    """Whether bfloat16 is requested, vectors multiply pairs of it, and heads are wide enough."""
    width, lanes = node.views[0].shape[3], lane_tile(env.target).lanes
    if not isinstance(width, int) or width % 2 or width < lanes:
        return Support.no(f"heads of {width} numbers are no pairs, or fewer than a vector of {lanes}")
    options = env.options_of(node)
    if options.arithmetic != "bfloat16":
        return Support.no(f"{ARITHMETIC} is not bfloat16, nor are the model's tensors")
    if pair_unit(options, env.target) != VECTORS:
        return Support.no("vectors of this CPU do not multiply pairs of bfloat16, or no faster than float32")
    return _YES


def _are_many(node: Attention, env: LoweringEnv) -> Support:
    """Whether there surely are so many queries that packing keys and values for them pays."""
    queries, least = node.queries, least_in_lanes(env.target)
    if not isinstance(queries, int):
        return Support.no("how many queries there are is known only in a run")
    return _YES if queries >= least else Support.no(f"{queries} queries, fewer than {least}, are not worth packing keys for")


@dataclass(frozen=True)
class ManyQueries(AttentionSchedule):
    """A query in each lane of a vector; `pairs`: products of pairs of bfloat16, which few queries have no use for."""

    pairs: bool = False

    def applies(self, node: Attention, env: LoweringEnv) -> Support:
        return _are_many(node, env) and _in_pairs(node, env) if self.pairs else _YES

    def pays(self, node: Attention, env: LoweringEnv) -> Support:
        return _are_many(node, env)

    def cost(self, node: Attention, env: LoweringEnv) -> float:
        return _estimated(node, env, self.pairs)

    def attend(self, node: Attention, request: KernelRequest) -> list[Step]:
        return _many_queries_steps(node, request, self.pairs, 0)


@dataclass(frozen=True)
class DynamicQueries(AttentionSchedule):
    """Both kernels, of which each run's number of queries decides; `pairs`: see `ManyQueries`."""

    pairs: bool = False

    def applies(self, node: Attention, env: LoweringEnv) -> Support:
        if isinstance(node.queries, int):
            return Support.no(f"there are {node.queries} queries in every run")
        return _in_pairs(node, env) if self.pairs else _YES

    def cost(self, node: Attention, env: LoweringEnv) -> float:
        return _estimated(node, env, self.pairs)

    def attend(self, node: Attention, request: KernelRequest) -> list[Step]:
        least = least_in_lanes(request.target)
        return [*_many_queries_steps(node, request, self.pairs, least), few_queries_step(node, request, least)]


def _estimated(node: Attention, env: LoweringEnv, pairs: bool) -> float:
    lanes = lane_tile(env.target).lanes
    return estimated(node, env, queries=lanes, rate=_PAIRS_RATE if pairs else 1.0, packed=True)


def _many_queries_steps(node: Attention, request: KernelRequest, pairs: bool, least: int) -> list[Step]:
    """The steps that pack and that attend; both do nothing where there are fewer than `least` queries."""
    target, operands = request.target, node.operands
    spec, tile = replace(node.spec, pairs=pairs), lane_tile(target)
    micro = tiled_pairs_text(tile, target) if pairs else lane_micro_text(tile, target)
    taps = node.taps(request)
    (batch, heads, rows, width), vwidth = node.views[1].shape, node.views[2].shape[3]
    rows, group, name = rows + operands.before, packed_group(target), node.node.outputs[0]
    keys = request.workspace.temporary(f"{name}%packed keys", DType.FLOAT, (batch, heads, width * (rows + group)))
    values = request.workspace.temporary(f"{name}%packed values", DType.FLOAT, (batch, heads, rows * (vwidth + group)))
    given = operands, spec, node.scoring, target, least, ANY_QUERIES, keys, values
    pack, call = PackKeysAndValuesCall(*given), ManyQueriesCall(*given, taps, Code(micro.symbol), request.out)
    lengths = (operands.reads[4],) if spec.lengths is not None else ()
    return [
        Step(
            pack_keys_values.pack_text(spec.lengths, target, pairs), (*operands.sources(1), *lengths), (keys, values), pack,
            serial=pack.serial, label=f"pack {node.label}", arithmetic="bfloat16" if pairs else "",
        ),
        Step(
            many_queries_kernel.kernel_text(spec, target),
            (*dict.fromkeys((operands.reads[0], *operands.others)), keys, values, taps), (request.out,), call,
            serial=call.serial, work=call.work, label=node.label, calls=(micro,),
            arithmetic=described_unit(VECTORS, DType.FLOAT) if pairs else "",
        ),
    ]  # fmt: skip
