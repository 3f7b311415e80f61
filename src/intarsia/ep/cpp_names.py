"""The provider interface under the names of onnxruntime's C++ headers, so that a C++ provider can be translated line by line.

Everything here is a thin layer over `ep.provider`, which a provider that is written for Python should use itself.
docs/custom-providers.md shows both beside the C++.
"""

# ruff: noqa: N802 # the methods are named as in C++

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from intarsia.ep.capability import ComputeCapability, Kernel, KernelLookup, KernelRegistry
from intarsia.ep.device import HOST, Allocator, DataTransfer, Device, DeviceTensor
from intarsia.ep.provider import CompileContext, ExecutionProvider, Program, RunContext
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, ValueType
from intarsia.lazy_dataclass import dataclass

__all__ = [
    "ComputeCapability",
    "GraphViewer",
    "IAllocator",
    "IDataTransfer",
    "IExecutionProvider",
    "IKernelLookup",
    "KernelRegistry",
    "NodeComputeInfo",
    "NodeView",
]


@dataclass(frozen=True)
class NodeView:
    """One node as C++ sees it. Usable as its index, in `ComputeCapability` too."""

    graph: Graph
    index: int

    @property
    def node(self) -> Node:
        """The node as Intarsia's own passes see it."""
        return self.graph.nodes[self.index]

    def __index__(self) -> int:
        return self.index

    def Index(self) -> int:
        """Its place among the nodes of the graph."""
        return self.index

    def Name(self) -> str:
        """The name of the node; "" where it has none."""
        return self.node.name

    def OpType(self) -> str:
        """The name of the operator."""
        return self.node.op_type

    def Domain(self) -> str:
        """The domain of the operator; "" is ai.onnx."""
        return self.node.domain

    def SinceVersion(self) -> int:
        """The version of the operator's definition that applies."""
        return self.node.version

    def InputDefs(self) -> list[str]:
        """Names of the inputs; "" for one that is left out."""
        return list(self.node.inputs)

    def OutputDefs(self) -> list[str]:
        """Names of the outputs; "" for one that is left out."""
        return list(self.node.outputs)

    def GetAttributes(self) -> dict[str, Any]:
        """The attributes that are written at the node, by name."""
        return dict(self.node.attributes)


@dataclass(frozen=True)
class GraphViewer:
    """A graph as C++ sees it. `graph` is Intarsia's own, with the types of all values."""

    graph: Graph

    def Name(self) -> str:
        """The name of the graph; "" where it has none."""
        return self.graph.name

    def Nodes(self) -> Iterator[NodeView]:
        """The nodes, each after those whose results it reads."""
        return (NodeView(self.graph, i) for i in range(len(self.graph.nodes)))

    def NumberOfNodes(self) -> int:
        """How many nodes there are."""
        return len(self.graph.nodes)

    def GetNode(self, index: int) -> NodeView:
        """The node with an index; negative ones count from the end. Raises IndexError where there is none."""
        return NodeView(self.graph, range(len(self.graph.nodes))[index])

    def GetNodesInTopologicalOrder(self) -> list[int]:
        """The indices of the nodes, each after those whose results it reads."""
        return list(range(len(self.graph.nodes)))

    def GetInputs(self) -> list[str]:
        """Names of the inputs, in the graph's order."""
        return self.graph.input_names()

    def GetOutputs(self) -> list[str]:
        """Names of the outputs, in the graph's order."""
        return self.graph.output_names()

    def GetInitializedTensor(self, name: str) -> Constant | None:
        """The constant with a name; None where the name is no constant's."""
        return self.graph.constants.get(name)

    def IsConstantInitializer(self, name: str) -> bool:
        """Whether a name is a constant's."""
        return name in self.graph.constants

    def GetProducerNode(self, name: str) -> NodeView | None:
        """The node that computes a value; None for inputs, constants and unknown names."""
        return next((n for n in self.Nodes() if name in n.node.outputs), None)

    def GetConsumerNodes(self, name: str) -> list[NodeView]:
        """The nodes that read a value, also in their bodies."""
        return [n for n in self.Nodes() if name in n.node.used_names()]

    def TypeOf(self, name: str) -> ValueType | None:
        """Element type and shape of a value: what a C++ `NodeArg` carries."""
        return self.graph.type_of(name)

    def DomainToVersionMap(self) -> dict[str, int]:
        """The version of each operator set that the model imports, by domain ("" is ai.onnx)."""
        return dict(self.graph.opset_imports)


@dataclass(frozen=True)
class IKernelLookup:
    """Which kernel the provider registered for a node, and which nodes are still free."""

    lookup: KernelLookup

    def LookUpKernel(self, node: NodeView) -> Kernel | None:
        """The kernel for a node; None where the provider has none."""
        return self.lookup.find(node.node)

    def IsFree(self, node: NodeView) -> bool:
        """Whether no provider of higher priority has the node."""
        return self.lookup.is_free(node.index)


class IAllocator:
    """Memory of one device: override `Alloc` and `Free`."""

    divisible = False

    def __init__(self, device: Device) -> None:
        self.device = device

    def Alloc(self, size: int) -> Any:
        """A handle for `size` bytes. Raises OutOfMemory."""
        raise NotImplementedError(f"{type(self).__name__}.Alloc")

    def Free(self, handle: Any) -> None:
        """Give back what `Alloc` returned."""
        raise NotImplementedError(f"{type(self).__name__}.Free")

    def allocate(self, nbytes: int) -> Any:
        """`Alloc`, as the runtime calls it."""
        return self.Alloc(nbytes)

    def free(self, buffer: Any) -> None:
        """`Free`, as the runtime calls it."""
        self.Free(buffer)


class IDataTransfer(DataTransfer):
    """Copies between tensors that exist: override `CanCopy` and `CopyTensor`. Targets on the device come from `allocator`."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    def CanCopy(self, src_device: Device, dst_device: Device) -> bool:
        """Whether `CopyTensor` copies between these; the host is `ep.device.HOST`."""
        return True

    def CopyTensor(self, src: np.ndarray | DeviceTensor, dst: np.ndarray | DeviceTensor) -> None:
        """Copy all elements; both have the same type and shape."""
        raise NotImplementedError(f"{type(self).__name__}.CopyTensor")

    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        self._check(HOST, device)
        target = self._new(DType.STRING if array.dtype == object else DType.of(array.dtype), array.shape, array.nbytes, device)
        self.CopyTensor(array, target)
        return target

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        self._check(tensor.device, HOST)
        target = np.empty(tensor.shape, tensor.dtype.numpy)
        self.CopyTensor(tensor, target)
        return target

    def copy_across(self, tensor: DeviceTensor, device: Device) -> DeviceTensor:
        if not self.CanCopy(tensor.device, device):
            return super().copy_across(tensor, device)
        target = self._new(tensor.dtype, tensor.shape, tensor.nbytes, device)
        self.CopyTensor(tensor, target)
        return target

    def _new(self, dtype: DType, shape: tuple[int, ...], nbytes: int, device: Device) -> DeviceTensor:
        return DeviceTensor(dtype, shape, device, self.allocator.allocate(nbytes))

    def _check(self, source: Device, target: Device) -> None:
        if not self.CanCopy(source, target):
            raise EPFail(f"{type(self).__name__} does not copy from {source} to {target}: CanCopy() said no")


@dataclass(frozen=True)
class NodeComputeInfo:
    """How a fused part runs: `compute_func(state, inputs) -> outputs`, with a state that each program makes once."""

    compute_func: Callable[[Any, Sequence[Any]], Sequence[Any]]
    create_state_func: Callable[[], Any] = lambda: None


class IExecutionProvider(ExecutionProvider):
    """Base class with the names of C++: override `GetCapability`, and `GetKernelRegistry` or `Compile`.

    Args:
        type: the provider's name.
        device: its memory; None: the host's.
        options: see `ExecutionProvider.Options`.

    A class that is registered under its name has it as the class attribute `name` too, and a constructor that takes only
    the options. An instance can be given in `providers=[...]` without that.
    """

    name: ClassVar[str] = "IExecutionProvider"

    def __init__(self, type: str = "", device: Device | None = None, options: Any = None) -> None:  # as in C++
        super().__init__(options)
        self._device = device if device is not None else HOST
        if type:
            vars(self)["name"] = type  # an instance may have a name of its own

    @property
    def device(self) -> Device:
        """Where the provider's results lie."""
        return self._device

    def Type(self) -> str:
        """The name under which sessions ask for the provider."""
        return self.name

    def GetDevice(self) -> Device:
        """Where the provider's results lie."""
        return self._device

    def GetCapability(self, graph_viewer: GraphViewer, kernel_lookup: IKernelLookup) -> list[ComputeCapability]:
        """The nodes it offers to run. By default every free node that has a kernel."""
        return [
            ComputeCapability((node,))  # type: ignore[arg-type] # a view is its index
            for node in graph_viewer.Nodes()
            if kernel_lookup.IsFree(node) and kernel_lookup.LookUpKernel(node) is not None
        ]

    def GetKernelRegistry(self) -> KernelRegistry | None:
        """The kernels for single nodes; None where the provider compiles all that it takes."""
        return None

    def GetDataTransfer(self) -> IDataTransfer | None:
        """What copies between the host and the device; None where values stay in host memory."""
        return None

    def GetAllocator(self) -> IAllocator | None:
        """What allocates on the device; None where values stay in host memory."""
        return None

    def Compile(self, fused_nodes: Sequence[GraphViewer]) -> list[NodeComputeInfo]:
        """One function for each fused part; by default parts run by the kernels of the registry."""
        raise NotImplementedError

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        found = self.GetCapability(GraphViewer(graph), IKernelLookup(kernel_lookup))
        return [ComputeCapability(tuple(i.__index__() for i in c.nodes), c.name) for c in found]

    def get_kernel_registry(self) -> KernelRegistry | None:
        return self.GetKernelRegistry()

    def get_data_transfer(self) -> DataTransfer:
        found = self.GetDataTransfer()
        return found if found is not None else super().get_data_transfer()

    def get_allocator(self) -> Allocator:
        found = self.GetAllocator()
        return found if found is not None else super().get_allocator()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        if type(self).Compile is IExecutionProvider.Compile:
            return super().compile(graph, context)
        infos = self.Compile([GraphViewer(graph)])
        if len(infos) != 1:
            raise EPFail(f"{self.name}.Compile() returned {len(infos)} functions for 1 fused part")
        return _FusedProgram(graph, infos[0])


class _FusedProgram(Program):
    def __init__(self, graph: Graph, info: NodeComputeInfo) -> None:
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self._info, self._state = info, info.create_state_func()

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        return list(self._info.compute_func(self._state, inputs))
