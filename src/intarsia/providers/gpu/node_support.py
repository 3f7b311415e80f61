"""Which nodes of a graph a device runs, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.codegen.clike import Dialect, unsupported
from intarsia.codegen.clike.storage_types import stored_nbytes
from intarsia.device.gpu import DeviceLimits
from intarsia.ep.capability import Support
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import Expr, evaluate, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value, ValueType
from intarsia.ops.control import always_goes_on, trip_type
from intarsia.ops.framework.infer import Inference, infer, resolve_version, trace
from intarsia.ops.framework.registry import OpRecord
from intarsia.partition.shape_subgraphs import READS_ONLY_SHAPE
from intarsia.primitives import lang as k
from intarsia.providers.gpu.control import lowering
from intarsia.providers.gpu.decompositions import DOMAIN, device_registry, rewritten
from intarsia.providers.gpu.decompositions.rules import COUNT, replacement

_ON_DOUBLES = frozenset(
    "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare Slice Pad Reshape Expand Tile TopK "
    "Squeeze Unsqueeze CumSum CumProd ConstantOfShape Split".split()
)  # what needs arithmetic and square roots only

_SOME_SIZE = 2  # instead of sizes that are known before a run, to see whether any such will do


def numbers_behind(graph: Graph, name: str) -> frozenset[str] | None:
    """The graph's inputs that a value is computed from, where it is from small integers and shapes alone; else None."""
    producers = {out: node for node in graph.nodes for out in node.outputs if out}
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if not current or current in seen or current in graph.constants:
            continue
        seen.add(current)
        node = producers.get(current)
        kind = graph.type_of(current)
        if node is None:
            if (
                not isinstance(kind, TensorType)
                or not (kind.dtype.is_integer or kind.dtype is DType.BOOL)
                or len(kind.shape or ()) > 1
            ):
                return None
            found.add(current)
        elif node.op_type not in READS_ONLY_SHAPE:
            record = resolve_version(graph, node, device_registry())
            if record is None or record.host or node.domain == DOMAIN or node.has_subgraphs:
                return None
            waiting += node.inputs
    return frozenset(found)


class Survey:
    """The answers for one graph.

    Refusals have the codes "no-kernel", "host" (an operator without primitives), "type", "data" (a size depends on
    values that the device computes) and "size" (larger than what the device binds).

    Operators are looked at as `written.rewritten` writes them out. A number that the device computes can be read between
    two plans (`stages`), but not in a body.

    Args:
        outer: of the graph around a body.
        numbers: inputs of a body that are known before the run.

    Attributes:
        given: the graph of the question; `graph` is the one written out.
    """

    def __init__(
        self, graph: Graph, dialect: Dialect, limits: DeviceLimits, outer: Survey | None = None,
        numbers: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.given, self.dialect, self.limits, self.outer, self.numbers = graph, dialect, limits, outer, numbers
        self.graph, self._replaced = rewritten(graph, outer is not None)
        self._wrong: dict[str, str] = {}
        self._makers = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self._read: dict[str, set[str]] = {}  # by a node's first output, numbers of control flow that are read before it
        self._answers: dict[int, Support] = {}
        self._inference: Inference | None = None

    @property
    def inference(self) -> Inference:
        if self._inference is None:

            def note(node: Node, error: IntarsiaError) -> None:
                self._wrong[node.outputs[0]] = str(error)

            self._inference = infer(self.graph, device_registry(), *self._around(), strict=False, on_error=note)
        return self._inference

    def _around(self) -> tuple[dict[str, ValueType], dict[str, np.ndarray]]:
        """Types and known elements of the values that a body may capture."""
        if self.outer is None:
            return {}, {}
        types, values = self.outer._around()
        return {**types, **self.outer.inference.types}, {**values, **self.outer.inference.values}

    def answer(self, node: Node) -> Support:
        found = self._answers.get(id(node))
        if found is None:
            found = Support.yes()
            for part in self._replaced.get(id(node), [node]):
                found = self._answer(part)
                if not found:
                    break
            self._answers[id(node)] = found
        return found

    def reads(self, node: Node) -> set[str]:
        """Numbers that a node of `graph` needs and that only the run knows: they are read from the device before it."""
        record = resolve_version(self.graph, node, device_registry())
        found = set(self._read.get(node.outputs[0], ()))
        if record is not None and (node.domain or lowering(node) is None):
            names = {node.inputs[i] for i in record.value_indices if i < len(node.inputs) and node.inputs[i]}
            found |= {n for n in names if not self._is_number(n)}
        return found

    def _answer(self, node: Node) -> Support:
        record = resolve_version(self.graph, node, device_registry())
        if record is None:
            return Support.no(f"{node.qualified_op} version {node.version} has no definition", code="no-kernel")
        if lowering(node) is not None:
            refusal = self._types(node, record)
            refusal = self._lowered(node) if refusal is None else refusal
            return Support.yes() if refusal is None else refusal
        if record.host:
            return Support.no(f"it has no definition in primitives: {record.reason}", code="host")
        for check in (self._types, self._sizes, self._primitives):
            refusal = check(node, record)
            if refusal is not None:  # a refusal is false
                return refusal
        return Support.yes()

    def _types(self, node: Node, record: OpRecord) -> Support | None:
        for name in (*node.inputs, *node.outputs):
            kind = self.inference.types.get(name)
            if not name or self._waits(name):
                continue
            if not isinstance(kind, TensorType):
                return Support.no(f"{name!r} is {'no tensor' if kind is not None else 'of unknown type'}", code="type")
            if kind.shape is None:
                return Support.no(f"the rank of {name!r} is known only at run time", code="data")
            if why := self.dialect.missing(kind.dtype):
                return Support.no(why, code="type")
            if why := self._too_large(name, kind):
                return Support.no(why, code="size")
        return None

    def _too_large(self, name: str, kind: TensorType) -> str:
        constant = self.graph.constants.get(name)
        if constant is None:
            return ""
        nbytes, limits = stored_nbytes(kind.dtype, constant.size), self.dialect.limits
        if nbytes > self.limits.buffer_nbytes:
            return f"{name!r} has {nbytes:,} bytes; a buffer of this device has at most {self.limits.buffer_nbytes:,}"
        if self.dialect.windows(kind.dtype, constant.size) > limits.buffers - 5:
            return (
                f"{name!r} has {nbytes:,} bytes; a kernel of this device binds {limits.buffers} times {limits.binding_nbytes:,}"
            )
        return ""

    def _waits(self, name: str) -> bool:
        """Whether a value's type is known only with numbers that the graph's inputs give, and a node taken here makes it."""
        maker, kind = self._makers.get(name), self.inference.types.get(name)
        if maker is None or maker.outputs[0] in self.inference.traces or not isinstance(kind, TensorType | None):
            return False
        if maker.op_type == "If" and not maker.domain:  # branches of different ranks, one of which is chosen before a run
            return self._is_number(maker.inputs[0])
        record = resolve_version(self.graph, maker, device_registry())
        if record is None or record.host and lowering(maker) is None or maker.has_subgraphs:
            return False
        told = self._is_written(maker) or self._has_numbers(maker, record) or self._has_known_sizes(maker, record)
        return told or any(self._waits(n) for n in maker.inputs if n)

    def _is_written(self, node: Node) -> bool:
        """Whether it is written out as soon as the sizes of a run are known."""
        return node.domain == DOMAIN and node.outputs[0] not in self._wrong

    def _has_numbers(self, node: Node, record: OpRecord) -> bool:
        """Whether it reads numbers, all of which are there before a run."""
        names = [node.inputs[i] for i in record.value_indices if i < len(node.inputs) and node.inputs[i]]
        return bool(names) and all(self._is_number(n) or self._is_readable(n) for n in names)

    def _has_known_sizes(self, node: Node, record: OpRecord) -> bool:
        """Whether its primitives are known as soon as the sizes of its operands are, which follow from the inputs' and from
        numbers that are there before a run: a Squeeze without axes. They are tried with some other sizes in their place."""
        kinds = [self.inference.types.get(n) if n else None for n in node.inputs]
        if self.outer is not None or node.outputs[0] in self._wrong or record.host or record.fallback is not None:
            return False
        told = (v.type for v in self.graph.inputs if isinstance(v.type, TensorType))
        given = {s for kind in told for d in kind.shape or () for s in symbols_of(d)}
        symbols: set[str] = set()
        operands: list[k.Tensor | None] = []
        for i, (name, kind) in enumerate(zip(node.inputs, kinds, strict=True)):
            if name and (not isinstance(kind, TensorType) or kind.shape is None):
                return False
            shape = kind.shape or () if isinstance(kind, TensorType) else ()
            symbols |= {s for d in shape for s in symbols_of(d)}
            env = dict.fromkeys(symbols, _SOME_SIZE)
            concrete = [max(evaluate(d, env), 1) for d in shape]
            operands.append(k.input(i, kind.dtype, concrete) if isinstance(kind, TensorType) else None)
        if not symbols or not all(s in given or s.endswith("]") and self._is_number(s.rpartition("[")[0]) for s in symbols):
            return False
        try:
            trace(record, node, operands, {i: self.inference.values.get(n) for i, n in enumerate(node.inputs) if n})
        except IntarsiaError:
            return False
        return True

    def _is_readable(self, name: str) -> bool:
        """Whether a number can be read from the device before a node that needs it, outside of bodies."""
        if self.outer is not None:
            return False
        kind = self.inference.types.get(name)
        if kind is None or isinstance(kind, TensorType) and kind.shape is None:
            return self._waits(name)
        return isinstance(kind, TensorType) and len(kind.shape or ()) <= 1 and not self.dialect.missing(kind.dtype)

    def _is_number(self, name: str) -> bool:
        kind = self.inference.types.get(name)
        narrow = isinstance(kind, TensorType) and kind.dtype in (DType.FLOAT16, DType.BFLOAT16)
        if name not in self.graph.constants and narrow and (name in self._makers or self.outer is not None):
            return False
        values = self.inference.values.get(name)
        if values is not None and not any(isinstance(v, Expr) for v in values.flat):
            return True
        if self.outer is not None:
            return self._is_inner_number(name, self.outer)
        return name not in self._makers or numbers_behind(self.graph, name) is not None

    def _is_followed(self, name: str) -> bool:
        """Whether what is computed from a number is one: integers, or a single element."""
        if name in self._makers or name in self.graph.constants or name not in self.graph.input_names():
            return True
        kind = self.inference.types.get(name)
        few = isinstance(kind, TensorType) and kind.shape in ((), (1,))
        return few or numbers_behind(self.graph, name) is not None

    def _is_inner_number(self, name: str, outer: Survey) -> bool:
        """In a body: whether it follows from numbers of the graph around it, or from the number of the iteration."""
        maker = self._makers.get(name)
        if maker is None:
            return (
                name in self.numbers
                if name in self.graph.input_names()
                else name in self.graph.constants or outer._is_number(name) and outer._is_followed(name)
            )
        record = resolve_version(self.graph, maker, device_registry())
        if record is None or record.host or maker.domain == DOMAIN or maker.has_subgraphs:
            return False
        return all(self._is_number(n) for n in maker.inputs if n)

    # --- control flow and recurrent layers ---

    def _lowered(self, node: Node) -> Support | None:
        if node.domain:
            return self._sizes(node, resolve_version(self.graph, node, device_registry()))
        if node.op_type == "If":
            return self._branches(node)
        if node.op_type == "Loop":
            return self._loop(node)
        if node.op_type == "Scan":
            return self._scan(node)
        kind = self.inference.types.get(node.inputs[0])
        dtype = kind.dtype if isinstance(kind, TensorType) else DType.FLOAT
        if not dtype.is_floating or (why := unsupported([k.tanh(k.input(0, dtype, ()))], self.dialect)):
            return Support.no(why or f"{dtype.onnx_name} is no floating-point type", code="type")
        return None

    def _inner(self, body: Graph, types: Sequence[ValueType | None], numbers: frozenset[str] = frozenset()) -> Survey:
        graph = body.clone()
        graph.opset_imports = body.opset_imports or self.graph.opset_imports
        graph.functions = body.functions or self.graph.functions
        graph.inputs = [Value(v.name, t if t is not None else v.type) for v, t in zip(body.inputs, types, strict=True)]
        return Survey(graph, self.dialect, self.limits, self, numbers)

    def refused(self) -> Support | None:
        """The first refusal among the nodes of a body, whose outputs are tensors of known rank."""
        for node in self.graph.nodes:
            answer = self.answer(node)
            if not answer:
                name = node.name or next((n for n in node.outputs if n), node.op_type)
                return Support.no(f"in its body, {name!r} ({node.qualified_op}): {answer.reason}", code=answer.code)
        return None

    def results(self) -> list[ValueType | None]:
        types = {**self._around()[0], **self.inference.types}
        return [types.get(v.name) for v in self.graph.outputs]

    def _branches(self, node: Node) -> Support | None:
        surveys = [self._inner(node.attributes[name], []) for name in ("then_branch", "else_branch")]
        for survey in surveys:
            refusal = survey.refused()
            if refusal is not None:
                return refusal
        if self._is_number(node.inputs[0]):
            return None
        for a, b in zip(*(s.results() for s in surveys), strict=True):
            if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape != b.shape:
                if self._cut_before(node, node.inputs[0]):
                    return None
                return Support.no("its branches give different sizes, and its condition is known only at run time", code="data")
        return None

    def _loop(self, node: Node) -> Support | None:
        body: Graph = node.attributes["body"]
        names, states = [*node.inputs, "", ""], node.inputs[2:]
        kinds = [self.inference.types.get(n) for n in states]
        head: list[ValueType | None] = [trip_type(body), TensorType(DType.BOOL, ())]
        counted = bool(names[0]) and (self._is_number(names[0]) or self._is_readable(names[0]))
        steady = self._inner(body, [*head, *kinds])
        refusal = steady.refused()
        if refusal is None and [_shape(t) for t in steady.results()[1 : 1 + len(states)]] == [_shape(t) for t in kinds]:
            stacks = any(node.outputs[len(states) :])
            goes_on = self._goes_on(names[1], body)
            if not stacks or counted and goes_on:
                if stacks:
                    self._cut_at(node, names[:2])
                return None
            return Support.no("how many rows it stacks is known only at run time", code="data")
        if not counted or not self._goes_on(names[1], body):
            why = "what it carries changes in size, and how often it runs is known only at run time"
            return Support.no(why, code="data") if refusal is None else refusal
        self._cut_at(node, names[:2])
        kinds = [self.inference.types.get(o) if o else t for o, t in zip(node.outputs, kinds, strict=False)]
        return self._inner(body, [*head, *kinds], frozenset((body.inputs[0].name,))).refused()

    def _goes_on(self, condition: str, body: Graph) -> bool:
        """Whether the trip count alone ends a loop, as far as is known before a run."""
        known = not condition or self._is_number(condition) or self._is_readable(condition)
        return not condition or known and always_goes_on(np.array([True]), body)

    def _cut_at(self, node: Node, names: Sequence[str]) -> None:
        for name in names:
            if name and not self._is_number(name):
                self._cut_before(node, name)

    def _cut_before(self, node: Node, name: str) -> bool:
        """Note that a number is read before a node; False where it cannot be."""
        if not self._is_readable(name):
            return False
        self._read.setdefault(node.outputs[0], set()).add(name)
        return True

    def _scan(self, node: Node) -> Support | None:
        a, body = node.attributes, node.attributes["body"]
        inputs = node.inputs[1:] if node.version == 8 else node.inputs
        if node.version == 8 and node.inputs[0]:
            return Support.no("sequences of different lengths end at steps of their own", code="data")
        kinds = [self.inference.types.get(n) for n in inputs]
        first = len(inputs) - int(a["num_scan_inputs"])
        dropped = [[0]] * len(kinds) if node.version == 8 else [[] for _ in kinds[:first]]
        axes = list(a.get("scan_input_axes") or [0] * int(a["num_scan_inputs"]))
        if node.version == 8:
            dropped = [[0]] * first + [[0, 1]] * (len(kinds) - first)
        else:
            dropped += [[axis] for axis in axes]
        rows = [_without(t, axes) for t, axes in zip(kinds, dropped, strict=True)]
        inner = self._inner(body, rows)
        refusal = inner.refused()
        if refusal is not None:
            return refusal
        if [_shape(t) for t in inner.results()[:first]] != [_shape(t) for t in rows[:first]]:
            return Support.no("what it carries changes in size", code="data")
        return None

    def _sizes(self, node: Node, record: OpRecord | None) -> Support | None:
        """Sizes and other integers that the definition reads must be known before a run."""
        for i in record.value_indices if record is not None else ():
            name = node.inputs[i] if i < len(node.inputs) else ""
            if name and not self._is_number(name) and not self._is_readable(name):
                why = f"its input {name!r} has to be known before the run"
                return Support.no("the size of its output depends on the data" if name.endswith(COUNT) else why, code="data")
        return None

    def _primitives(self, node: Node, record: OpRecord) -> Support | None:
        first = node.outputs[0]
        why = self.inference.unknown.get(first, "") or self._wrong.get(first, "")
        if why:
            later = (
                self._has_numbers(node, record)
                or self._waits(first)
                or self._is_written(node)
                or self._has_known_sizes(node, record)
            ) and record.fallback is None
            return self._of_types(node) if later else Support.no(why, code="data")
        roots = [r for r in self.inference.traces.get(first, ()) if r is not None]
        why = unsupported(roots, self.dialect)
        return Support.no(why, code="type") if why else None

    def _of_types(self, node: Node) -> Support | None:
        """What is told by types alone, of a node whose primitives are known only with its numbers."""
        if node.op_type in _ON_DOUBLES or not unsupported([k.exp(k.input(0, DType.DOUBLE, ()))], self.dialect):
            return None
        if any(self._may_be_double(n) for n in (*node.inputs, *node.outputs) if n):
            return Support.no(
                f"{node.op_type} of double may need a function that has no form in {self.dialect.name}", code="type"
            )
        return None

    def _may_be_double(self, name: str) -> bool:
        """Whether a value is of doubles; one of unknown type may be what those are that it is made from."""
        kind = self.inference.types.get(name)
        if kind is not None:
            return isinstance(kind, TensorType) and kind.dtype is DType.DOUBLE
        maker = self._makers.get(name)
        return maker is not None and any(self._may_be_double(n) for n in maker.inputs if n)


def _shape(kind: ValueType | None) -> object:
    return kind.shape if isinstance(kind, TensorType) else kind


def _without(kind: ValueType | None, axes: Sequence[int]) -> ValueType | None:
    """A type without some of its axes."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    gone = {a % len(kind.shape) for a in axes}
    return TensorType(kind.dtype, tuple(d for i, d in enumerate(kind.shape) if i not in gone))


def read_as_numbers(graph: Graph) -> frozenset[str]:
    """Inputs whose elements some definition needs."""
    found: set[str] = set()
    for name in _needed(graph):
        found |= {name} & set(graph.input_names()) or numbers_behind(graph, name) or frozenset()
    return frozenset(found)


def value_indices(node: Node, graph: Graph) -> frozenset[int]:
    """Which inputs of a node are numbers, where they are known before a run."""
    made = replacement(node)
    if made is not None:
        reads = [(n, i in value_indices(m, graph)) for m in made for i, n in enumerate(m.inputs) if n]
        return frozenset(i for i, n in enumerate(node.inputs) if n and all(number for name, number in reads if name == n))
    record = resolve_version(graph, node, device_registry())
    if record is None:
        return frozenset()
    return record.value_indices | ({0} if node.op_type == "Loop" and not node.domain else frozenset())


def _needed(graph: Graph) -> set[str]:
    """Values that nodes need as numbers, bodies included: those that are not made in the body."""
    found: set[str] = set()
    for node in graph.nodes:
        found |= {node.inputs[i] for i in value_indices(node, graph) if i < len(node.inputs) and node.inputs[i]}
        for body in node.subgraphs:
            makers = body.producers()
            own, waiting = set(body.input_names()) | set(body.constants), list(_needed(body))
            seen: set[str] = set()
            while waiting:
                name = waiting.pop()
                if name in seen or name in own or not name:
                    continue
                seen.add(name)
                if name in makers:
                    waiting += makers[name].inputs
                else:
                    found.add(name)
    return found
