"""The base of providers that print kernels: everything but which device it is."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

from intarsia.codegen.clike import Dialect
from intarsia.codegen.clike.vendor_libraries.calls import Libraries
from intarsia.device.gpu import Gpu, GpuAllocator, GpuTransfer, no_such_device
from intarsia.device.graphs import Graphs
from intarsia.ep.capability import ComputeCapability, KernelLookup, Support
from intarsia.ep.device import Allocator, DataTransfer, Device
from intarsia.ep.provider import CompileContext, ExecutionProvider, Program
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, Node
from intarsia.providers.gpu.fitting import beyond
from intarsia.providers.gpu.node_support import Survey, value_indices
from intarsia.providers.gpu.program import GpuProgram


class GpuExecutionProvider(ExecutionProvider):
    """Takes every node whose definition can be printed for the device; subclasses say which device that is."""

    evaluates_shapes: ClassVar[bool] = True
    package: ClassVar[str] = ""  # the Python package whose version is the library's

    def __init__(self, options: object = None) -> None:
        super().__init__(options)
        self._survey: Survey | None = None
        self._beyond: dict[int, str] = {}
        if why := self.unavailable() or self.missing_for(self.options):
            raise EPFail(f"{self.name} cannot be used on this machine: {why}")
        try:
            self.gpu  # noqa: B018 # opened, so that one that computes wrong results is refused here, where another may stand in
        except EPFail as error:
            raise EPFail(f"{self.name} cannot be used on this machine: {error}") from error

    @classmethod
    def library_version(cls) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(cls.package)
        except PackageNotFoundError:
            return ""

    @classmethod
    def emulated(cls) -> bool:
        return all(device.software for device in cls.devices())

    @classmethod
    def missing_for(cls, options: Any) -> str:
        return cls.unavailable() or no_such_device(options.device_id, cls.devices())

    @property
    def gpu(self) -> Gpu:
        """The device. Raises EPFail where there is none."""
        raise NotImplementedError

    @property
    def device(self) -> Device:
        return self.gpu.device

    def supports(self, node: Node, graph: Graph) -> Support:
        survey = self._survey
        if survey is None or survey.given is not graph:
            survey = self._survey = Survey(graph, self.dialect, self.gpu.limits)
            self._beyond = self._without_room(graph, survey)
        answer = survey.answer(node)
        if answer and id(node) in self._beyond:
            return Support.no(self._beyond[id(node)], code="memory", suggestion="raise the limit of the device's memory")
        return answer

    def _without_room(self, graph: Graph, survey: Survey) -> dict[int, str]:
        gpu = self.gpu
        if not gpu.memory_limit:
            return {}
        return beyond(
            graph, lambda node: bool(survey.answer(node)), self.reads_on_host, gpu.memory_limit, gpu.counters.allocated_nbytes
        )

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        self._survey = None  # the graph may have changed since it was last surveyed
        return super().get_capability(graph, kernel_lookup)

    def reads_on_host(self, node: Node, index: int) -> bool:
        return index in value_indices(node, Graph(name="", opset_imports={}))

    def get_data_transfer(self) -> DataTransfer:
        return GpuTransfer(self.gpu)

    def get_allocator(self) -> Allocator:
        return GpuAllocator(self.gpu)

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        dialect = self.dialect
        if context.config.get("session.disable_winograd") == "1":
            dialect = copy.copy(dialect)
            dialect.tuning = replace(dialect.tuning, filtering=None)
        return GpuProgram(graph, self.gpu, context.on_step, self.libraries, dialect, self.graphs)

    @property
    def dialect(self) -> Dialect:
        """What kernels are printed in."""
        return self.gpu.dialect

    @property
    def graphs(self) -> Graphs | None:
        """Where launches that come again become graphs; None: nowhere."""
        return None

    @property
    def libraries(self) -> Libraries | None:
        """What a vendor's libraries compute on the device; None: nothing."""
        return None
