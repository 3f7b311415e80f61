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

_ONLY_AT_RUN_TIME = "known only at run time"


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
        self._made = {name for node in graph.nodes for name in node.outputs if name}
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
            if not name:
                continue
            if not isinstance(kind, TensorType):
                return Support.no(f"{name!r} is {'no tensor' if kind is not None else 'of unknown type'}", code="type")
            if why := self.dialect.missing(kind.dtype):
                return Support.no(why, code="type")
            constant = self.graph.constants.get(name)
            if constant is not None and constant.size * kind.dtype.numpy.itemsize > self.limits.binding_nbytes:
                return Support.no(
                    f"{name!r} has {constant.size * kind.dtype.numpy.itemsize:,} bytes; this device binds "
                    f"{self.limits.binding_nbytes:,}", code="size",
                )  # fmt: skip
        return None

    def _sizes(self, node: Node, record: OpRecord) -> Support | None:
        """Sizes and other integers that the definition reads must be known before a run."""
        for i in record.value_indices:
            name = node.inputs[i] if i < len(node.inputs) else ""
            if name in self._made and not self._is_known(name):
                return Support.no(
                    f"its input {name!r} is needed as numbers before the run, and the run computes it", code="data"
                )
        for name in node.inputs:
            kind = self.inference.types.get(name)
            shape = kind.shape if isinstance(kind, TensorType) else None
            if name and shape is None:
                return Support.no(f"the rank of {name!r} is {_ONLY_AT_RUN_TIME}", code="data")
        return None

    def _depends_on_numbers(self, node: Node, record: OpRecord) -> bool:
        """Whether it may turn out to need the host, or a function of doubles, when its numbers are known."""
        types = [self.inference.types.get(n) for n in node.outputs if n]
        doubles = any(isinstance(t, TensorType) and t.dtype is DType.DOUBLE for t in types)
        return record.fallback is not None or doubles

    def _is_known(self, name: str) -> bool:
        values = self.inference.values.get(name)
        if values is not None and not any(isinstance(v, Expr) for v in values.flat):
            return True
        return numbers_behind(self.graph, name) is not None

    def _primitives(self, node: Node, record: OpRecord) -> Support | None:
        first = node.outputs[0]
        why = self.inference.unknown.get(first, "") or self._wrong.get(id(node), "")
        if why:  # numbers from the graph's inputs are there before the run
            later = _ONLY_AT_RUN_TIME in why and "its input" in why
            return None if later and not self._depends_on_numbers(node, record) else Support.no(why, code="data")
        roots = [r for r in self.inference.traces.get(first, ()) if r is not None]
        why = unsupported(roots, self.dialect)
        return Support.no(why, code="type") if why else None
