"""Base of the schedules of matrix products, and an estimate of multiply-adds and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.graph.dims import Dim
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul.matmul import MatMul

    MatMulSchedule = Schedule[MatMul]
else:
    MatMulSchedule = Schedule

_USUAL_ROWS = 128  # where sizes are not known
_BYTES_PER_SECOND = 20e9  # of A and C, which mostly come from memory


def _usual(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, size.evaluate(dict.fromkeys(size.symbols, _USUAL_ROWS)))


def estimated(
    node: MatMul, env: LoweringEnv, *, rate: float = 1.0, moved: float = 1.0, copied: float = 0.0, packed: float = 0.0
) -> float:
    """Seconds of a product on one core, with usual sizes for those that are not known.

    Args:
        rate: multiply-adds of as many bits in the time of those of float32.
        moved: the part of the bytes of A and C that are read and written.
        copied: how many times A is copied first; `packed`: how many times all matrices B are.
    """
    found, item = rates(env.target.l2_nbytes), node.dtype.bits / 8
    batches = node.rows_and_batches
    m, n, k = _usual(batches.rows), _usual(node.columns), _usual(node.depth)
    count = _usual(batches.sizes[0]) * _usual(batches.sizes[1])
    lanes = env.target.vector_bytes / 64 * 4 / item
    compute = 2 * count * m * n * k / (found.flops * rate * lanes)
    weights = n * k * node.weight_bits / 8 / found.weight_bytes
    moving = count * item * (moved * (m * k + m * n) + 2 * copied * m * k + 2 * packed * k * n) / _BYTES_PER_SECOND
    return max(compute, weights) + found.overlap * min(compute, weights) + moving
