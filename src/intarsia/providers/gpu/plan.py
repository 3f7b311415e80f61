"""A part bound to the sizes of its inputs: launches as data, where every value lies, and what a run has to fill in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intarsia.codegen.clike import Cut
from intarsia.codegen.clike.cut import Job, is_cheap
from intarsia.device.gpu import Gpu, Launch, Slice, aligned
from intarsia.errors import EPFail, InvalidArgument, InvalidGraph, OutOfMemory
from intarsia.faults import MESSAGES
from intarsia.graph.dims import Expr
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.kernel.lang import DefinitionError, Tensor, walk
from intarsia.kernel.rewrite import as_scalar, substitute
from intarsia.ops import registry
from intarsia.ops.infer import Inference, infer
from intarsia.partition.device import DeviceTensor
from intarsia.partition.partition import label
from intarsia.partition.provider import RunContext
from intarsia.plan.arena import place

JobObserver = Callable[[Job, int, int, int], None]
"""Is told of a launch: when it began and ended (`time.perf_counter_ns`), and the bytes it reads and writes."""


def described(node: Node) -> str:
    return f"node {label(node)!r} ({node.qualified_op})"


_CONSTANT = "="  # before the names of leaves that are constants


class Constants:
    """Constants on the device, copied when a plan first needs them."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._slices: dict[str, Slice] = {}
        self._lock = threading.Lock()

    def slice(self, name: str, constant: Constant) -> Slice:
        with self._lock:
            found = self._slices.get(name)
            if found is None:
                found = self._slices[name] = self.gpu.write(constant.numpy())
                constant.forget()
            return found

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self._slices.values())


@dataclass
class State:
    """One caller's scratch: the arena, and launches that are tied to it."""

    arena: Slice
    status: Slice | None
    bound: list[Any]


@dataclass
class Plan:
    """What `bind` makes. Any number of threads may run one plan.

    Attributes:
        jobs: the launches, in order.
        offsets: values in the arena.
        arena_nbytes: size of the arena: values whose lives do not overlap share memory.
        unshared_nbytes: what the values in the arena would take side by side.
        outputs: name, element type and shape of each.
    """

    gpu: Gpu
    inputs: tuple[str, ...]
    jobs: list[Job]
    stored: Mapping[str, tuple[DType, tuple[int, ...]]]
    constants: Mapping[str, Slice]
    outputs: list[tuple[str, DType, tuple[int, ...]]]
    offsets: dict[str, int] = field(default_factory=dict)
    arena_nbytes: int = 0
    unshared_nbytes: int = 0

    def __post_init__(self) -> None:
        self._place()
        self._sizes, self._sizes_at = self._upload_sizes()
        self._checked = [i for i, job in enumerate(self.jobs) if job.kernel.checked]
        self._external = {*self.inputs, *(n for n, _, _ in self.outputs)}
        self._free: list[State] = []
        self._programs = [self.gpu.program(job.kernel) for job in self.jobs]

    def _place(self) -> None:
        """Offsets in the arena by first and last use."""
        outside = {*self.inputs, *self.constants, *(n for n, _, _ in self.outputs)}
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for i, job in enumerate(self.jobs):
            for name in (*job.reads, *job.writes):
                if name not in outside:
                    first.setdefault(name, i)
                    last[name] = i
        sizes = {n: aligned(self.nbytes_of(n)) for n in first}
        for name, nbytes in sizes.items():
            if nbytes > self.gpu.limits.binding_nbytes:
                dtype, shape = self.stored[name]
                raise OutOfMemory(
                    f"{self.gpu.device}: a value {dtype.onnx_name}{list(shape)} has {nbytes:,} bytes; this device binds "
                    f"{self.gpu.limits.binding_nbytes:,} at once: use a smaller batch or a shorter input"
                )
        places, self.arena_nbytes = place([(sizes[n], first[n], last[n]) for n in first])
        self.offsets = dict(zip(first, places, strict=True))
        self.unshared_nbytes = sum(sizes.values())

    def nbytes_of(self, name: str) -> int:
        dtype, shape = self.stored[name]
        return int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize

    def _upload_sizes(self) -> tuple[Slice | None, list[int]]:
        """The sizes of all kernels as one constant, and where each kernel's begin."""
        rows: list[np.ndarray] = []
        at: list[int] = []
        total = 0
        for job in self.jobs:
            row = np.zeros(aligned(4 * len(job.kernel.sizes)) // 4 if job.kernel.sizes else 0, np.int32)
            row[: len(job.kernel.sizes)] = job.kernel.sizes
            at.append(total)
            rows.append(row)
            total += row.nbytes
        return (self.gpu.write(np.concatenate(rows)) if total else None), at

    # --- running ---

    def run(
        self, inputs: Mapping[str, Slice], run: RunContext | None = None, observer: JobObserver | None = None
    ) -> list[DeviceTensor]:
        """One run; `observer`: wait for every launch, and tell of it."""
        gpu = self.gpu
        made = {n: Slice(gpu.allocate(nbytes), 0, nbytes) for n, _, _ in self.outputs for nbytes in (self.nbytes_of(n),)}
        state = self._acquire()
        outside = {**inputs, **made}
        if state.status is not None:
            gpu.fill(state.status, np.zeros(state.status.nbytes, np.uint8))
        if run is not None:
            run.check()
        bound = [b if b is not None else gpu.bind(self._launch(i, outside, state)) for i, b in enumerate(state.bound)]
        if observer is None:
            gpu.run(bound)
        else:
            self._observed(bound, observer)
        if state.status is not None:
            self._check(np.frombuffer(gpu.read(state.status, state.status.nbytes), np.uint32))
        self._free.append(state)
        if run is not None:
            run.check()
        return [DeviceTensor(dtype, shape, gpu.device, made[n]) for n, dtype, shape in self.outputs]

    def _observed(self, bound: list[Any], observer: JobObserver) -> None:
        """Run, and tell when each launch began and ended: the device's times, one after the other from now on."""
        start = time.perf_counter_ns()
        for job, nanoseconds in zip(self.jobs, self.gpu.timed(bound), strict=False):
            end = start + round(nanoseconds)
            observer(job, start, end, sum(self.nbytes_of(name) for name in (*job.reads, *job.writes)))
            start = end

    def _acquire(self) -> State:
        try:
            return self._free.pop()
        except IndexError:
            pass
        arena = Slice(self.gpu.allocate(self.arena_nbytes), 0, self.arena_nbytes)
        nbytes = 256 * len(self._checked)
        status = Slice(self.gpu.allocate(nbytes), 0, nbytes) if nbytes else None
        state = State(arena, status, [])
        for i, job in enumerate(self.jobs):
            fixed = self._external.isdisjoint((*job.reads, *job.writes))
            state.bound.append(self.gpu.bind(self._launch(i, {}, state)) if fixed else None)
        return state

    def _launch(self, i: int, outside: Mapping[str, Slice], state: State) -> Launch:
        job = self.jobs[i]
        bindings = [self._where(name, outside, state) for name in (*job.reads, *job.writes)]
        if job.kernel.sizes:
            assert self._sizes is not None
            bindings.append(Slice(self._sizes.memory, self._sizes_at[i], 4 * len(job.kernel.sizes)))
        if job.kernel.checked:
            assert state.status is not None
            bindings.append(Slice(state.status.memory, 256 * self._checked.index(i), 4))
        return Launch(job.kernel, self._programs[i], tuple(bindings), job.node)

    def _where(self, name: str, outside: Mapping[str, Slice], state: State) -> Slice:
        if name in outside:
            return outside[name]
        if name in self.constants:
            return self.constants[name]
        return Slice(state.arena.memory, self.offsets[name], self.nbytes_of(name))

    def _check(self, status: np.ndarray) -> None:
        wrong = np.flatnonzero(status[::64])
        if wrong.size:
            first = int(wrong[0])
            raise InvalidArgument(f"{self.jobs[self._checked[first]].node}: {MESSAGES[int(status[64 * first])]}")

    def lines(self) -> Iterator[str]:
        """For people: the launches, and where their results lie."""
        shared = f"{self.arena_nbytes:,} bytes of scratch ({self.unshared_nbytes:,} without sharing)"
        yield f"{len(self.jobs)} launches, {len({j.kernel.source for j in self.jobs})} kernels, {shared}"
        for i, job in enumerate(self.jobs):
            places = [f"{n} @{self.offsets[n]}" if n in self.offsets else n for n in job.writes]
            yield f"{i}. {job.schedule} {job.kernel.groups} {', '.join(job.reads)} -> {', '.join(places)}  {job.node}"


def bind(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, np.ndarray], gpu: Gpu, constants: Constants
) -> Plan:
    """The plan for inputs of these shapes; `numbers` are the inputs that are read on the host.

    Raises:
        EPFail: a size depends on what the run computes.
        InvalidGraph: the shapes do not fit an operator's definition.
        OutOfMemory: a value is larger than what the device binds.
    """
    inference = infer(_with_sizes(graph, shapes, numbers), registry())
    return _Binder(inference, gpu, constants).plan(tuple(shapes))


def _with_sizes(graph: Graph, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, np.ndarray]) -> Graph:
    known = graph.clone()
    known.inputs = []
    for value in graph.inputs:
        if value.name in numbers:
            known.constants[value.name] = Constant.of(value.name, numbers[value.name])
        else:
            assert isinstance(value.type, TensorType)
            known.inputs.append(Value(value.name, TensorType(value.type.dtype, shapes[value.name])))
    known.types = {}
    return known


class _Binder:
    def __init__(self, inference: Inference, gpu: Gpu, constants: Constants) -> None:
        self.inference, self.graph, self.gpu = inference, inference.graph, gpu
        self.constants = constants
        self.cut = Cut(gpu.dialect)
        self.expressions: dict[str, Tensor] = {}
        self.known: dict[str, Constant] = dict(self.graph.constants)
        self.uses: dict[str, int] = {}

    def plan(self, inputs: tuple[str, ...]) -> Plan:
        self._count()
        for name in inputs:
            self.expressions[name] = self._leaf(name, self.inference.types[name])
        for node in self.graph.nodes:
            self.cut.node = described(node)
            try:
                self._node(node)
            except DefinitionError as error:
                raise InvalidGraph(f"{self.cut.node}: {error}") from error
        names = list(dict.fromkeys(self.graph.output_names()))
        self._store_outputs(names)
        outputs = [(name, *self.cut.stored[name]) for name in names]
        read = {n for job in self.cut.jobs for n in job.reads}
        slices = {n: self._constant(n) for n in read if n.startswith(_CONSTANT) or n in self.cut.tables}
        return Plan(self.gpu, inputs, self.cut.jobs, self.cut.stored, slices, outputs)

    def _constant(self, leaf: str) -> Slice:
        if leaf in self.cut.tables:
            return self.gpu.write(self.cut.tables[leaf])
        name = leaf.removeprefix(_CONSTANT)
        if name in self.graph.constants and name not in self.inference.values:
            return self.constants.slice(name, self.known[name])
        return self.gpu.write(self.known[name].numpy())  # small, and possibly of this plan alone

    def _count(self) -> None:
        for node in self.graph.nodes:
            for name in node.inputs:
                if name:
                    self.uses[name] = self.uses.get(name, 0) + 1
        for name in self.graph.output_names():
            self.uses[name] = self.uses.get(name, 0) + 1

    def _leaf(self, name: str, kind: Any) -> Tensor:
        t = Tensor("input", (), (name,), kind.dtype, kind.shape)
        self.cut.stored[name] = (kind.dtype, tuple(kind.shape))
        return t

    def _value(self, name: str) -> Tensor:
        found = self.expressions.get(name)
        if found is None:
            constant = self.known[name]
            if constant.size == 1 and not constant.dtype.is_complex:
                value = constant.numpy().reshape(()).astype(_plain(constant.dtype)).item()
                found = self.expressions[name] = as_scalar(value, constant.dtype, constant.shape)
            else:
                found = self.expressions[name] = self._leaf(_CONSTANT + name, constant.type)
        return found

    def _node(self, node: Node) -> None:
        outputs = [n for n in node.outputs if n]
        for name in outputs:
            values = self.inference.values.get(name)
            if values is not None and not any(isinstance(v, Expr) for v in values.flat):
                kind = self.inference.types[name]
                assert isinstance(kind, TensorType)
                self.known[name] = Constant.of(name, values.astype(kind.dtype.numpy).reshape(kind.shape))  # type: ignore[arg-type]
        if all(n in self.known for n in outputs):
            return
        roots = self.inference.traces.get(node.outputs[0])
        if roots is None:
            why = self.inference.unknown.get(node.outputs[0], "its input types are not known")
            raise EPFail(f"{self.cut.node} cannot run on {self.gpu.device}: {why}")
        for name, root in zip(node.outputs, roots, strict=True):
            if name and root is not None and name not in self.known:
                self._result(name, root, node)

    def _result(self, name: str, root: Tensor, node: Node) -> None:
        often = _read_often(root)
        (expression,) = substitute([root], lambda t: self._operand(node.inputs[t.attrs[0]], t.attrs[0] in often))
        for t in walk([expression]):
            if any(isinstance(d, Expr) for d in t.shape):
                raise EPFail(f"{self.cut.node} cannot run on {self.gpu.device}: a size of {t!r} is known only at run time")
        settled = self.cut.settle(expression)
        if self.uses.get(name, 0) > 1 and not _is_view(settled):
            settled = self.cut.store(settled)
        self.expressions[name] = settled
        self.cut.owners.setdefault(id(settled), self.cut.node)

    def _operand(self, name: str, often: bool) -> Tensor:
        """The value as an expression; stored where computing it once more costs more than reading it."""
        made = self._value(name)
        if often and not is_cheap(made):
            made = self.expressions[name] = self.cut.store(made)
        return made

    def _store_outputs(self, names: list[str]) -> None:
        """Values that are nothing but stored already are written to the output's memory in the first place."""
        renamed: dict[str, str] = {}
        for name in names:
            made = self._value(name)
            if made.prim == "input" and made.attrs[0].startswith("%") and made.attrs[0] not in self.cut.tables:
                renamed.setdefault(made.attrs[0], name)
            if renamed.get(made.attrs[0] if made.prim == "input" else "") != name:
                self._store_output(name)
        for stored, name in renamed.items():
            self.cut.rename(stored, name)

    def _store_output(self, name: str) -> None:
        maker = next((n for n in self.graph.nodes if name in n.outputs), None)
        self.cut.node = described(maker) if maker is not None else f"output {name!r}"
        self.cut.store(self.cut.settle(self._value(name)), name)


def _plain(dtype: DType) -> Any:
    return np.float32 if dtype.is_floating and dtype is not DType.DOUBLE else bool if dtype is DType.BOOL else (
        dtype.numpy if dtype is DType.DOUBLE else np.uint64 if dtype is DType.UINT64 else np.int64
    )  # fmt: skip


def _read_often(root: Tensor) -> set[int]:
    """Operands that a definition with a reduction reads more than once."""
    order = walk([root])
    if not any(t.prim in ("reduce", "argreduce", "dot") for t in order):
        return set()
    reads = [a.attrs[0] for t in order for a in t.args if a.prim == "input"]
    return {i for i in reads if reads.count(i) > 1}


def _is_view(t: Tensor) -> bool:
    """Whether reading it is reading memory at another index."""
    return all(x.prim in ("input", "scalar", "broadcast", "reshape", "transpose", "slice", "iota") for x in walk([t]))
