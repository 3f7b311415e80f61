"""Providers written with the names of onnxruntime's C++ headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia import ComputeCapability, Device, DeviceTensor, IAllocator, IDataTransfer, IExecutionProvider, KernelRegistry
from intarsia.ep.cpp_names import GraphViewer, IKernelLookup, NodeComputeInfo
from intarsia.ep.device import HOST
from intarsia.errors import EPFail

CPU = "CPUExecutionProvider"
SOURCE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,3] x) => (float[N,3] y) { a = Relu(x)  b = Exp(a)  y = Mul(b, w) }""")
SOURCE.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([1, 2, 3]), "w"))
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
Y = np.exp(np.maximum(X, 0)) * np.float32([1, 2, 3])


class Heap(IAllocator):
    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.sizes: list[int] = []

    def Alloc(self, size: int) -> bytearray:
        self.sizes.append(size)
        return bytearray(size)

    def Free(self, handle: bytearray) -> None:
        handle.clear()


class Transfer(IDataTransfer):
    def CopyTensor(self, src: Any, dst: Any) -> None:
        if isinstance(src, np.ndarray):
            dst.handle[:] = src.tobytes()
        elif isinstance(dst, np.ndarray):
            dst[...] = np.frombuffer(src.handle, dst.dtype).reshape(dst.shape)
        else:
            dst.handle[:] = src.handle


class Kernels(IExecutionProvider):
    """Runs node by node in a memory of its own."""

    def __init__(self) -> None:
        super().__init__("KernelsExecutionProvider", Device("heap"))
        self.heap = Heap(self.GetDevice())
        self.transfer = Transfer(self.heap)
        self.registry = KernelRegistry()
        self.registry.register("Relu", self.kernel(lambda x: np.maximum(x, 0)))
        self.registry.register("Mul", self.kernel(np.multiply), since=7)

    def kernel(self, function: Any) -> Any:
        return lambda node, given: [self.transfer.copy_in(function(*map(self.transfer.copy_out, given)), self.device)]

    def GetKernelRegistry(self) -> KernelRegistry:
        return self.registry

    def GetDataTransfer(self) -> IDataTransfer:
        return self.transfer

    def GetAllocator(self) -> IAllocator:
        return self.heap


def session(provider: IExecutionProvider) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(SOURCE.SerializeToString(), options, [provider, CPU])


def test_kernels_and_transfers() -> None:
    provider = Kernels()
    made = session(provider)
    assert made.get_providers() == ["KernelsExecutionProvider", CPU]
    assert made.explain().counts == {"KernelsExecutionProvider": 2, CPU: 1}
    np.testing.assert_allclose(made.run(None, {"x": X})[0], Y, rtol=1e-6)
    assert provider.heap.sizes and provider.get_allocator() is provider.heap
    assert provider.Type() == "KernelsExecutionProvider"


def test_capabilities_see_the_graph() -> None:
    seen: dict[str, Any] = {}

    class Choosing(Kernels):
        def GetCapability(self, graph_viewer: GraphViewer, kernel_lookup: IKernelLookup) -> list[ComputeCapability]:
            order = graph_viewer.GetNodesInTopologicalOrder()
            first = graph_viewer.GetNode(order[0])
            seen.update(
                inputs=graph_viewer.GetInputs(), outputs=graph_viewer.GetOutputs(), nodes=graph_viewer.NumberOfNodes(),
                op=first.OpType(), domain=first.Domain(), since=first.SinceVersion(),
                defs=(first.InputDefs(), first.OutputDefs()),
                attributes=first.GetAttributes(), constant=graph_viewer.IsConstantInitializer("w"), index=first.Index(),
                weight=graph_viewer.GetInitializedTensor("w").numpy().tolist(), name=first.Name(),
                producer=graph_viewer.GetProducerNode("b").OpType(), nobody=graph_viewer.GetProducerNode("x"),
                consumers=[n.OpType() for n in graph_viewer.GetConsumerNodes("a")], type=str(graph_viewer.TypeOf("a")),
                opset=graph_viewer.DomainToVersionMap()[""], graph=graph_viewer.Name(),
                kernels=[kernel_lookup.LookUpKernel(n) is not None for n in graph_viewer.Nodes()],
                free=kernel_lookup.IsFree(first),
            )  # fmt: skip
            return [ComputeCapability((first,))]

    made = session(Choosing())
    assert made.explain().counts == {"KernelsExecutionProvider": 1, CPU: 2}
    assert seen == {
        "inputs": ["x"], "outputs": ["y"], "nodes": 3, "op": "Relu", "domain": "", "since": 14, "defs": (["x"], ["a"]),
        "attributes": {}, "constant": True, "index": 0, "weight": [1.0, 2.0, 3.0], "name": seen["name"], "producer": "Exp",
        "nobody": None, "consumers": ["Exp"], "type": "float[N, 3]", "opset": 17, "graph": "g", "kernels": [True, False, True],
        "free": True,
    }  # fmt: skip
    np.testing.assert_allclose(made.run(None, {"x": X})[0], Y, rtol=1e-6)


class Fused(IExecutionProvider):
    """Compiles a group of nodes to one function."""

    states = 0

    def GetCapability(self, graph_viewer: GraphViewer, kernel_lookup: IKernelLookup) -> list[ComputeCapability]:
        return [ComputeCapability(tuple(graph_viewer.Nodes())[:2], name="exp_of_relu")]

    def Compile(self, fused_nodes: Any) -> list[NodeComputeInfo]:
        assert [n.OpType() for n in fused_nodes[0].Nodes()] == ["Relu", "Exp"]

        def create_state() -> dict[str, int]:
            Fused.states += 1
            return {"runs": 0}

        def compute(state: dict[str, int], inputs: Any) -> list[np.ndarray]:
            state["runs"] += 1
            return [np.exp(np.maximum(inputs[0], 0))]

        return [NodeComputeInfo(compute, create_state)]


def test_fused_parts() -> None:
    made = session(Fused("FusedExecutionProvider"))
    assert made.explain().counts == {"FusedExecutionProvider": 2, CPU: 1}
    for _ in range(3):
        np.testing.assert_allclose(made.run(None, {"x": X})[0], Y, rtol=1e-6)
    assert Fused.states == 1


def test_a_function_too_few() -> None:
    class Forgetful(Fused):
        def Compile(self, fused_nodes: Any) -> list[NodeComputeInfo]:
            return []

    with pytest.warns(ort.ProviderWarning, match=r"ForgetfulExecutionProvider.Compile\(\) returned 0 functions for 1"):
        session(Forgetful("ForgetfulExecutionProvider"))


class TestTransfers:
    def test_across_devices(self) -> None:
        a, b = Device("heap", 0), Device("heap", 1)
        transfer = Transfer(Heap(a))
        tensor = transfer.copy_in(X, a)
        moved = transfer.copy_across(tensor, b)
        assert moved.device == b
        assert np.array_equal(transfer.copy_out(moved), X)

    def test_that_are_not_offered(self) -> None:
        class OneWay(Transfer):
            def CanCopy(self, src_device: Device, dst_device: Device) -> bool:
                return src_device is HOST

        transfer = OneWay(Heap(Device("heap")))
        tensor = transfer.copy_in(X, Device("heap"))
        with pytest.raises(EPFail, match=r"OneWay does not copy from heap:0 to host: CanCopy\(\) said no"):
            transfer.copy_out(tensor)

    def test_methods_that_are_not_overridden(self) -> None:
        with pytest.raises(NotImplementedError, match=r"IDataTransfer.CopyTensor"):
            IDataTransfer(Heap(HOST)).CopyTensor(X, X)
        with pytest.raises(NotImplementedError, match=r"IAllocator.Alloc"):
            IAllocator(HOST).allocate(4)
        with pytest.raises(NotImplementedError, match=r"IAllocator.Free"):
            IAllocator(HOST).free(None)
        bare = IExecutionProvider("BareExecutionProvider", Device("bare"))
        with pytest.raises(EPFail, match=r"override get_data_transfer\(\)"):
            bare.get_data_transfer()
        with pytest.raises(EPFail, match=r"override get_allocator\(\)"):
            bare.get_allocator()
        assert isinstance(DeviceTensor, type)
