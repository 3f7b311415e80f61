"""Runs of a model whose intermediate values are looked at while they live: memory is that of a run, however many are wanted.

On the CPU the model runs node by node on the first tier, which needs no compiler, and a value is observed where it is computed
and freed after its last use. Several runs go at once, one on each core, as long as their values are few megabytes: a small
node is done before threads have shared it. On other providers, and where the first tier's kernels were not made, values are
tapped in groups.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from intarsia.ep.node_program import Observer
from intarsia.ep.provider import CompileContext
from intarsia.graph.model import Constant, Graph
from intarsia.model import load_and_optimize
from intarsia.options.session_options import SessionOptions
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.providers.cpu.first_tier import kernel_image
from intarsia.providers.cpu.first_tier.program import FirstTierProgram, FirstTierProvider
from intarsia.providers.reference import evaluate
from intarsia.reports.taps import tappable
from intarsia.runtime.threads import available_cores
from intarsia.session.inference_session import InferenceSession
from intarsia.values.feeds import FeedReader

_TAPPED_AT_ONCE = 64
_MOST_AT_ONCE = 8  # runs: more wait for Python's lock
_BYTES_AT_ONCE = 128 << 20  # of the values of all runs that go at once
_ALIVE = 4  # values of the largest size that are taken to live at a time
_CPU = "CPUExecutionProvider"


class ObservedModel:
    """A model whose values can be observed run by run.

    Args:
        source: as of `InferenceSession`; its values keep their names, since nothing is fused.
        names: the values to observe: inputs, outputs and what its nodes compute, outside of bodies.
        providers: as of `InferenceSession`; None: the CPU.

    Raises:
        As `InferenceSession`.
    """

    def __init__(self, source: Any, names: Collection[str], providers: Sequence[Any] | None = None) -> None:
        self.names = set(names)
        self._options = SessionOptions()
        self._options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        self._source, self._providers = source, list(providers or [_CPU])
        self._session: InferenceSession | None = None
        self._nodewise: tuple[FirstTierProgram, FeedReader] | None = None
        self._constants_due = True  # they are the same in every run, and observed in the first
        self._largest = 0  # bytes of an observed value
        if self._providers == [_CPU] and (kernel_image.load() is not None or kernel_image.make()):
            self._nodewise = _node_by_node(source, self._options)

    def run_all(self, feeds: Iterable[Mapping[str, Any]], observe: Observer, *, in_order: bool = False) -> int:
        """Run the model on each feed; returns how many there were. Feeds are requested one at a time.

        Args:
            observe: as of `run`; threads call it at the same time, and runs go on side by side, unless `in_order`.

        Raises:
            As `run`, for the first run that failed.
        """
        shared = _Shared(iter(feeds))
        first = shared.next()
        if first is None:
            return 0
        self.run(first, observe)
        at_once = 1 if in_order else self._runs_at_once()
        if at_once > 1 and self._nodewise is not None:
            self._nodewise[0].run_on_one_thread()
        self._work(shared, observe, at_once)
        return shared.count

    def _work(self, shared: _Shared, observe: Observer, at_once: int) -> None:
        def work() -> None:
            while (feed := shared.next()) is not None:
                try:
                    self.run(feed, observe)
                except BaseException:
                    shared.stop()
                    raise

        if at_once < 2:
            return work()
        with ThreadPoolExecutor(at_once - 1, thread_name_prefix="intarsia-calibration") as threads:
            others = [threads.submit(work) for _ in range(at_once - 1)]
            work()
        for other in others:
            other.result()
        return None

    def _runs_at_once(self) -> int:
        """As many as there are cores, and as fit the memory by what the first run has shown."""
        if self._nodewise is None:
            return 1
        fit = _BYTES_AT_ONCE // max(1, _ALIVE * self._largest)
        cores = available_cores()
        return cores if cores <= min(fit, _MOST_AT_ONCE) else 1

    def run(self, feed: Mapping[str, Any], observe: Observer) -> None:
        """Run the model once; `observe(name, value)` is called for each wanted value, once.

        Nodes that run later may write over a value: who retains it copies it.

        Raises:
            As `InferenceSession.run`.
        """
        if self._nodewise is not None and set(feed) <= set(self._nodewise[0].inputs):
            program, reader = self._nodewise
            inputs = reader.read(feed)
            self._observe_constants(program.graph, observe)
            self._observe(zip(program.inputs, inputs, strict=True), observe)
            program.observed(inputs, lambda name, value: self._observe([(name, value)], observe))
        else:
            self._tapped(feed, observe)

    def _observe_constants(self, graph: Graph, observe: Observer) -> None:
        if self._constants_due:
            wanted = [name for name in graph.constants if name in self.names]
            self._observe(((name, graph.constants[name].numpy()) for name in wanted), observe)
            self._constants_due = False

    def _observe(self, values: Iterable[tuple[str, Any]], observe: Observer) -> None:
        for name, value in values:
            if name in self.names:
                self._largest = max(self._largest, getattr(value, "nbytes", 0))
                observe(name, value)

    def _tapped(self, feed: Mapping[str, Any], observe: Observer) -> None:
        if self._session is None:
            self._session = InferenceSession(self._source, self._options, providers=self._providers)
        session = self._session
        self._observe_constants(session._engine.graph(), observe)
        self._observe(((name, np.asarray(value)) for name, value in feed.items()), observe)
        computed = [name for name in tappable(session._engine.graph()) if name in self.names]
        for start in range(0, len(computed), _TAPPED_AT_ONCE):
            group = computed[start : start + _TAPPED_AT_ONCE]
            self._observe(session._engine.inspection().tapped(feed, group).taps.items(), observe)


class _Shared:
    """Feeds that several threads take from."""

    def __init__(self, feeds: Iterator[Mapping[str, Any]]) -> None:
        self._feeds: Iterator[Mapping[str, Any]] | None = feeds
        self._lock = threading.Lock()
        self.count = 0

    def next(self) -> Mapping[str, Any] | None:
        """The next feed; None where there is none, or after `stop`."""
        with self._lock:
            found = next(self._feeds, None) if self._feeds is not None else None
            self.count += found is not None
            return found

    def stop(self) -> None:
        self._feeds = None


def _with_float_weights(graph: Graph) -> Graph:
    """The graph with weights in floats that DequantizeLinear makes of constants: kernels take no others."""
    done = {}
    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and all(name in graph.constants for name in node.inputs if name):
            operands = [graph.constants[name].numpy() if name else None for name in node.inputs]
            done[node.outputs[0]] = np.asarray(evaluate(node, operands)[0])
    if not done:
        return graph
    found = graph.clone()
    found.nodes = [node for node in graph.nodes if node.outputs[0] not in done]
    found.constants = {**graph.constants, **{name: Constant.of(name, array) for name, array in done.items()}}
    return found


def _node_by_node(source: Any, options: SessionOptions) -> tuple[FirstTierProgram, FeedReader] | None:
    """The model on the first tier, and what reads its feeds."""
    graph = load_and_optimize.optimised(load_and_optimize.load_model(source, options), options, frozenset())
    program = FirstTierProvider().compile(_with_float_weights(graph), CompileContext())
    return (program, FeedReader(graph.inputs)) if isinstance(program, FirstTierProgram) else None
