"""Kernel registries, yes and no with reasons, device tensors, programs of kernels."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.ep.capability import KernelLookup, KernelRegistry, Support
from intarsia.ep.device import HOST, DataTransfer, Device, DeviceTensor, HostAllocator, detached
from intarsia.ep.provider import CompileContext, ExecutionProvider, Program, RunContext
from intarsia.errors import EPFail, Fail
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node

GRAPH = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { a = Add(x, w)  b = Relu(a)  y = Neg(b) }"


class Kernels(ExecutionProvider):
    """Runs node by node from a kernel registry; that is all it says."""

    name = "KernelsExecutionProvider"

    def get_kernel_registry(self) -> KernelRegistry:
        registry = KernelRegistry()
        registry.register("Add", lambda _, x: [x[0] + x[1]], since=7, types=[DType.FLOAT])
        registry.register("Relu", lambda _, x: [np.maximum(x[0], 0)])
        registry.register("Neg", lambda _, x: [-x[0]], since=6, until=12)
        return registry


def test_a_no_needs_a_reason() -> None:
    with pytest.raises(ValueError, match=r"Support.no\(\) needs a reason: say what is missing"):
        Support.no("")
    assert not Support.no("float64 is not available")
    assert Support.yes()


class TestKernelRegistry:
    def test_version_ranges(self, make_graph) -> None:
        graph = make_graph(GRAPH)
        found = Kernels().supports(graph.nodes[2], graph)
        assert (found.code, found.reason) == ("no-kernel", "kernels of Neg are for versions 6-12, not 13")

    def test_unknown_operator(self, make_graph) -> None:
        graph = make_graph(GRAPH)
        assert Kernels().supports(Node("Exp", ["x"], ["z"], version=13), graph).reason == "no kernel for Exp"

    def test_types(self, make_graph) -> None:
        graph = make_graph("g (double[3] x) => (double[3] y) { y = Add(x, x) }")
        found = Kernels().supports(graph.nodes[0], graph)
        assert (found.code, found.reason) == ("type", "no kernel of Add takes double (has: float)")

    def test_lookup(self, make_graph) -> None:
        graph = make_graph(GRAPH)
        lookup = KernelLookup(graph, Kernels().get_kernel_registry(), {0})
        assert lookup.find(graph.nodes[1]) is not None
        assert lookup.find(graph.nodes[2]) is None
        assert [lookup.is_free(i) for i in range(2)] == [False, True]

    def test_default_capability_is_every_free_node_with_a_kernel(self, make_graph) -> None:
        graph = make_graph(GRAPH)
        provider = Kernels()
        lookup = KernelLookup(graph, provider.get_kernel_registry(), {0})
        assert [c.nodes for c in provider.get_capability(graph, lookup)] == [(1,)]


class TestDefaults:
    def test_a_provider_without_kernels_says_so(self, make_graph) -> None:
        class Nothing(ExecutionProvider):
            name = "NothingExecutionProvider"

        graph = make_graph(GRAPH)
        found = Nothing().supports(graph.nodes[0], graph)
        assert found.reason == "NothingExecutionProvider has no kernels and does not say what it supports"
        with pytest.raises(
            EPFail, match=r"took node 'Add_0' .Add. but cannot run it: it has no kernel registry and does not override"
        ):
            Nothing().compile(graph, CompileContext())

    def test_a_device_needs_a_transfer_and_an_allocator(self) -> None:
        class Remote(ExecutionProvider):
            name = "RemoteExecutionProvider"
            device = Device("far")  # type: ignore[assignment]

        with pytest.raises(EPFail, match="works in the memory of far:0 but has no DataTransfer: override get_data_transfer"):
            Remote().get_data_transfer()
        with pytest.raises(EPFail, match="has no allocator for far:0: override get_allocator"):
            Remote().get_allocator()

    def test_program_must_run(self) -> None:
        with pytest.raises(NotImplementedError, match=r"Program.run"):
            Program().run([])
        assert Program().describe() == ""
        assert Program().nodes() == []

    def test_host_allocator_aligns(self) -> None:
        allocator = ExecutionProvider().get_allocator()
        assert isinstance(allocator, HostAllocator)
        buffer = allocator.allocate(100)
        assert buffer.nbytes == 100
        assert buffer.ctypes.data % 64 == 0
        allocator.free(buffer)


class TestKernelProgram:
    def program(
        self, make_graph, text: str = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { a = Add(x, w)  y = Relu(a) }"
    ):
        return Kernels().compile(make_graph(text), CompileContext())

    def test_runs(self, make_graph) -> None:
        program = self.program(make_graph)
        np.testing.assert_array_equal(program.run([np.float32([-5, 0, 5])])[0], [0, 2, 8])
        assert [(r.output, r.kind, r.kernel) for r in program.nodes()] == [("a", "host", "Add"), ("y", "host", "Relu")]
        assert "Relu" in program.describe()

    def test_results_are_the_callers(self, make_graph) -> None:
        class Identity(Kernels):
            def get_kernel_registry(self) -> KernelRegistry:
                registry = KernelRegistry()
                registry.register("Identity", lambda _, x: [x[0]])
                return registry

        text = "g (float[3] x) => (float[3] y, float[3] z) <float[3] w = {1, 2, 3}> { y = Identity(x)  z = Identity(w) }"
        program = Identity().compile(make_graph(text), CompileContext())
        x = np.float32([1, 2, 3])
        y, z = program.run([x])
        y[:] = z[:] = 7
        np.testing.assert_array_equal(x, [1, 2, 3])
        np.testing.assert_array_equal(program.run([x])[1], [1, 2, 3])

    def test_failing_kernel_names_node_and_provider(self, make_graph) -> None:
        with pytest.raises(EPFail, match=r"KernelsExecutionProvider could not run node 'Add_0' \(Add\): ValueError: operands"):
            self.program(make_graph).run([np.zeros(4, np.float32)])

    def test_stops_when_told(self, make_graph) -> None:
        class Options:
            terminate = True

        with pytest.raises(Fail, match="the run was stopped: Exiting due to terminate flag being set to true"):
            self.program(make_graph).run([np.zeros(3, np.float32)], RunContext(Options()))

    def test_took_a_node_without_kernel(self, make_graph) -> None:
        with pytest.raises(EPFail, match=r"took node 'Exp_0' .Exp. but cannot run it: no kernel for Exp"):
            self.program(make_graph, "g (float[3] x) => (float[3] y) { y = Exp(x) }")


class TestDevices:
    def test_numpy_cannot_read_device_tensors(self) -> None:
        tensor = DeviceTensor(DType.FLOAT, (2, 3), Device("far", 1), object())
        with pytest.raises(
            EPFail, match=r"a float tensor of shape \[2, 3\] is in the memory of far:1 and was read as a NumPy array"
        ):
            np.asarray(tensor)
        assert tensor.nbytes == 24

    def test_memory_is_shared_by_kind_and_index(self) -> None:
        assert HOST.shares_memory_with(Device("npu", host=True))
        assert not HOST.shares_memory_with(Device("cpu"))
        assert Device("acc").shares_memory_with(Device("acc", description="by another name"))
        assert not Device("acc").shares_memory_with(Device("acc", 1))

    def test_across_goes_through_the_host_by_default(self) -> None:
        class Lists(DataTransfer):
            def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
                return DeviceTensor(DType.of(array.dtype), array.shape, device, array.tolist())

            def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
                return np.array(tensor.handle, tensor.dtype.numpy)

        there = Lists().copy_in(np.arange(3), Device("acc"))
        moved = Lists().copy_across(there, Device("acc", 1))
        assert (moved.device, moved.handle) == (Device("acc", 1), [0, 1, 2])

    def test_a_transfer_must_copy(self) -> None:
        with pytest.raises(NotImplementedError):
            DataTransfer().copy_in(np.zeros(1), HOST)
        with pytest.raises(NotImplementedError):
            DataTransfer().copy_out(DeviceTensor(DType.FLOAT, (), HOST, None))

    def test_detached(self) -> None:
        own, other = np.zeros(3), np.zeros((2, 3))
        assert detached(own, [other]) is own
        assert detached(own, [[own]]) is not own
        assert detached(other[0], []).base is None
        assert detached([own], [own])[0] is not own
        assert detached(None, [own]) is None
