"""The schedules of Fourier transforms: in how many passes long lines go."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, product
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates
from intarsia.providers.cpu.kernels.fourier import fft_kernel
from intarsia.providers.cpu.kernels.fourier.fft_passes import Pass, in_two, is_long_line, long_line_steps, may_halve

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.fourier.fft import Fourier

    _Schedule = Schedule[Fourier]
else:
    _Schedule = Schedule

_USUAL_SIZE = 128  # where sizes are not known
_BYTES_PER_SECOND = 20e9
_SHARE = 0.3  # of a micro-kernel's operations in a second that a transform's stages reach


@dataclass(frozen=True)
class OnePass(_Schedule):
    """Each line in one pass, as many lines as a vector has lanes together."""

    def applies(self, node: Fourier, env: LoweringEnv) -> Support:
        return Support.yes()

    def cost(self, node: Fourier, env: LoweringEnv) -> float:
        return sum(_seconds(made, env, 1, fills=False) for made in node.passes)

    def steps(self, node: Fourier, request: KernelRequest) -> list[Step]:
        return [made.step(request.target) for made in node.named_passes(request)]


@dataclass(frozen=True)
class TwoPasses(_Schedule):
    """A long line is a matrix, whose columns are transformed, then its rows; others go in one pass."""

    def applies(self, node: Fourier, env: LoweringEnv) -> Support:
        return _any(node, env.target, may_halve)

    def cost(self, node: Fourier, env: LoweringEnv) -> float:
        return sum(_two_seconds(made, env) for made in node.passes)

    def steps(self, node: Fourier, request: KernelRequest) -> list[Step]:
        target, workspace = request.target, request.workspace
        return [p.step(target) for made in node.named_passes(request) for p in in_two(made, workspace, target)]


@dataclass(frozen=True)
class LongLines(_Schedule):
    """Real lines as half as many complex numbers, those whose length has a large prime factor as two transforms of a smooth
    length; others in one pass or two."""

    def applies(self, node: Fourier, env: LoweringEnv) -> Support:
        return _any(node, env.target, is_long_line)

    def cost(self, node: Fourier, env: LoweringEnv) -> float:
        return sum(self._of(made, env) for made in node.passes)

    @staticmethod
    def _of(made: Pass, env: LoweringEnv) -> float:
        if not is_long_line(made, env.target):
            return _two_seconds(made, env)
        halved = made.form.source != "complex"
        return _seconds(made, env, 3, fills=True) / (2 if halved else 1)

    def steps(self, node: Fourier, request: KernelRequest) -> list[Step]:
        target, workspace, found = request.target, request.workspace, list[Step]()
        for made in node.named_passes(request):
            if is_long_line(made, target):
                found += long_line_steps(made, workspace, target)
            else:
                found += [p.step(target) for p in in_two(made, workspace, target)]
        return found


def _any(node: Fourier, target: Target, takes: Callable[[Pass, Target], Support]) -> Support:
    """Yes if one of the node's passes is taken, else the first one's no."""
    found = [takes(made, target) for made in node.passes]
    return next((each for each in found if each), found[0])


def _usual(size: Dim) -> int:
    return size if isinstance(size, int) else max(1, size.evaluate(dict.fromkeys(size.symbols, _USUAL_SIZE)))


def _two_seconds(made: Pass, env: LoweringEnv) -> float:
    return _seconds(made, env, 2, fills=True) if may_halve(made, env.target) else _seconds(made, env, 1, fills=False)


def _seconds(made: Pass, env: LoweringEnv, times: int, *, fills: bool) -> float:
    """Estimated, on one core.

    Args:
        times: how often elements are read and written.
        fills: whether vectors are full however few lines there are.
    """
    n, lines = max(1, _usual(made.n)), max(1, _usual(product((made.outer, made.inner))))
    lanes = fft_kernel.lanes_of(made.form.dtype, env.target)
    together = lines if fills else -(-lines // lanes) * lanes
    flops = rates(env.target.l2_nbytes).flops * _SHARE * env.target.vector_bytes / 64 * 32 / made.form.dtype.bits
    return 5 * n * math.log2(n + 1) * together / flops + times * lines * n * made.form.dtype.bits / 2 / _BYTES_PER_SECOND
