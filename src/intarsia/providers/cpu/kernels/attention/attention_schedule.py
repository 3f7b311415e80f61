"""Base of the schedules of attention, and an estimate of multiply-adds, scores and bytes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.attention.attention_arguments import AttentionShape
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.attention.attention import Attention

    _Schedule = Schedule[Attention]
else:
    _Schedule = Schedule

_USUAL_SIZE = 128  # where sizes are not known
_BYTES_PER_SECOND = 20e9  # of keys and values that are packed
_SCORE_SECONDS = 0.25e-9  # of the softmax of a score


@dataclass(frozen=True)
class AttentionSchedule(_Schedule):
    """A kernel, or two, behind steps that append keys and values to those of earlier calls."""

    def steps(self, node: Attention, request: KernelRequest) -> list[Step]:
        assert request.epilogue is None and not request.operands
        return [*node.append_steps(request), *self.attend(node, request)]

    @abstractmethod
    def attend(self, node: Attention, request: KernelRequest) -> list[Step]:
        """The steps that attend to all keys and values."""


def usual_shape(node: Attention) -> AttentionShape:
    """The sizes, with usual ones for those that are not known."""
    return node.operands.shape(_usual)


def _usual(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, size.evaluate(dict.fromkeys(size.symbols, _USUAL_SIZE)))


def estimated(node: Attention, env: LoweringEnv, *, queries: int, rate: float = 1.0, packed: bool = False) -> float:
    """Seconds on one core.

    Args:
        queries: of how many the kernel computes a multiple.
        rate: multiply-adds in the time of one of float32.
        packed: whether all keys and values are packed first.
    """
    shape, found = usual_shape(node), rates(env.target.l2_nbytes)
    rows = shape.batch * shape.heads * -(-shape.queries // queries) * queries
    stored = shape.batch * shape.kv_heads * shape.keys * (shape.size + shape.vsize) * 4
    products = rows * shape.keys * (shape.size + shape.vsize)
    lanes = env.target.vector_bytes / 64
    compute = 2 * products / (found.flops * rate * lanes) + rows * shape.keys * _SCORE_SECONDS / lanes
    return max(compute, stored / found.weight_bytes) + packed * stored / _BYTES_PER_SECOND
