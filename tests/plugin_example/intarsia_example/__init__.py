"""An execution provider with a memory of its own, as small as one can be: its tensors are bytes that NumPy cannot read.

It takes every `stride`-th node, so that a model is cut in as many places as possible; whoever forgets a copy gets an error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.ep.node_program import NodeProgram
from intarsia.ep.provider import CompileContext, DataTransfer, Device, DeviceTensor, ExecutionProvider, Program, Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

DEVICE = Device("example", description="bytes")


@dataclass(frozen=True)
class ExampleOptions:
    stride: int = 1  # take every `stride`-th node of the graph
    offset: int = 0  # beginning with this one


class ExampleTransfer(DataTransfer):
    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        handle = array.tolist() if array.dtype == object else bytearray(array.tobytes())
        dtype = DType.STRING if array.dtype == object else DType.of(array.dtype)
        return DeviceTensor(dtype, array.shape, device, handle)

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        if tensor.dtype is DType.STRING:
            return np.array(tensor.handle, dtype=object).reshape(tensor.shape)
        return np.frombuffer(tensor.handle, tensor.dtype.numpy).reshape(tensor.shape).copy()


class ExampleExecutionProvider(ExecutionProvider):
    name = "ExampleExecutionProvider"
    Options = ExampleOptions
    copy_latency_us, copy_gbyte_per_s, gflop_per_s = 0.0, math.inf, math.inf  # no node is too small to be worth its copies

    @classmethod
    def devices(cls) -> list[Device]:
        return [DEVICE]

    @property
    def device(self) -> Device:
        return DEVICE

    def get_data_transfer(self) -> DataTransfer:
        return ExampleTransfer()

    def supports(self, node: Node, graph: Graph) -> Support:
        if any(True for _ in node.subgraphs):
            return Support.no("control flow stays on the host")
        if registry().find(node.domain, node.op_type, node.version) is None:
            return Support.no(f"{node.qualified_op} has no definition")
        index = next((i for i, other in enumerate(graph.nodes) if other is node), 0)
        if index % self.options.stride != self.options.offset:
            return Support.no(f"takes only every {self.options.stride}. node", code="stride")
        return Support.yes()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        constants = {name: self._moved(constant.numpy(), self._in) for name, constant in graph.constants.items()}
        return NodeProgram(graph, [self._run] * len(graph.nodes), constants, self.name)

    def _run(self, node: Node, operands: Sequence[Any]) -> list[Any]:
        inputs = [self._moved(x, ExampleTransfer().copy_out) for x in operands]
        return [self._moved(x, self._in) for x in evaluate_node(node, inputs, registry())]

    def _in(self, array: np.ndarray) -> DeviceTensor:
        return ExampleTransfer().copy_in(array, DEVICE)

    def _moved(self, value: Any, move: Callable[[Any], Any]) -> Any:
        """Sequences element by element; an empty optional as it is."""
        return [self._moved(v, move) for v in value] if isinstance(value, list) else value if value is None else move(value)
