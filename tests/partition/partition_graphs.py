"""Graphs from ONNX's text form, and providers that only say what they support."""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx.parser
import pytest

from intarsia.ep.provider import CompileContext, Device, ExecutionProvider, Program, Support
from intarsia.graph.load import load
from intarsia.graph.model import Graph, Node
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer


def graph_of(text: str) -> Graph:
    """A typed graph from the text of an ONNX graph, for operator set 17."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return infer(load(model.SerializeToString()), registry(), strict=False).graph


class NullProvider(ExecutionProvider):
    """Takes nodes by operator name and compiles nothing."""

    name = "NullExecutionProvider"

    def __init__(self, ops: Collection[str] | None = None, name: str = "", device: Device | None = None) -> None:
        super().__init__()
        self.ops, self._device = ops, device
        if name:
            self.name = name  # type: ignore[misc]

    @property
    def device(self) -> Device:
        return self._device if self._device is not None else super().device

    def supports(self, node: Node, graph: Graph) -> Support:
        if self.ops is None or node.op_type in self.ops:
            return Support.yes()
        return Support.no(f"knows no {node.op_type}")

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        program = Program()
        program.inputs, program.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        return program


@pytest.fixture
def make_graph() -> Callable[[str], Graph]:
    return graph_of


@pytest.fixture
def null() -> type[NullProvider]:
    return NullProvider
