"""The parts of one session that IntarsiaCPU runs: compiled when onnxruntime asks what is taken, run when it runs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from intarsia.ep.provider import CompileContext
from intarsia.ep_context.format import CheckedProgram
from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph
from intarsia.machine import fork_safety
from intarsia.ort_plugin import compute_text as word
from intarsia.ort_plugin.c_api import OrtApi, structure
from intarsia.ort_plugin.context_nodes import ContextNodes, hide_others, is_context, restored_program
from intarsia.ort_plugin.graph_reader import GraphReader, bytes_at, tensor_of
from intarsia.ort_plugin.native_call import NativeCalls, functions
from intarsia.ort_plugin.part_program import program_of
from intarsia.ort_plugin.selection import selected
from intarsia.partition.partition import Part
from intarsia.printable import get_logger
from intarsia.providers.cpu.executable import HostStep
from intarsia.providers.cpu.program.cpu_program import CpuProgram

logger = get_logger("intarsia.plugin")

_CENSUS_ROUNDS = 200_000  # of waiting for another thread: some 10 ms
_MOST_CENSUSES = 8
_MOST_TRIES = 8  # partitions of a graph, each without the nodes that the one before it could not compile


class FusedParts:
    """What IntarsiaCPU takes of one session's model.

    Args:
        compute: addresses of the functions of OrtNodeComputeInfo.
        entries: the session's configuration entries.
        threads: of a run; 0: as many as onnxruntime's pool has.
        take_all: take nodes whatever is to be gained, also those that Python runs.
    """

    def __init__(
        self, api: OrtApi, compute: Mapping[str, int], entries: Mapping[str, str], threads: int = 0, take_all: bool = False
    ) -> None:
        self.api, self.threads = api, threads
        self.take_all = take_all
        self.context = CompileContext(intra_op_num_threads=threads, config=_session_entries(entries))
        self._compiled: dict[frozenset[str], CpuProgram] = {}
        self.contexts = ContextNodes(api, entries)
        self._lock = fork_safety.lock()
        self.functions = np.zeros(word.FUNCTION_WORDS, np.int64)
        self.functions[word.GET_INPUT] = api.places["KernelContext_GetInput"]
        self.functions[word.GET_OUTPUT] = api.places["KernelContext_GetOutput"]
        self.functions[word.GET_SHAPE] = api.places["GetTensorElementTypeAndShapeDataReference"]
        self.functions[word.GET_DATA] = api.places["GetTensorMutableData"]
        self.functions[word.RELEASE_STATUS] = api.places["ReleaseStatus"]
        self.functions[word.PYTHON], self.functions[word.SETTLE] = compute["Compute"], compute["Settle"]
        self.compute = {**compute, "Compute": functions().compute}

    def take(self, handle: int) -> Iterator[list[int]]:
        """The nodes of each part of an OrtGraph that is taken, as handles. All parts are compiled."""
        reader = GraphReader(self.api)
        try:
            graph = reader.graph(handle)
            hide_others(graph)
            for part in self._divided(graph):
                yield [reader.nodes[i] for i in part.nodes]
        finally:
            reader.close()

    def _divided(self, graph: Graph) -> Sequence[Part]:
        """Parts whose programs are in `_compiled`."""
        denied: dict[str, str] = {}
        for _ in range(_MOST_TRIES):
            parts = selected(graph, denied, self.take_all)
            found = [self._try(part.graph) for part in parts]
            new = {name: why for outcome in found if isinstance(outcome, dict) for name, why in outcome.items()}
            if not new:
                return parts
            logger.debug("left to onnxruntime: %s", new)
            denied |= new
        return []

    def _try(self, graph: Graph) -> CpuProgram | dict[str, str]:
        """The program of a part, or which of its nodes are in the way, by their first output, and why; none are where it was
        compiled ahead."""
        if is_context(graph):
            return {}
        try:
            program = program_of(graph, self.context, anew=self.contexts.wanted)
            self._compiled[frozenset(graph.output_names())] = program
        except (IntarsiaError, MemoryError) as error:
            return {_first(node.outputs): f"it could not be compiled: {error}" for node in graph.nodes}
        return program if self.take_all else run_by_python(graph, program) or program

    def part(self, graph: int, node: int) -> FusedPart:
        """What runs a fused node."""
        reader = GraphReader(self.api)
        inputs = reader.names(self.api.items("Node_GetNumInputs", "Node_GetInputs", node))
        outputs = reader.names(self.api.items("Node_GetNumOutputs", "Node_GetOutputs", node))
        program = self._compiled.pop(frozenset(outputs), None)
        if program is None or not set(program.inputs) <= set(inputs):
            try:
                found = reader.graph(graph)
                if is_context(found):
                    return FusedPart(self, restored_program(found, self.context), inputs, outputs)
                program = program_of(found, self.context, anew=self.contexts.wanted)
            finally:
                reader.close()
        return FusedPart(self, program, inputs, outputs)

    def context_node(self, part: FusedPart, graph: int, node: int) -> int:
        """An OrtNode that holds a part, of a fused node."""
        name, model = self.api.text("Node_GetName", node), self.api.text("Graph_GetModelPath", graph)
        return self.contexts.node(part.program, name, (part.program.inputs, part.program.outputs), model)

    def counted(self, context: int, most: int) -> int:
        """How many threads onnxruntime gives a node of this session, of `most`: so many of its own meet."""
        with self._lock:
            if not self.threads and most > 1:
                words = np.array([0, 0, most, _CENSUS_ROUNDS], np.int64)
                ask = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 5)(self.api.places["KernelContext_ParallelFor"])
                for _ in range(_MOST_CENSUSES):  # a thread may wait for a core
                    if words[word.CENSUS_MOST] < most:
                        ask(context, functions().census, most, most, words.ctypes.data)
                self.threads = max(1, int(words[word.CENSUS_MOST]))
            return self.threads or 1


class FusedPart:
    """One fused node. `made`: its program; one that was compiled ahead looks at inputs before they are run, or bound to."""

    def __init__(
        self, parts: FusedParts, made: CpuProgram | CheckedProgram, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        program = made.program if isinstance(made, CheckedProgram) else made
        assert isinstance(program, CpuProgram)
        self.parts, self.program = parts, program
        self._check = made.check if isinstance(made, CheckedProgram) else None
        self.words = structure("OrtNodeComputeInfo", parts.compute)
        self.words[word.FUNCTIONS] = parts.functions.ctypes.data
        self.address = ctypes.addressof(self.words)
        self.takes = [inputs.index(name) for name in made.inputs]
        self.gives = [outputs.index(name) for name in made.outputs]
        self.calls = NativeCalls(self.words, self.takes, self.gives)
        self._counted = bool(parts.threads)

    def run(self, context: int) -> None:
        """Run the part by Python, and prepare that later runs on inputs of these sizes need none.

        Args:
            context: the address of an OrtKernelContext.
        """
        if not self._counted:
            self._share_threads(context)
        inputs = [self._input(context, i) for i in self.takes]
        if self._check is not None:
            self._check(inputs)
        for i, result in zip(self.gives, self.program.run(inputs), strict=True):
            self._give(context, i, result)
        self.calls.add(self.program, inputs)

    def settle(self) -> None:
        """Let the call for new sizes run on those that native code has noted.

        Raises:
            IntarsiaError: the sizes do not fit together.
        """
        if self._check is not None:
            self._check(self.calls.noted())
        self.calls.settle(self.program)

    def close(self) -> None:
        """onnxruntime has no use for it any more."""
        self.calls.close()

    def _share_threads(self, context: int) -> None:
        """Go on with as many threads as onnxruntime has for this session."""
        threads = self.parts.counted(context, self.program.pool.num_threads)
        if threads != self.program.pool.num_threads:
            own = replace(self.parts.context, intra_op_num_threads=threads)
            self.program = self.program.share(own) or self.program
        self._counted = True

    def _input(self, context: int, index: int) -> np.ndarray:
        """An input as an array in onnxruntime's memory."""
        api = self.parts.api
        dtype, shape, address = tensor_of(api, api.get("KernelContext_GetInput", context, index))
        return array_at(address, dtype, shape)

    def _give(self, context: int, index: int, result: np.ndarray) -> None:
        api = self.parts.api
        shape = (ctypes.c_int64 * result.ndim)(*result.shape)
        value = api.get("KernelContext_GetOutput", context, index, shape, result.ndim)
        if value:
            array_at(api.get("GetTensorMutableData", value), DType.of(result.dtype), result.shape)[...] = result


def run_by_python(graph: Graph, program: CpuProgram) -> dict[str, str]:
    """Nodes of a part that its program has left to Python, by their first output, and why; all, where it is not known which."""
    steps = [unit for unit in program.executable.units if isinstance(unit, HostStep)]
    reasons: dict[str, str] = {}
    for step in steps:
        names = {step.node.name, *step.node.origin} - {""}
        made = [n for n in graph.nodes if not set(n.outputs).isdisjoint(step.node.outputs) or n.name in names] or graph.nodes
        reasons |= {_first(node.outputs): f"it runs as Python: {step.reason}" for node in made}
    return reasons


def array_at(address: int, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """The tensor at an address."""
    return bytes_at(address, math.prod(shape) * dtype.numpy.itemsize).view(dtype.numpy).reshape(shape)


def _session_entries(entries: Mapping[str, str]) -> dict[str, str]:
    """Of a session's configuration entries those that threads and kernels of the CPU provider know."""
    from intarsia.options.config_keys import SESSION_KEYS

    names = [key for key in SESSION_KEYS if not key.startswith("ep.")]
    return {key: entries[key] for key in (*names, "ep.context_file_path") if key in entries}


def _first(outputs: Sequence[str]) -> str:
    return next((name for name in outputs if name), "")
