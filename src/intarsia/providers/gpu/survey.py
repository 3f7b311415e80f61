"""Which nodes of a graph a device runs, and why not the others."""

from __future__ import annotations

from intarsia.codegen.clike import Dialect, unsupported
from intarsia.device.gpu import DeviceLimits
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import Expr
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops import registry
from intarsia.ops.infer import Inference, infer, resolve_version
from intarsia.ops.registry import OpRecord
from intarsia.partition.capability import Support
from intarsia.partition.host_shapes import READS_ONLY_SHAPE

_ON_DOUBLES = frozenset(
    "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare Slice Pad Reshape Expand Tile TopK "
    "Squeeze Unsqueeze CumSum CumProd ConstantOfShape Split".split()
)  # what needs arithmetic and square roots only


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
            record = resolve_version(graph, node, registry())
            if record is None or record.host or any(True for _ in node.subgraphs):
                return None
            waiting += node.inputs
    return frozenset(found)


class Survey:
    """The answers for one graph.

    Refusals have the codes "no-kernel", "host" (an operator without primitives), "control", "type", "data" (a size depends on
    values that the device computes) and "size" (larger than what the device binds).
    """

    def __init__(self, graph: Graph, dialect: Dialect, limits: DeviceLimits) -> None:
        self.graph, self.dialect, self.limits = graph, dialect, limits
        self._wrong: dict[int, str] = {}
        self._makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self._answers: dict[int, Support] = {}
        self._inference: Inference | None = None

    @property
    def inference(self) -> Inference:
        if self._inference is None:

            def note(node: Node, error: IntarsiaError) -> None:
                self._wrong[id(node)] = str(error)

            self._inference = infer(self.graph, registry(), strict=False, on_error=note)
        return self._inference

    def answer(self, node: Node) -> Support:
        found = self._answers.get(id(node))
        if found is None:
            found = self._answers[id(node)] = self._answer(node)
        return found

    def _answer(self, node: Node) -> Support:
        record = resolve_version(self.graph, node, registry())
        if any(True for _ in node.subgraphs):
            return Support.no("control flow runs on the host", code="control")
        if record is None:
            return Support.no(f"{node.qualified_op} version {node.version} has no definition", code="no-kernel")
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
            constant = self.graph.constants.get(name)
            nbytes = constant.size * kind.dtype.numpy.itemsize if constant is not None else 0
            if nbytes > self.limits.binding_nbytes:
                why = f"{name!r} has {nbytes:,} bytes; this device binds {self.limits.binding_nbytes:,}"
                return Support.no(why, code="size")
        return None

    def _waits(self, name: str) -> bool:
        """Whether a value's type is known only with numbers that the graph's inputs give, and a node taken here makes it."""
        maker = self._makers.get(name)
        if maker is None or maker.outputs[0] in self.inference.traces:
            return False
        record = resolve_version(self.graph, maker, registry())
        if record is None or record.host or any(True for _ in maker.subgraphs):
            return False
        return self._has_numbers(maker, record) or any(self._waits(n) for n in maker.inputs if n)

    def _has_numbers(self, node: Node, record: OpRecord) -> bool:
        """Whether it reads numbers, all of which are there before a run."""
        names = [node.inputs[i] for i in record.value_indices if i < len(node.inputs) and node.inputs[i]]
        return bool(names) and all(self._is_number(n) for n in names)

    def _is_number(self, name: str) -> bool:
        kind = self.inference.types.get(name)
        if name not in self.graph.constants and isinstance(kind, TensorType) and kind.dtype in (DType.FLOAT16, DType.BFLOAT16):
            return False
        if name not in self._makers:
            return True
        values = self.inference.values.get(name)
        if values is not None and not any(isinstance(v, Expr) for v in values.flat):
            return True
        return numbers_behind(self.graph, name) is not None

    def _sizes(self, node: Node, record: OpRecord) -> Support | None:
        """Sizes and other integers that the definition reads must be known before a run."""
        for i in record.value_indices:
            name = node.inputs[i] if i < len(node.inputs) else ""
            if name and not self._is_number(name):
                return Support.no(f"its input {name!r} has to be known before the run", code="data")
        return None

    def _primitives(self, node: Node, record: OpRecord) -> Support | None:
        first = node.outputs[0]
        why = self.inference.unknown.get(first, "") or self._wrong.get(id(node), "")
        if why:
            later = (self._has_numbers(node, record) or self._waits(first)) and record.fallback is None
            return self._of_types(node) if later else Support.no(why, code="data")
        roots = [r for r in self.inference.traces.get(first, ()) if r is not None]
        why = unsupported(roots, self.dialect)
        return Support.no(why, code="type") if why else None

    def _of_types(self, node: Node) -> Support | None:
        """What is told by types alone, of a node whose primitives are known only with its numbers."""
        types = [self.inference.types.get(n) for n in (*node.inputs, *node.outputs) if n]
        if any(isinstance(t, TensorType) and t.dtype is DType.DOUBLE for t in types) and node.op_type not in _ON_DOUBLES:
            return Support.no(
                f"{node.op_type} of double may need a function that has no form in {self.dialect.name}", code="type"
            )
        return None
