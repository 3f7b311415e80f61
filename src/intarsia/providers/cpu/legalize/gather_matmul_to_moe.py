"""Products of rows, each with a matrix of its own that is gathered: as parts of a mixture of experts
(`ops.internal.moe_steps`).

So exporters write mixtures of experts: the matrices of the experts that TopK chose are gathered, one for each row, and all are
multiplied in one batch. Here rows are sorted by matrix instead, the matrices are packed once and read where they lie, and each
meets all of its rows at once.

Kernels do not look whether an index is in range; so this is for indices that TopK or ArgMax give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.moe_steps import DOMAIN as PARTS
from intarsia.providers.cpu.legalize.graph_rewriter import NodeParts
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

OPERATORS = frozenset(("Gather",))
_MOST_MATRICES = 4096  # every run looks at all of them
_MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split", "Tile", "Expand")


def convert_gather_matmul_to_moe(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph with such products in parts; None if it has none."""
    found = {node.outputs[0]: made for node in inference.graph.nodes if (made := _product_of(node, inference)) is not None}
    if not found:
        return None
    out = inference.graph.clone()
    nodes: list[Node] = []
    sorted_by: dict[str, tuple[str, str, str]] = {}  # by name of the indices
    for node in out.nodes:
        made = found.get(node.outputs[0]) if node.outputs else None
        if made is None:
            nodes.append(node)
            continue
        parts = _Parts(out, node)
        if made.index not in sorted_by:
            sorted_by[made.index] = parts.order(made)
        parts.product(made, *sorted_by[made.index])
        nodes += parts.made
    out.nodes = nodes
    out.types = {}
    return out


@dataclass(frozen=True)
class _Product:
    """`rows` times, for each, one of the matrices [count, columns, depth], or [count, depth, columns] where `turned`."""

    index: str
    matrices: str
    rows: str
    count: int
    depth: int
    columns: int
    turned: bool
    shape: tuple[int, ...]  # of the product, -1 for what only a run knows


def _product_of(node: Node, inference: Inference) -> _Product | None:
    if node.op_type != "MatMul" or node.domain:
        return None
    for turned in (False, True):
        gathered, rows = reversed(node.inputs) if turned else node.inputs
        found = _with_matrices(node, gathered, rows, turned, inference)
        if found is not None:
            return found
    return None


def _with_matrices(node: Node, gathered: str, rows: str, turned: bool, inference: Inference) -> _Product | None:
    graph = inference.graph
    gather = inference.producer(gathered)
    if gather is None or gather.op_type != "Gather" or gather.domain or int(gather.attributes.get("axis", 0)) != 0:
        return None
    matrices = graph.constants.get(gather.inputs[0])
    if matrices is None or matrices.dtype is not DType.FLOAT or len(matrices.shape) != 3 or 0 in matrices.shape:
        return None
    index, given, out = (inference.types.get(name) for name in (gather.inputs[1], rows, node.outputs[0]))
    if not (isinstance(index, TensorType) and isinstance(given, TensorType) and isinstance(out, TensorType)):
        return None
    if index.shape is None or given.shape is None or out.shape is None or index.dtype is not DType.INT64:
        return None
    depth, columns = matrices.shape[1:] if turned else matrices.shape[:0:-1]
    vector = (1, depth) if turned else (depth, 1)
    known = tuple(d if isinstance(d, int) else -1 for d in out.shape)
    if given.shape != (*index.shape, *vector) or known.count(-1) > 1:
        return None
    alone = len(graph.consumers()[gathered]) == 1 and gathered not in graph.output_names()
    if not alone or matrices.shape[0] > _MOST_MATRICES or not _in_range(gather.inputs[1], matrices.shape[0], inference):
        return None
    return _Product(gather.inputs[1], gather.inputs[0], rows, matrices.shape[0], depth, columns, turned, known)


def _in_range(name: str, count: int, inference: Inference) -> bool:
    """Whether all elements are 0 to `count` - 1: indices along an axis that is not longer."""
    node = inference.producer(name)
    while node is not None and node.op_type in _MOVES and not node.domain:
        name = node.inputs[0]
        node = inference.producer(name)
    if (
        node is None
        or node.domain
        or node.op_type not in ("TopK", "ArgMax")
        or node.op_type == "TopK"
        and name != node.outputs[1]
    ):
        return False
    source = inference.types.get(node.inputs[0])
    if not isinstance(source, TensorType) or not source.shape:
        return False
    size = source.shape[int(node.attributes.get("axis", -1 if node.op_type == "TopK" else 0))]
    return isinstance(size, int) and size <= count


class _Parts(NodeParts):
    """The nodes that take a product's place."""

    def order(self, made: _Product) -> tuple[str, str, str]:
        """Where each matrix' rows start, which row is where, and each row's place."""
        (chosen,) = self._add("Reshape", [made.index, self._constant("one", [-1, 1])], ["chosen"])
        starts, rows, places = self._add("ExpertOrder", [chosen], ["starts", "rows", "places"], PARTS, experts=made.count)
        return starts, rows, self._add("Reshape", [places, self._constant("line", [-1])], ["row_of"])[0]

    def product(self, made: _Product, starts: str, order: str, places: str) -> None:
        (flat,) = self._add("Reshape", [made.rows, self._constant("depth", [-1, made.depth])], ["flat"])
        (rows,) = self._add("ExpertRows", [flat, order], ["sorted"], PARTS)
        matrices = self._turned(made.matrices) if made.turned else made.matrices
        (products,) = self._add("ExpertProducts", [rows, starts, matrices], ["products"], PARTS, columns=made.columns)
        (back,) = self._add("ExpertRows", [products, places], ["back"], PARTS)
        self._add("Reshape", [back, self._constant("shape", list(made.shape))], None)

    def _turned(self, name: str) -> str:
        given, turned = self.graph.constants[name], f"{name}%turned"
        count, depth, columns = given.shape

        def data() -> np.ndarray:
            return np.ascontiguousarray(given.numpy().transpose(0, 2, 1))

        self.graph.constants.setdefault(turned, Constant(turned, given.dtype, (count, columns, depth), data))
        return turned

    def _constant(self, name: str, numbers: list[int]) -> str:
        return self.constant_part(name, np.array(numbers, np.int64))

    def _add(self, op_type: str, inputs: list[str], outputs: list[str] | None, domain: str = "", **given: Any) -> list[str]:
        """A node; `outputs` None is the product's own."""
        names = self.node.outputs[:1] if outputs is None else [self.part(n) for n in outputs]
        return self.append(op_type, inputs, names, given, domain, 1 if domain else 14)
