"""The first tier as a provider: every node there is, by a kernel or by the reference's definition."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.ep.node_program import NodeFunction, NodeProgram
from intarsia.ep.program import NodeReport, Program
from intarsia.ep.provider import CompileContext
from intarsia.graph.formats.mapped_arrays import release_pages
from intarsia.graph.model import Constant, Graph, Node
from intarsia.providers.cpu.first_tier import kernel_image
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls
from intarsia.providers.cpu.first_tier.kernel_specs import UNARY
from intarsia.providers.cpu.first_tier.weights_ahead import WeightsAhead
from intarsia.providers.reference import ReferenceExecutionProvider, evaluate
from intarsia.runtime.executor import get_pool
from intarsia.runtime.threads import PoolSettings

MakeFast = Callable[[Node, WeightsAhead, KernelCalls], Fast | None]

# Who makes an operator's functions, by module: it is imported where a model has the operator.
FUNCTIONS: Mapping[str, str] = {
    "Conv": "convolution.conv",
    "MaxPool": "convolution.pool", "AveragePool": "convolution.pool",
    "GlobalAveragePool": "convolution.global_pool", "GlobalMaxPool": "convolution.global_pool",
    "ConvTranspose": "convolution.conv_transpose",
    "Attention": "unfused_attention.attention",
    "Gather": "movement.gather", "Concat": "movement.concat", "Split": "movement.split", "Transpose": "movement.transpose",
    "InstanceNormalization": "rows.instance_normalisation",
    "LSTM": "recurrent.recurrent", "GRU": "recurrent.recurrent",
    "MatMul": "products.matmul", "Gemm": "products.gemm",
    "Softmax": "rows.softmax", "LogSoftmax": "rows.softmax",
    "LayerNormalization": "rows.normalisation", "RMSNormalization": "rows.normalisation",
    "Relu": "elementwise.relu", "Clip": "elementwise.clip",
    "QuantizeLinear": "elementwise.quantize", "DequantizeLinear": "elementwise.dequantize",
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), "elementwise.binary"),
    **dict.fromkeys((name for name in UNARY if name != "GeluTanh"), "elementwise.unary"),
}  # fmt: skip
# Operators whose functions, and whose definitions in float32, give memory of no other value.
_FRESH = frozenset((
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MatMul", "Gemm",
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "Add", "Sub", "Mul", "Div", "Relu",
))  # fmt: skip


# Operators whose weights, their second input, stay in memory as they are read. Those that are packed would be there twice.
_OF_WEIGHTS = frozenset(("Gemm", "MatMul"))


@functools.cache
def maker(operator: str) -> MakeFast | None:
    """Who makes the functions of an operator's nodes; None where the reference has all of them."""
    module, _, name = FUNCTIONS.get(operator, "").rpartition(".")
    if not name:
        return None
    found: MakeFast = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return found


class FirstTierProvider(ReferenceExecutionProvider):
    """Stands in for the CPU's provider while its program is compiled."""

    name = "CPUExecutionProvider"  # whose runs these are, to who reads an error

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        addresses, threads = kernel_image.load(), context.intra_op_num_threads
        if addresses is None:
            return super().compile(graph, context)
        calls = KernelCalls(addresses, get_pool(threads, PoolSettings.of(context.config, threads)), kernel_image.target())
        arrays = WeightsAhead(graph.constants)
        calls.may_look_up = context.config.get("session.first_tier_only", "0") != "1"
        with arrays.read_by(calls.threads, [node.inputs[1] for node in graph.nodes if node.op_type in _OF_WEIGHTS]):
            functions = list(_functions(graph, arrays, calls))
            stay = calls.packed | calls.looked_up
            constants = {name: c if name in stay else arrays[name] for name, c in graph.constants.items()}
        program = FirstTierProgram(graph, functions, constants, self.name)
        program.calls = calls
        return program


class FirstTierProgram(NodeProgram):
    """Nodes one by one, by kernels made ahead or by their definitions.

    Attributes:
        calls: the kernels, and the threads that run them.
    """

    calls: KernelCalls

    def run_on_one_thread(self) -> None:
        """Let each run have one thread from now on: for callers that run several at once."""
        self.calls.use_pool(get_pool(1))

    def nodes(self) -> list[NodeReport]:
        return [
            replace(report, kind="compiled", kernel=f"first tier: {node.op_type}", reason="")
            if function is not evaluate
            else report
            for report, (node, function, *_) in zip(super().nodes(), self._steps, strict=True)
        ]

    def remarks(self) -> list[str]:
        """Which tier this is."""
        count = sum(function is not evaluate for _, function, *_ in self._steps)
        return [f"runs are the first tier's: of {len(self._steps)} nodes {count} by functions of its own, the others by NumPy"]


def _functions(graph: Graph, constants: WeightsAhead, calls: KernelCalls) -> Iterator[NodeFunction]:
    """One for each node. Of weights that one node has packed, and nobody else reads, no second copy stays in memory."""
    read = Counter(name for node in graph.nodes for name in node.used_names())
    read.update(graph.output_names())
    fresh: set[str] = set()  # values in memory that no other value has
    for node in graph.nodes:
        before = len(calls.packed)
        calls.spare = {name for name in node.inputs if name in fresh and read[name] == 1}
        calls.alone = {name for name in node.inputs if read[name] == 1}
        function = _function(node, constants, calls)
        yield function
        if function is not evaluate and node.op_type in _FRESH:
            fresh.update(node.outputs)
        for name in node.inputs if len(calls.packed) > before else ():
            if name not in calls.packed:
                continue
            if read[name] > 1:
                calls.packed.discard(name)
            else:
                release_pages(constants[name])
                graph.constants[name].forget()


def _function(node: Node, constants: WeightsAhead, calls: KernelCalls) -> NodeFunction:
    make = maker(node.op_type) if not node.domain else None
    fast = make(node, constants, calls) if make is not None else None
    if fast is None:
        return evaluate

    def function(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        try:
            with np.errstate(all="ignore"):  # NaN and infinities are results, whatever the program has NumPy do
                found = fast(operands)
        except MemoryError:
            found = None  # the reference says which node
        if found is not None:
            return found
        return evaluate(node, [x.numpy() if isinstance(x, Constant) else x for x in operands])

    return function
