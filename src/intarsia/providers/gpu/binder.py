"""From a graph whose sizes are known to a plan: nodes become kernels one after the other, bodies of control flow in place."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.codegen.clike import Cut, Dialect
from intarsia.codegen.clike.products.int8_factors import BYTES, stored_as_bytes
from intarsia.codegen.clike.split_into_kernels import Job, is_cheap
from intarsia.codegen.clike.storage_types import stored_nbytes
from intarsia.codegen.clike.vendor_libraries.calls import Libraries
from intarsia.codegen.loops.element_values import stripped
from intarsia.device.gpu import Gpu, Slice, aligned
from intarsia.device.graphs import USE, Graphs
from intarsia.device.libraries import NotOfferedError
from intarsia.errors import EPFail, InvalidGraph, OutOfMemory
from intarsia.graph.dims import Expr, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer
from intarsia.primitives.interpreter import interpret
from intarsia.primitives.lang import DefinitionError, Tensor, broadcast, scalar, walk
from intarsia.primitives.substitute import as_scalar, substitute
from intarsia.printable import get_logger
from intarsia.providers.gpu.decompositions import device_registry, rewritten
from intarsia.providers.gpu.launch_ranges import Region
from intarsia.providers.gpu.plan import Constants, Plan, described, leaf_of, values_nbytes
from intarsia.providers.gpu.plan_cache import SMALL_NBYTES, CachedPlan, PlanStore

_logger = get_logger("intarsia")
_MOST_COPIED = 4 << 20  # bytes of constants that a cached plan may have of its own
_HALVES = (DType.FLOAT16, DType.BFLOAT16)  # whose numbers inference does not follow by itself
Kind = tuple[DType, tuple[int, ...]]
_MOST_ELEMENTS = 2**31 - 1  # of a value
_CONSTANT = "="  # before the names of leaves that are constants


def bind(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, np.ndarray], gpu: Gpu, constants: Constants,
    store: PlanStore | None = None, libraries: Libraries | None = None, dialect: Dialect | None = None,
    graphs: Graphs | None = None,
) -> Plan:  # fmt: skip
    """The plan for inputs of these shapes; `numbers` are the inputs that are read on the host. `store`: where plans are cached;
    `libraries`: what computes products besides kernels of ours; `dialect`: what kernels are printed in, if not in the device's;
    `graphs`: where launches that come again become graphs.

    Raises:
        EPFail: a size depends on what the run computes.
        InvalidGraph: the shapes do not fit an operator's definition.
        OutOfMemory: a value is larger than what the device binds.
    """
    key = store.key(shapes, numbers) if store is not None else ""
    if store is not None and (cached := store.load(key)) is not None:
        try:
            return _restored(cached, graph, tuple(shapes), gpu, constants, libraries, graphs)
        except NotOfferedError as error:
            _logger.info("%s: launches are planned anew: %s", gpu.device, error)
    known = graph.clone()
    known.inputs = []
    for value in graph.inputs:
        if value.name in numbers:
            known.constants[value.name] = Constant.of(value.name, numbers[value.name])
        else:
            assert isinstance(value.type, TensorType)
            known.inputs.append(Value(value.name, TensorType(value.type.dtype, shapes[value.name])))
    known.types = {}
    work = Work(gpu, constants, libraries, dialect or gpu.dialect, graphs)
    values = {n: a.astype(np.float32).astype(object) for n, a in numbers.items() if DType.of(a.dtype) in _HALVES}
    scope = Scope(work, infer(known, device_registry(), None, values))
    for name in shapes:
        scope.expressions[name] = scope.counted(work.leaf(name, scope.inference.types[name]))
    scope.lower()
    plan = work.plan(scope, tuple(shapes))
    if store is not None and (leaves := work.cached_leaves(graph)) is not None:
        store.keep(key, CachedPlan(plan.jobs, work.cut.stored, plan.outputs, leaves, plan.regions, work.cached_prepared()))
    return plan


def _predict(
    gpu: Gpu, constants: Constants, jobs: Sequence[Job], stored: Mapping[str, Kind], regions: Sequence[Region],
    fixed: Collection[str], inputs: Sequence[str], outputs: Sequence[tuple[str, DType, tuple[int, ...]]],
) -> None:  # fmt: skip
    """Refuse, before anything is allocated, what cannot be within the limit of the options. `fixed`: values that are constants.

    Raises:
        OutOfMemory: with what each part takes.
    """
    limit = gpu.memory_limit
    if not limit:
        return

    def nbytes(kind: Kind) -> int:
        return aligned(stored_nbytes(kind[0], math.prod(kind[1])))

    weights = sum(nbytes(stored[n]) for n in fixed if n in stored and not constants.has(n))
    results = sum(nbytes((dtype, shape)) for _, dtype, shape in outputs)
    values = values_nbytes(jobs, stored, {*inputs, *fixed, *(name for name, _, _ in outputs)}, regions)
    used = gpu.counters.allocated_nbytes - gpu.holders().get(USE, 0)
    if used + weights + values + results > limit:
        raise OutOfMemory(
            f"{gpu.device}: a run with these sizes needs {weights + values + results:,} more bytes ({weights:,} for weights, "
            f"{values:,} for values, {results:,} for results), {used:,} are in use and the limit is {limit:,}: raise the "
            f"limit, or use a smaller batch or a shorter input ({gpu.holders_text()})"
        )


def _restored(
    cached: CachedPlan, graph: Graph, inputs: tuple[str, ...], gpu: Gpu, constants: Constants, libraries: Libraries | None,
    graphs: Graphs | None,
) -> Plan:  # fmt: skip
    fixed = {*cached.leaves, *cached.prepared}
    _predict(gpu, constants, cached.jobs, cached.stored, cached.regions, fixed, inputs, cached.outputs)
    slices = {
        leaf: constants.slice(leaf, graph.constants[what]) if isinstance(what, str) else gpu.write(what, "weights")
        for leaf, what in cached.leaves.items()
    }
    for leaf, (how, source) in cached.prepared.items():
        slices[leaf] = constants.prepared(leaf, how, graph.constants[source])
    return Plan(gpu, inputs, cached.jobs, cached.stored, slices, cached.outputs, cached.regions, libraries, graphs)


@dataclass
class Work:
    """What the graph and the bodies in it share.

    Attributes:
        cut: the launches so far.
        regions: control flow so far.
        leaves: constants by the names of their leaves, and whether other plans need them too.
    """

    gpu: Gpu
    constants: Constants
    libraries: Libraries | None
    dialect: Dialect
    graphs: Graphs | None = None
    regions: list[Region] = field(default_factory=list)
    leaves: dict[str, tuple[Constant, bool]] = field(default_factory=dict)
    from_weights: bool = False  # a number was computed from elements of a weight: no plan without them is the same

    def __post_init__(self) -> None:
        self.weights: set[str] = set()
        self.cut = Cut(self.dialect, libraries=self.libraries, weights=self.weights)

    def leaf(self, name: str, kind: Any) -> Tensor:
        self.cut.stored[name] = (kind.dtype, tuple(kind.shape))
        return Tensor("input", (), (name,), kind.dtype, tuple(kind.shape))

    def room(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A value whose memory is written by launches to come."""
        return self.leaf(f"%{len(self.cut.stored)}", TensorType(dtype, tuple(shape)))

    def filled(self, value: Tensor) -> Tensor:
        """A value of its own memory that starts as a copy of `value`, and may be overwritten."""
        room = self.room(value.dtype, numbers_of(value.shape))
        self.fill(room, value)
        return room

    def fill(self, room: Tensor, value: Tensor) -> None:
        """Overwrite a value of its own memory."""
        self.cut.copy(self.cut.settle(value), room.attrs[0])

    def counter(self) -> Tensor:
        """An int32 that counts iterations from 0 on, see `count`."""
        return self.filled(as_scalar(0, DType.INT32, ()))

    def region(self, **given: Any) -> Region:
        """A region that begins here; its end is set when it is known."""
        self.regions.append(Region(len(self.cut.jobs), node=self.cut.node, **given))
        return self.regions[-1]

    def plan(self, scope: Scope, inputs: tuple[str, ...]) -> Plan:
        names = list(dict.fromkeys(scope.graph.output_names()))
        scope.store_outputs(names)
        outputs = [(name, *self.cut.stored[name]) for name in names]
        read = {n for job in self.cut.jobs for n in job.reads}
        fixed = {n for n in read if n in self.leaves or n in self.cut.tables or n in self.cut.prepared}
        _predict(self.gpu, self.constants, self.cut.jobs, self.cut.stored, self.regions, fixed, inputs, outputs)
        slices = {n: self._constant(n) for n in read if n in self.leaves or n in self.cut.tables}
        for name in read & set(self.cut.prepared):
            how = self.cut.prepared[name]
            slices[name] = self.constants.prepared(name, how, self.leaves[leaf_of(how)][0])
        return Plan(
            self.gpu, inputs, self.cut.jobs, self.cut.stored, slices, outputs, self.regions, self.libraries, self.graphs
        )

    def cached_leaves(self, graph: Graph) -> dict[str, str | np.ndarray] | None:
        """The constants that launches read, by name where they are the graph's; None where the plan cannot be cached."""
        found: dict[str, str | np.ndarray] = {}
        for leaf in {n for job in self.cut.jobs for n in job.reads}:
            if leaf in self.cut.tables:
                found[leaf] = self.cut.tables[leaf]
            elif leaf in self.leaves:
                constant, shared = self.leaves[leaf]
                name = leaf.removeprefix(_CONSTANT)
                found[leaf] = name if shared and name in graph.constants else constant.numpy()
        copied = sum(a.nbytes for a in found.values() if isinstance(a, np.ndarray))
        return None if self.from_weights or copied > _MOST_COPIED else found

    def cached_prepared(self) -> dict[str, tuple[Tensor, str]]:
        """What launches read that is computed of constants: how, and of which."""
        read = {n for job in self.cut.jobs for n in job.reads}
        return {n: (t, leaf_of(t).removeprefix(_CONSTANT)) for n, t in self.cut.prepared.items() if n in read}

    def _constant(self, leaf: str) -> Slice:
        if leaf in self.cut.tables:
            return self.gpu.write(self.cut.tables[leaf], "weights")
        constant, shared = self.leaves[leaf]
        return self.constants.slice(leaf, constant) if shared else self.gpu.write(constant.numpy(), "weights")


class Scope:
    """A graph, or the body of a node of one, with what is known of its values.

    Attributes:
        expressions: values as primitives over stored ones.
        known: values that are known before the run.
        prefix: before the names of its constants' leaves.
    """

    def __init__(self, work: Work, inference: Inference, parent: Scope | None = None, prefix: str = "") -> None:
        self.work, self.cut, self.inference, self.graph = work, work.cut, inference, inference.graph
        self.parent, self.prefix = parent, prefix
        self.expressions: dict[str, Tensor] = {}
        self.known: dict[str, Constant] = dict(self.graph.constants)
        self.uses: dict[str, int] = {}
        for node in self.graph.nodes:
            for name in (*node.inputs, *(n for n in node.used_names() if n not in node.inputs)):
                self.uses[name] = self.uses.get(name, 0) + 1
        for name in self.graph.output_names():
            self.uses[name] = self.uses.get(name, 0) + 1

    def lower(self) -> None:
        """All nodes."""
        for node in self.graph.nodes:
            before, self.cut.node = self.cut.node, described(node)
            try:
                self._node(node)
            except DefinitionError as error:
                raise InvalidGraph(f"{self.cut.node}: {error}") from error
            finally:
                self.cut.node = before or self.cut.node

    # --- values ---

    def value(self, name: str) -> Tensor:
        """A value as primitives over stored ones."""
        found = self.expressions.get(name)
        if found is None:
            constant = self.known.get(name)
            if constant is None:
                assert self.parent is not None, name
                found = self.parent.stored(name)
            elif constant.size == 1 and not constant.dtype.is_complex:
                value = constant.numpy().reshape(()).astype(_plain(constant.dtype)).item()
                found = as_scalar(value, constant.dtype, constant.shape)
            elif constant.dtype in BYTES and constant.nbytes <= SMALL_NBYTES and (same := _repeated(constant)) is not None:
                found = broadcast(scalar(same, constant.dtype), constant.shape)  # zero points that are all 0, as they often are
            else:
                leaf = _CONSTANT + self.prefix + name
                shared = name in self.graph.constants and name not in self.inference.values
                self.work.leaves[leaf] = (constant, shared)
                if shared and self.parent is None:
                    self.work.weights.add(leaf)
                found = self.work.leaf(leaf, constant.type)
            self.expressions[name] = found
        return found

    def stored(self, name: str) -> Tensor:
        """A value as memory that can be read again and again, or a number."""
        made = self.value(name)
        if not _is_leaf(made):
            made = self.expressions[name] = self.cut.store(made)
        return made

    def number(self, name: str) -> np.ndarray | None:
        """A value that is known before the run."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.known:
                return scope.known[name].numpy()
            if name in scope.expressions:
                return scope._computed(name)
            scope = scope.parent
        return None

    def _computed(self, name: str) -> np.ndarray | None:
        """One number that a node computes from numbers in ways that inference does not follow (through floats)."""
        node = next((n for n in self.graph.nodes if name in n.outputs), None)
        roots = self.inference.traces.get(node.outputs[0]) if node is not None else None
        kind = self.inference.types.get(name)
        if node is None or roots is None or not isinstance(kind, TensorType) or kind.shape not in ((), (1,)):
            return None
        operands = [self.number(n) if n else None for n in node.inputs]
        if any(n and x is None for n, x in zip(node.inputs, operands, strict=True)):
            return None
        self.work.from_weights |= any(x is not None and x.nbytes > SMALL_NBYTES for x in operands)
        root = roots[node.outputs.index(name)]
        assert root is not None
        (value,) = interpret([root], [np.asarray(x) for x in operands])
        self.known[name] = Constant.of(name, value)
        return np.asarray(value)

    def give(self, name: str, value: Tensor) -> None:
        """Define a value; it is stored where several read it."""
        settled = self.cut.settle(self.counted(value))
        if self.uses.get(name, 0) > 1 and not _is_view(settled):
            settled = stored_as_bytes(self.cut, settled) or self.cut.store(settled, turned=True)
        self.expressions[name] = settled
        self.cut.owners.setdefault(id(settled), self.cut.node)

    def counted(self, value: Tensor) -> Tensor:
        """The same, if kernels can count its elements."""
        if math.prod(numbers_of(value.shape)) > _MOST_ELEMENTS:
            what = f"{self.cut.node or 'an input'} has a value {value.dtype.onnx_name}{list(value.shape)}"
            raise OutOfMemory(
                f"{self.work.gpu.device}: {what}; kernels count at most {_MOST_ELEMENTS:,} elements: use a smaller batch or a "
                "shorter input"
            )
        return value

    def inner(self, graph: Graph, given: Sequence[Tensor | np.ndarray], prefix: str) -> Scope:
        """The scope of a body on these values, not lowered yet. Arrays are known before the run."""
        body = rewritten(graph, True)[0].clone()
        body.opset_imports = graph.opset_imports or self.graph.opset_imports
        body.inputs, body.types = [], {}
        leaves: dict[str, Tensor] = {}
        for value, operand in zip(graph.inputs, given, strict=True):
            if isinstance(operand, np.ndarray):
                body.constants[value.name] = Constant.of(value.name, operand)
            else:
                body.inputs.append(Value(value.name, TensorType(operand.dtype, operand.shape)))
                leaves[value.name] = operand
        scope = Scope(self.work, infer(body, device_registry(), *self._visible()), self, f"{self.prefix}{prefix}/")
        scope.expressions.update(leaves)
        return scope

    def _visible(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Types and elements of the values that a body may capture."""
        types, values = self.parent._visible() if self.parent is not None else ({}, {})
        return {**types, **self.inference.types}, {**values, **self.inference.values}

    def hold(self, graph: Graph) -> None:
        """Store what a body captures, so that it is there whether and however often the body runs."""
        for name in sorted(graph.captured_names()):
            if self.number(name) is None:
                self.stored(name)

    # --- nodes ---

    def _node(self, node: Node) -> None:
        outputs = [n for n in node.outputs if n]
        for name in outputs:
            values = self.inference.values.get(name)
            if values is not None and not any(isinstance(v, Expr) for v in values.flat):
                kind = self.inference.types[name]
                assert isinstance(kind, TensorType) and kind.shape is not None
                self.known[name] = Constant.of(name, values.astype(kind.dtype.numpy).reshape(numbers_of(kind.shape)))
        if all(n in self.known for n in outputs):
            return
        from intarsia.providers.gpu.control import lowering  # which needs this module

        if (rule := lowering(node)) is not None:
            rule(self, node)
            return
        roots = self.inference.traces.get(node.outputs[0])
        if roots is None:
            why = self.inference.unknown.get(node.outputs[0], "its input types are not known")
            raise EPFail(f"{self.cut.node} cannot run on {self.work.gpu.device}: {why}")
        for name, root in zip(node.outputs, roots, strict=True):
            if name and root is not None and name not in self.known:
                self._result(name, root, node)

    def _result(self, name: str, root: Tensor, node: Node) -> None:
        often = _read_often(root)
        (expression,) = substitute([root], lambda t: self._operand(node.inputs[t.attrs[0]], t.attrs[0] in often))
        for t in walk([expression]):
            if any(isinstance(d, Expr) for d in t.shape):
                raise EPFail(f"{self.cut.node} cannot run on {self.work.gpu.device}: a size of {t!r} is known only at run time")
        self.give(name, expression)

    def _operand(self, name: str, often: bool) -> Tensor:
        """The value as an expression; stored where computing it once more costs more than reading it."""
        made = self.value(name)
        if often and not is_cheap(made):
            made = self.expressions[name] = self.cut.store(made)
        return made

    # --- outputs ---

    def store_outputs(self, names: list[str]) -> None:
        """Values that are nothing but stored already are written to the output's memory in the first place."""
        renamed: dict[str, str] = {}
        shapes = {name: numbers_of(self.value(name).shape) for name in names}
        for name in names:
            made = stripped(self.value(name))
            if made.prim == "input" and made.attrs[0].startswith("%") and made.attrs[0] not in self.cut.tables:
                renamed.setdefault(made.attrs[0], name)
            if renamed.get(made.attrs[0] if made.prim == "input" else "") != name:
                self._store_output(name)
        for stored, name in renamed.items():
            self.cut.rename(stored, name)
            self.cut.stored[name] = (self.cut.stored[name][0], shapes[name])
            for region in self.work.regions:
                region.renamed(stored, name)

    def _store_output(self, name: str) -> None:
        maker = next((n for n in self.graph.nodes if name in n.outputs), None)
        self.cut.node = described(maker) if maker is not None else f"output {name!r}"
        self.cut.store(self.cut.settle(self.value(name)), name)


def _repeated(constant: Constant) -> int | None:
    """The one number that all elements are."""
    values = constant.numpy()
    return int(values.flat[0]) if values.size and bool((values == values.flat[0]).all()) else None


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


def _is_leaf(t: Tensor) -> bool:
    """Memory or a number, perhaps of another shape."""
    while t.prim == "reshape":
        t = t.args[0]
    return t.prim in ("input", "scalar")
