"""A compiled part: requests from a pool, tensors shared with NumPy in both directions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from intarsia.ep.provider import NodeReport, Program, RunContext, StepObserver
from intarsia.errors import EPFail, IntarsiaError
from intarsia.graph.dims import Dim, Expr, evaluate, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.partition.partition import label
from intarsia.printable import get_logger
from intarsia.providers.openvino.model import node_name
from intarsia.providers.openvino.runtime import shortened

_logger = get_logger("intarsia.providers.openvino")
_VIEWED = {DType.BFLOAT16: ("bf16", np.uint16)}  # types that NumPy does not have: the bytes under another type
_POLL_MILLISECONDS = 5
_LONG_NANOSECONDS = 5_000_000  # an inference that took longer is watched from then on, so that Ctrl-C ends it
_RETAINED_SHAPES = 8
_PREFIX = node_name(0).removesuffix("0")


@dataclass(frozen=True)
class Port:
    """An input or output: how its tensor is made, and its shape where it can be computed from the inputs'."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None


class OpenVINOProgram(Program):
    """Runs one part on one device.

    Args:
        graph: the part.
        compile_for: a compiled model for any shapes (None) or for these input shapes.
        provider: name of the provider, for errors.
        static: whether a model is compiled for each combination of input shapes.
        passed_through: outputs (by index) that are inputs as they are.
        on_step: where a profile is wanted, gets each layer's time.
    """

    own_kernels: ClassVar[str] = "OpenVINO"  # what a report calls the kernel of a node that no layer names

    def __init__(
        self,
        graph: Graph,
        compile_for: Callable[[tuple[tuple[int, ...], ...] | None], Any],
        *,
        provider: str,
        static: bool = False,
        passed_through: frozenset[int] = frozenset(),
        on_step: StepObserver | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.graph, self._compile_for, self._static, self._on_step = graph, compile_for, static, on_step
        self._provider = provider
        self._fused: dict[int, tuple[str, ...]] | None = None  # once a profile asks
        self._passed_through = passed_through
        self._own_outputs = True
        self._long = False
        self._in = [_port(graph, n) for n in self.inputs]
        self._out = [_port(graph, n) for n in self.outputs]
        self._where = {
            name: (i, axis)
            for i, port in reversed(list(enumerate(self._in)))
            for axis, dim in enumerate(port.shape or ())
            if isinstance(dim, Expr) and len(dim.symbols) == 1
            for name in dim.symbols
            if str(dim) == name
        }
        self._lock = fork_safety.lock()
        self._pools: OrderedDict[Any, _Pool] = OrderedDict()
        if not static:
            self._pools[None] = _Pool(compile_for(None), passed_through)

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        pool = self._pool(inputs) if self._static else self._pools[None]
        try:
            if self._own_outputs:
                try:
                    return self._infer(pool, inputs, run, own_outputs=True)
                except RuntimeError as error:
                    if "set new shape" not in str(error):
                        raise
                    self._own_outputs = False
                    _logger.debug("%s: an output has not the inferred shape, OpenVINO allocates: %s", self.graph.name, error)
            return self._infer(pool, inputs, run, own_outputs=False)
        except RuntimeError as error:
            if isinstance(error, IntarsiaError):
                raise
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> EPFail:
        nodes = self.graph.nodes
        return EPFail(
            f"{self._provider} could not run its {len(nodes)} nodes from {label(nodes[0])!r} to "
            f"{label(nodes[-1])!r}: {shortened(error)}"
        )

    def _pool(self, inputs: Sequence[Any]) -> _Pool:
        shapes = tuple(tuple(array.shape) for array in inputs)
        with self._lock:
            pool = self._pools.get(shapes)
            if pool is None:
                pool = self._pools[shapes] = _Pool(self._compile_for(shapes), self._passed_through)
                if len(self._pools) > _RETAINED_SHAPES:
                    self._pools.popitem(last=False)
            else:
                self._pools.move_to_end(shapes)
        return pool

    def _infer(self, pool: _Pool, inputs: Sequence[Any], run: RunContext | None, *, own_outputs: bool) -> list[Any]:
        request = pool.acquire()
        held = [_shareable(array) for array in inputs]  # a request does not keep alive what its tensors point to
        for i, array in enumerate(held):
            request.set_input_tensor(i, _tensor(array, self._in[i].dtype))
        results: list[np.ndarray | None] = [None] * len(self._out)
        sizes = {name: inputs[i].shape[axis] for name, (i, axis) in self._where.items()}
        for i, port in enumerate(self._out) if own_outputs else ():
            shape = _evaluated(port.shape, sizes)
            if shape is not None and 0 in shape:  # there is nothing to compute, and OpenVINO may give another shape
                results[i] = np.empty(shape, port.dtype.numpy)
            elif shape is not None and i not in pool.passed_through:
                array = np.empty(shape, port.dtype.numpy)
                request.set_output_tensor(i, _tensor(array, port.dtype))
                results[i] = array
        start = time.perf_counter_ns()
        if run is None and not self._long:
            request.infer()
            self._long = time.perf_counter_ns() - start > _LONG_NANOSECONDS
        else:
            _run_watched(request, run)
        if self._on_step is not None:
            _report(request, self._on_step, start, self._layer_nodes(pool.compiled))
        found = [r if r is not None else _copied(request.get_output_tensor(i), self._out[i]) for i, r in enumerate(results)]
        pool.release(request)
        return found

    @classmethod
    def kernel_of(cls, layer: str) -> str:
        """What a report calls the kernel of `layer`, its kind and OpenVINO's name of the kernel: "Convolution:jit_f32"."""
        return layer

    @property
    def compiled(self) -> Any:
        """The `openvino.CompiledModel` for any shapes; None where each shape has its own."""
        return self._pools[None].compiled if not self._static else None

    def describe(self, stage: str = "program") -> str:
        if stage != "program":
            return ""
        lines = [f"OpenVINO, {len(self.graph.nodes)} nodes: {', '.join(self.inputs)} -> {', '.join(self.outputs)}"]
        for shapes, pool in self._pools.items():
            if shapes is not None:
                lines.append(f"for input shapes {', '.join(str(list(s)) for s in shapes)}:")
            compiled = pool.compiled
            for name in (
                "EXECUTION_DEVICES",
                "INFERENCE_PRECISION_HINT",
                "INFERENCE_NUM_THREADS",
                "NUM_STREAMS",
                "LOADED_FROM_CACHE",
            ):
                try:
                    lines.append(f"  {name}: {_property_text(compiled.get_property(name))}")
                except RuntimeError:
                    continue
            lines += [f"  {kind} {names}" for kind, names in _layers(compiled)]
        return "\n".join(lines)

    def _layer_nodes(self, compiled: Any) -> dict[int, tuple[str, ...]]:
        """By node of the graph: the first outputs of all nodes that are one layer with it."""
        if self._fused is None:
            groups = [_indices(names) for _, names in _layers(compiled)]
            nodes = self.graph.nodes
            first = [next((n for n in node.outputs if n), "") for node in nodes]
            self._fused = {i: tuple(first[k] for k in group) for group in groups for i in group}
        return self._fused

    def nodes(self) -> list[NodeReport]:
        pool = next(iter(self._pools.values()), None)
        layers: dict[int, str] = {}
        for kind, names in _layers(pool.compiled) if pool is not None else ():
            layers.update(dict.fromkeys(_indices(names), self.kernel_of(kind)))
        return [
            NodeReport(next((n for n in node.outputs if n), ""), "compiled", layers.get(i, self.own_kernels))
            for i, node in enumerate(self.graph.nodes)
        ]


class _Pool:
    """Requests of one compiled model; as many as were ever needed at once.

    `passed_through`: outputs (by index) that are inputs as they are. OpenVINO writes nothing into a tensor given for these.
    """

    def __init__(self, compiled: Any, passed_through: frozenset[int]) -> None:
        self.compiled, self.passed_through = compiled, passed_through
        self._free: list[Any] = []

    def acquire(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self.compiled.create_infer_request()

    def release(self, request: Any) -> None:
        self._free.append(request)


def _run_watched(request: Any, run: RunContext | None) -> None:
    """An inference that is cancelled when the caller wants to stop, or a signal's handler raises (Ctrl-C)."""
    request.start_async()
    try:
        while not request.wait_for(_POLL_MILLISECONDS):
            if run is not None:
                run.check()
    except BaseException:
        request.cancel()
        try:
            request.wait()
        except RuntimeError:
            _logger.debug("the inference was cancelled")
        raise
    if run is not None:
        run.check()


def _indices(names: str) -> list[int]:
    """The nodes of a part's graph that OpenVINO's names, separated by commas, stand for."""
    found = (name.strip() for name in names.split(","))
    numbers = (name.removeprefix(_PREFIX).partition("/")[0] for name in found if name.startswith(_PREFIX))
    return [int(number) for number in numbers if number.isdigit()]


def _report(request: Any, on_step: StepObserver, start: int, nodes: Mapping[int, tuple[str, ...]]) -> None:
    """Each layer's time, one after another from `start`: OpenVINO reports durations only."""
    for layer in request.get_profiling_info():
        nanoseconds = int(layer.real_time.total_seconds() * 1e9)
        if nanoseconds:
            found = dict.fromkeys(n for i in _indices(layer.node_name) for n in nodes.get(i, ()))
            on_step(f"{layer.node_type} {layer.exec_type}", tuple(found) or (layer.node_name,), start, start + nanoseconds)
            start += nanoseconds


@dataclass(frozen=True)
class SavedPart:
    """Of a program that was cached: everything but the compiled model."""

    graph: Graph
    passed_through: frozenset[int]

    @classmethod
    def of(cls, program: OpenVINOProgram) -> SavedPart:
        """With a graph that has names and types, but neither weights nor attributes."""
        full = program.graph
        nodes = [Node(n.op_type, [], [o for o in n.outputs if o][:1], domain=n.domain, name=n.name) for n in full.nodes]
        types = {n: full.types[n] for n in (*program.inputs, *program.outputs) if n in full.types}
        graph = Graph(name=full.name, inputs=list(full.inputs), outputs=list(full.outputs), nodes=nodes, types=types)
        return cls(graph, program._passed_through)


def _port(graph: Graph, name: str) -> Port:
    kind = graph.type_of(name)
    assert isinstance(kind, TensorType), "nodes with other values are refused"
    return Port(name, kind.dtype, None if kind.shape is None else tuple(kind.shape))


def _evaluated(shape: tuple[Dim, ...] | None, sizes: dict[str, int]) -> tuple[int, ...] | None:
    if shape is None or any(not symbols_of(d) <= sizes.keys() for d in shape):
        return None
    try:
        return tuple(evaluate(d, sizes) for d in shape)
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def _tensor(array: np.ndarray, dtype: DType) -> Any:
    """An `openvino.Tensor` on the array's own memory."""
    import openvino

    if dtype in _VIEWED:
        name, bits = _VIEWED[dtype]
        return openvino.Tensor(array.view(bits), list(array.shape), getattr(openvino.Type, name))
    return openvino.Tensor(array, shared_memory=True)


class _Writable:
    """An array's memory without its write protection; it holds the array, which must outlive views."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        given = array.__array_interface__
        self.__array_interface__ = {**given, "data": (given["data"][0], False)}


def _shareable(array: np.ndarray) -> np.ndarray:
    """The array, or a view of its memory without the write protection that `openvino.Tensor` objects to. Inputs are only
    read."""
    if array.flags.writeable:
        return array
    if not array.nbytes or not array.flags.c_contiguous:
        return array.copy()
    return np.asarray(_Writable(array))


def _copied(tensor: Any, port: Port) -> np.ndarray:
    if port.dtype in _VIEWED:
        shape = tuple(tensor.shape)
        data = np.array(tensor.data, copy=True)
        return data.reshape(-1).view(port.dtype.numpy).reshape(shape)
    return np.array(tensor.data, dtype=port.dtype.numpy, copy=True, order="C")


def _layers(compiled: Any) -> list[tuple[str, str]]:
    """Kind and original names of each layer that the device executes."""
    found = []
    for op in compiled.get_runtime_model().get_ops():
        info = op.get_rt_info()
        kind = _text(info, "layerType")
        if kind not in ("Input", "Output", "Const", ""):
            found.append((f"{kind}:{_text(info, 'primitiveType')}", _text(info, "originalLayersNames")))
    return found


def _text(info: Any, key: str) -> str:
    if key not in info:
        return ""
    value = info[key]
    return str(value.astype(str) if hasattr(value, "astype") else value)


def _property_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
