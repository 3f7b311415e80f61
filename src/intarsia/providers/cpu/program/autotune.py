"""Schedules that are chosen by timing them, where `session.schedule_budget_ms` gives time for that.

Templates name their candidates (`Template.schedules`). For the heaviest shapes of a model each candidate computes the node
alone, on random numbers, with the session's threads; the fastest is kept in the cache, by machine, threads and shape, so that
this happens once. What has not been timed when the budget is used up keeps the schedule that the cost model chose.
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

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import cpu_key, sources
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.schedule import Schedules, Template

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
_OPERATORS = {"MatMul": "MatMul", "Gemm": "Gemm", "Convolution": "Conv"}  # by templates that compute exactly that node
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

    def __call__(self, grouping: Grouping, graph: Graph) -> Mapping[str, str]:
        weight: dict[str, int] = {}
        found: dict[str, tuple[Template, Schedules]] = {}
        for g in grouping.groups:
            if g.template is None or _OPERATORS.get(type(g.template).__name__) != g.template.node.op_type:
                continue  # a product inside something else cannot be run alone as that node
            schedules = g.template.schedules(self.target, LoweringOptions.of(self.context.config))
            if schedules is None or g.template.reads[1] not in graph.constants:
                continue
            weight[schedules.key] = weight.get(schedules.key, 0) + schedules.products
            found[schedules.key] = g.template, schedules
        heaviest = sorted(found, key=lambda k: -weight[k])[:_SHAPES]
        return self._chosen([found[k] for k in heaviest])

    def _chosen(self, wanted: Sequence[tuple[Template, Schedules]]) -> Mapping[str, str]:
        chosen: dict[str, str] = {}
        end = time.monotonic() + budget_ms(self.context) / 1000
        for template, schedules in wanted:
            place = self._place(schedules)
            known = get_cache().get(place)
            if known is not None:
                chosen[schedules.key] = json.loads(known)["chosen"]
                continue
            times = self._times(template, schedules, end)
            if times is None:
                logger.info("%s keeps its default schedule: the time given by %s is used up", schedules.key, KEY)
                continue
            chosen[schedules.key] = fastest(times)
            get_cache().put(place, json.dumps({"chosen": chosen[schedules.key], "ns": times}).encode())
            logger.info("%s: %s, of %s ns", schedules.key, chosen[schedules.key], times)
        return MappingProxyType(chosen)

    def _place(self, schedules: Schedules) -> str:
        from intarsia.runtime.executor import thread_count

        threads = thread_count(self.context.intra_op_num_threads)
        return f"schedule-{content_key(cpu_key(), sources(), str(threads), schedules.key, *schedules.names)}"

    def _times(self, template: Template, schedules: Schedules, end: float) -> dict[str, int] | None:
        """Nanoseconds of each candidate at best; None where time is up."""
        runs: dict[str, Callable[[], Any]] = {}
        for name in schedules.names:
            if time.monotonic() >= end:
                return None
            runs[name] = self._alone(template, {schedules.key: name})
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
    x, w = template.types[:2]
    assert x is not None and w is not None and x.shape is not None and w.shape is not None
    rng = np.random.default_rng(0)
    shape, weights = (tuple(int(d) for d in kind.shape) for kind in (x, w))  # type: ignore[union-attr, arg-type]
    scale = math.sqrt(max(1, math.prod(weights) // max(weights)))
    constant = Constant.of("w", (rng.standard_normal(weights, np.float32) / scale).astype(w.dtype.numpy))
    node: Node = template.node.copy(inputs=["x", "w"], outputs=["y"], traced=None)
    graph = Graph(
        "schedules", [Value("x", TensorType(x.dtype, shape))], [Value("y", template.output)], [node], {"w": constant},
        opset_imports={"": 21},
    )  # fmt: skip
    return graph, rng.standard_normal(shape, np.float32).astype(x.dtype.numpy)
