"""What a session says about its runs and its model: profiles, memory, and where values lie."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia.errors import Fail, NodeFailed
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.registry import CPU

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.options.ep_devices import OrtEpDevice
    from intarsia.reports.memory_report import MemoryReport
    from intarsia.reports.profile_report import ProfileReport
    from intarsia.runtime.roofline import Roofline
    from intarsia.session.local_engine import LocalEngine
    from intarsia.values.ort_device import OrtMemoryInfo

ASSIGNMENT = "session.record_ep_graph_assignment_info"


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node of the model after optimisation."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that one provider runs together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes of the part, as they were assigned."""
        return list(self.nodes)


class Reports:
    """Reports on the model of `engine`; the methods are those of `InferenceSession`."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def profile(self, input_feed: Any, runs: int, *, warmup: int, roofline: bool) -> ProfileReport:
        """As `InferenceSession.profile`."""
        from intarsia.model import load_and_optimize
        from intarsia.model.shape_specialization import pinned, with_any_elements, with_separate_branches, with_windows_on_host
        from intarsia.model.trace_profile import Profile
        from intarsia.plan.size_constraints import BranchNeedsVariant, SizesNeedVariant
        from intarsia.reports.profile_report import measure
        from intarsia.values.feeds import FeedReader

        engine = self._engine
        given = [v.name for v in engine.signature.overridable if isinstance(input_feed, dict) and v.name in input_feed]
        own = engine.graph()
        graph = load_and_optimize.with_inputs(own, given) if given else own
        reader = FeedReader(graph.inputs) if given else engine.reader
        inputs = reader.read(input_feed)

        def measured(graph: Graph) -> ProfileReport:
            trace = Profile()
            model = engine.profiled(graph, trace)
            found = measure(model, inputs, trace, runs, warmup, self._roofline(model) if roofline else None, own)
            return replace(found, unobserved_milliseconds=self._unobserved(inputs, runs)) if graph is own else found

        made = (make(graph) for make in (partial(pinned, inputs=inputs), with_any_elements, with_windows_on_host))
        others, other = filter(None, made), graph
        while True:
            try:
                return measured(other)  # the first run says whether sizes ask for another model
            except BranchNeedsVariant:
                return measured(with_separate_branches(other))
            except NodeFailed as error:
                from intarsia.session.call_paths.index_errors import named

                raise named(engine, inputs, error) from error.__cause__
            except SizesNeedVariant:
                following = next(others, None)
                if following is None:
                    raise
                other = following

    def _unobserved(self, inputs: Sequence[Any], runs: int) -> float:
        """Milliseconds of a run of the session's own model, whose kernels nobody times; 0 where these sizes need another."""
        from intarsia.plan.size_constraints import BranchNeedsVariant, SizesNeedVariant
        from intarsia.reports.profile_report import mean_of_faster

        model, times = self._engine.settled_model(), []
        try:
            model.run(inputs, None)
            for _ in range(runs):
                start = time.perf_counter_ns()
                model.run(inputs, None)
                times.append((time.perf_counter_ns() - start) / 1e6)
        except (BranchNeedsVariant, SizesNeedVariant):
            return 0.0
        return mean_of_faster(times)

    def _roofline(self, model: CompiledModel) -> Roofline | None:
        """What the machine can do at most for the model's kernels; None where the CPU provider has no part of it."""
        from intarsia.runtime.roofline import roofline

        if all(part.provider.name != CPU for part in model.partition.parts):
            return None
        titles = (n.kernel for p in model.programs for n in p.nodes())
        less = {title.rpartition("(")[2].removesuffix(")") for title in titles if title.endswith(")")}
        return roofline(self._engine.options.intra_op_num_threads, less=sorted(less))

    def memory_report(self, shapes: Mapping[str, Sequence[int]] | None) -> MemoryReport:
        """As `InferenceSession.memory_report`."""
        from intarsia.reports.memory_report import MemoryReport

        engine = self._engine
        models = [engine.settled_model(), *(model for model, _ in tuple(engine.variants.values()))]
        return MemoryReport.of(models, engine.providers, engine.signature.inputs, shapes, engine.arena().statistics())

    def assigned_subgraphs(self) -> list[OrtEpAssignedSubgraph]:
        """As `InferenceSession.get_provider_graph_assignment_info`."""
        if self._engine.options.config(ASSIGNMENT) != "1":
            raise Fail(
                f"Session configuration entry '{ASSIGNMENT}' must be set to \"1\" to retrieve EP graph assignment information. "
                "InferenceSession.explain() needs no setting"
            )
        split = self._engine.whole_model().partition
        found = []
        for part in split.parts:
            nodes = [split.graph.nodes[i] for i in part.nodes]
            listed = [OrtEpAssignedNode(n.name, "" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in nodes]
            groups = [(node,) for node in listed] if part.provider.name == CPU else [tuple(listed)]
            found += [OrtEpAssignedSubgraph(part.provider.name, group) for group in groups]
        return found

    def memory_infos(self, values: Sequence[Any], *, reads: bool) -> list[OrtMemoryInfo]:
        """The memory in which each value is read, or made."""
        from intarsia.options.ep_devices import device_of
        from intarsia.values.ort_enums import OrtDeviceMemoryType

        places: dict[str, set[str]] = {}
        model = self._engine.settled_model()
        for part in () if model.partition is None else model.partition.parts:
            for name in part.graph.input_names() if reads else part.graph.output_names():
                on_host = part.provider.device.host or (reads and name in part.host_inputs)
                places.setdefault(name, set()).add("" if on_host else part.provider.name)
        found = []
        for value in values:
            (name, *others) = places.get(value.name) or ("",)
            device = device_of(name) if name and not others else None
            memory = device.memory_info(OrtDeviceMemoryType.DEFAULT) if device is not None else None
            found.append(memory or _host_memory())
        return found

    def input_devices(self, values: Sequence[Any]) -> list[OrtEpDevice | None]:
        """For each input the device of the first provider that reads it; None where nobody does."""
        from intarsia.options.ep_devices import device_of

        readers: dict[str, str] = {}
        for part in self._engine.whole_model().partition.parts:
            for name in part.graph.input_names():
                readers.setdefault(name, part.provider.name)
        return [device_of(readers[a.name]) if a.name in readers else None for a in values]


def _host_memory() -> OrtMemoryInfo:
    from intarsia.values.ort_device import OrtMemoryInfo
    from intarsia.values.ort_enums import OrtAllocatorType, OrtMemType

    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
