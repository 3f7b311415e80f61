"""Schedules that are chosen by timing them, where `session.schedule_budget_ms` gives time for that.

Templates name their candidates (`Template.candidates`): of a table of schedules those that apply, and that are not expected to
be far slower than the fastest. For the heaviest shapes of a model each candidate computes the node
alone, on random numbers, with the session's threads; the fastest is cached, by machine, threads and shape, so that
this happens once. What has not been timed when the budget is used up keeps the schedule that the cost model chose. A candidate
that cannot be made is a fault of Intarsia; it is logged, and the others are timed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia import progress
from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import cpu_key, sources
from intarsia.graph.dims import numbers_of
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.cpu.kernels.common.schedule import Candidates, LoweringEnv
from intarsia.providers.cpu.kernels.common.template import Template

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target
    from intarsia.ep.program import Program
    from intarsia.ep.provider import CompileContext
    from intarsia.ops.framework.registry import Registry
    from intarsia.providers.cpu.executable import Executable
    from intarsia.providers.cpu.lowering.fuse import Grouping
    from intarsia.providers.cpu.lowering.lower import Lowered

    ProgramMaker = Callable[[Executable, dict[str, int], CompileContext, Target, Lowered], Program]

KEY = "session.schedule_budget_ms"
_SHAPES = 24  # at most so many are looked at, the heaviest first
_GAIN = 0.95  # another schedule than the default takes at most so much of its time
_RUNS = 5
logger = get_logger("intarsia.schedules")


def budget_ms(context: CompileContext) -> int:
    """Milliseconds for timing; none where results must not depend on it."""
    return 0 if context.deterministic else int(context.config.get(KEY, "0"))


@dataclass(frozen=True)
class Chooser:
    """Times candidates; called with what a graph was grouped into, it returns the schedules chosen, by key.

    `make`: of kernels that are loaded, a program that runs.
    """

    registry: Registry
    context: CompileContext
    target: Target
    make: ProgramMaker

    def __call__(self, grouping: Grouping, graph: Graph, env: LoweringEnv) -> Mapping[str, str]:
        weight: dict[str, float] = {}
        found: dict[str, tuple[Template, Candidates]] = {}
        for g in grouping.groups:
            if g.template is None or g.template.alone != g.template.node.op_type or g.template.reads[1] not in graph.constants:
                continue  # a product inside something else cannot be run alone as that node
            candidates = g.template.candidates(env)
            if candidates is not None:
                weight[candidates.key] = weight.get(candidates.key, 0) + candidates.seconds
                found[candidates.key] = g.template, candidates
        heaviest = sorted(found, key=lambda k: -weight[k])[:_SHAPES]
        return self._chosen([found[k] for k in heaviest])

    def _chosen(self, wanted: Sequence[tuple[Template, Candidates]]) -> Mapping[str, str]:
        chosen: dict[str, str] = {}
        end = time.monotonic() + budget_ms(self.context) / 1000
        for template, candidates in wanted:
            place = self._place(candidates)
            known = get_cache().get(place)
            if known is not None:
                chosen[candidates.key] = json.loads(known)["chosen"]
                continue
            times = self._times(template, candidates, end)
            if times is None:
                logger.info("%s keeps its default schedule: the time given by %s is used up", candidates.key, KEY)
                continue
            if candidates.names[0] not in times:
                logger.info("%s keeps its default schedule, which others cannot be compared with", candidates.key)
                continue
            chosen[candidates.key] = fastest(times)
            get_cache().put(place, json.dumps({"chosen": chosen[candidates.key], "ns": times}).encode())
            logger.info("%s: %s, of %s ns", candidates.key, chosen[candidates.key], times)
        return MappingProxyType(chosen)

    def _place(self, candidates: Candidates) -> str:
        from intarsia.runtime.executor import thread_count

        threads = thread_count(self.context.intra_op_num_threads)
        return f"schedule-{content_key(cpu_key(), sources(), str(threads), candidates.key, *candidates.names)}"

    def _times(self, template: Template, candidates: Candidates, end: float) -> dict[str, int] | None:
        """Nanoseconds of each candidate at best, but of those that cannot be made; None where time is up."""
        runs: dict[str, Callable[[], Any]] = {}
        for name in candidates.names:
            if time.monotonic() >= end:
                return None
            try:
                runs[name] = self._alone(template, {candidates.key: name})
            except Exception as error:
                if progress.stopped_by(error):
                    raise
                logger.warning("%s: %s is not timed, as it cannot be made: %r", candidates.key, name, error)
        times = dict.fromkeys(runs, 1 << 62)
        for _ in range(_RUNS):  # in turn: the machine's other work meets all of them
            for name, run in runs.items():
                start = time.perf_counter_ns()
                run()
                times[name] = min(times[name], time.perf_counter_ns() - start)
        return times if time.monotonic() < end + 1 else None

    def _alone(self, template: Template, choices: Mapping[str, str]) -> Callable[[], Any]:
        """The node as a program of its own, run once."""
        from intarsia.codegen.llvm.jit import get_engine
        from intarsia.providers.cpu.lowering.lower import lower_graph

        graph, x = _one_node(template)
        context = replace(self.context, config={**self.context.config, KEY: "0"}, on_step=None)
        lowered = lower_graph(graph, self.registry, self.target, context.config, choices=choices)
        addresses = get_engine(self.target).load(list(lowered.executable.kernels().values()))
        program = self.make(lowered.executable, addresses, context, self.target, lowered)
        program.run([x])
        return lambda: program.run([x])


def fastest(times: Mapping[str, int]) -> str:
    """The candidate to take: the default (the first) unless another is clearly faster."""
    default = next(iter(times))
    best = min(times, key=lambda name: times[name])
    return best if times[best] < _GAIN * times[default] else default


def _one_node(template: Template) -> tuple[Graph, np.ndarray]:
    """The template's node by itself, with random weights, and its input."""
    x, w = template.operand(0), template.operand(1)
    rng = np.random.default_rng(0)
    shape, weights = numbers_of(x.shape), numbers_of(w.shape)
    scale = math.sqrt(max(1, math.prod(weights) // max(weights)))
    constant = Constant.of("w", (rng.standard_normal(weights, np.float32) / scale).astype(w.dtype.numpy))
    node: Node = template.node.copy(inputs=["x", "w"], outputs=["y"], traced=None)
    graph = Graph(
        "schedules", [Value("x", TensorType(x.dtype, shape))], [Value("y", template.output)], [node], {"w": constant},
        opset_imports={"": 21},
    )  # fmt: skip
    return graph, rng.standard_normal(shape, np.float32).astype(x.dtype.numpy)
