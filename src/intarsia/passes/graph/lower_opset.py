"""Fused operators written out in the operators of older opsets, for files of these opsets and for providers that ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass

_HALF_TYPES = (DType.FLOAT16, DType.BFLOAT16)
_AXES_AS_INPUT = {"Unsqueeze": 13, "Squeeze": 13, "ReduceMean": 18}


@dataclass
class Pieces:
    """Nodes and constants that take the place of one node, for one opset."""

    graph: Graph
    node: Node
    opset: int
    taken: set[str]
    nodes: list[Node] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def fresh(self, hint: str) -> str:
        stem = f"{self.node.outputs[0]}.{hint}"
        name, i = stem, 0
        while name in self.taken:
            i += 1
            name = f"{stem}_{i}"
        self.taken.add(name)
        return name

    def op(self, op_type: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or self.fresh(op_type.lower())
        self.nodes.append(Node(op_type, list(inputs), [out], attributes, name=f"{op_type}/{out}", origin=self.node.origin))
        return out

    def over_axes(self, op_type: str, x: str, axes: Sequence[int], **attributes: Any) -> str:
        if self.opset >= _AXES_AS_INPUT[op_type]:
            return self.op(op_type, x, self.ints(*axes), **attributes)
        return self.op(op_type, x, axes=list(axes), **attributes)

    def constant(self, array: np.ndarray, hint: str = "constant") -> str:
        name = self.fresh(hint)
        self.constants.append(Constant.of(name, array))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64), "ints")

    def scalar(self, value: float, dtype: DType) -> str:
        return self.constant(np.array(value, dtype.numpy), "scalar")

    def type(self, index: int) -> TensorType:
        found = self.graph.type_of(self.node.inputs[index])
        assert isinstance(found, TensorType), self.node.inputs[index]
        return found

    def known(self, index: int, axis: int) -> int | None:
        shape = self.type(index).shape
        d = None if shape is None else shape[axis]
        return d if isinstance(d, int) else None

    def finish(self, value: str) -> None:
        """Give the last node's result the name of the replaced node's output."""
        last = next(n for n in self.nodes if value in n.outputs)
        last.outputs = [self.node.outputs[0] if o == value else o for o in last.outputs]
        for node in self.nodes:
            node.inputs = [self.node.outputs[0] if n == value else n for n in node.inputs]


def _gelu(p: Pieces) -> None:
    """x / 2 (1 + erf(x / sqrt 2)), or with tanh."""
    x, dtype = p.node.inputs[0], p.type(0).dtype
    if p.node.attributes.get("approximate", "none") == "tanh":
        cube = p.op("Mul", p.op("Mul", x, x), x)
        inner = p.op(
            "Mul", p.op("Add", x, p.op("Mul", cube, p.scalar(0.044715, dtype))), p.scalar(math.sqrt(2 / math.pi), dtype)
        )
        gate = p.op("Tanh", inner)
    else:
        gate = p.op("Erf", p.op("Mul", x, p.scalar(math.sqrt(0.5), dtype)))
    p.finish(p.op("Mul", p.op("Mul", x, p.scalar(0.5, dtype)), p.op("Add", gate, p.scalar(1.0, dtype))))


def _swish(p: Pieces) -> None:
    x, alpha = p.node.inputs[0], float(p.node.attributes.get("alpha", 1.0))
    scaled = x if alpha == 1.0 else p.op("Mul", x, p.scalar(alpha, p.type(0).dtype))
    p.finish(p.op("Mul", x, p.op("Sigmoid", scaled)))


def _hard_swish(p: Pieces) -> None:
    p.finish(p.op("Mul", p.node.inputs[0], p.op("HardSigmoid", p.node.inputs[0], alpha=1 / 6, beta=0.5)))


def _mish(p: Pieces) -> None:
    p.finish(p.op("Mul", p.node.inputs[0], p.op("Tanh", p.op("Softplus", p.node.inputs[0]))))


def _normalization(p: Pieces) -> None:
    """LayerNormalization and RMSNormalization; in float32 for half types (stash_type 1)."""
    x, dtype, rank = p.node.inputs[0], p.type(0).dtype, p.type(0).rank
    assert rank is not None
    axis = int(p.node.attributes.get("axis", -1))
    axes = list(range(axis if axis < 0 else axis - rank, 0))
    wide = dtype in _HALF_TYPES
    inner = DType.FLOAT if wide else dtype
    value = p.op("Cast", x, to=int(DType.FLOAT)) if wide else x
    if p.node.op_type == "LayerNormalization":
        value = p.op("Sub", value, p.over_axes("ReduceMean", value, axes, keepdims=1))
    variance = p.over_axes("ReduceMean", p.op("Mul", value, value), axes, keepdims=1)
    epsilon = p.scalar(float(p.node.attributes.get("epsilon", 1e-5)), inner)
    value = p.op("Div", value, p.op("Sqrt", p.op("Add", variance, epsilon)))
    value = p.op("Cast", value, to=int(dtype)) if wide else value
    value = p.op("Mul", value, p.node.inputs[1])
    if bias := "".join(p.node.inputs[2:3]):
        value = p.op("Add", value, bias)
    p.finish(value)


def _group_normalization(p: Pieces) -> None:
    x, dtype, shape = p.node.inputs[0], p.type(0).dtype, p.type(0).shape
    assert shape is not None
    groups = int(p.node.attributes["num_groups"])
    parameters = [p.constant(np.full(groups, v, dtype.numpy), "parameter") for v in (1, 0)]
    rows = p.op("Reshape", x, p.ints(0, groups, -1))
    normal = p.op("InstanceNormalization", rows, *parameters, epsilon=float(p.node.attributes.get("epsilon", 1e-5)))
    value = p.op("Reshape", normal, p.op("Shape", x))
    wide = p.ints(-1, *[1] * (len(shape) - 2))
    value = p.op("Mul", value, p.op("Reshape", p.node.inputs[1], wide))
    p.finish(p.op("Add", value, p.op("Reshape", p.node.inputs[2], wide)))


def _softmax(p: Pieces) -> None:
    """Before version 13 all axes from `axis` on are normalised together: the same for the last axis."""
    p.finish(p.op("Softmax", p.node.inputs[0], axis=(p.type(0).rank or 1) - 1))


def _rotary(p: Pieces) -> None:
    """[x1 cos - x2 sin, x2 cos + x1 sin] for x = [x1, x2] of [B, H, S, D]; cos and sin are [B, S, D/2]."""
    x, size = p.node.inputs[0], p.known(0, -1)
    assert size is not None
    parts = [p.op("Slice", x, p.ints(a), p.ints(b), p.ints(3)) for a, b in ((0, size // 2), (size // 2, size))]
    cos, sin = (p.over_axes("Unsqueeze", n, [1]) for n in p.node.inputs[1:3])
    real = p.op("Sub", p.op("Mul", parts[0], cos), p.op("Mul", parts[1], sin))
    imaginary = p.op("Add", p.op("Mul", parts[1], cos), p.op("Mul", parts[0], sin))
    p.finish(p.op("Concat", real, imaginary, axis=3))


def _attention(p: Pieces) -> None:
    """softmax(scale q k' + bias) v, with heads split and joined around it for operands of rank 3."""
    node, dtype = p.node, p.type(0).dtype
    attributes = node.attributes
    q, k, v = node.inputs[:3]
    flat = p.type(0).rank == 3
    heads = int(attributes["q_num_heads"]) if flat else p.known(0, 1) or 1
    groups = int(attributes["kv_num_heads"]) if flat else p.known(1, 1) or 1
    if flat:
        q, k, v = (
            p.op("Transpose", p.op("Reshape", x, p.ints(0, 0, n, -1)), perm=[0, 2, 1, 3])
            for x, n in ((q, heads), (k, groups), (v, groups))
        )
    width = p.known(0, -1)
    size = width // heads if flat and width is not None else width
    scale = float(attributes.get("scale") or 1 / math.sqrt(size or 1))
    if groups != heads:
        k, v = (_repeat_heads(p, x, groups, heads // groups) for x in (k, v))
    scores = p.op("MatMul", p.op("Mul", q, p.scalar(scale, dtype)), p.op("Transpose", k, perm=[0, 1, 3, 2]))
    guarded = False
    if len(node.inputs) > 3 and node.inputs[3]:
        mask = node.inputs[3]
        if p.type(3).dtype is DType.BOOL:
            mask, guarded = p.op("Where", mask, p.scalar(0.0, dtype), p.scalar(-math.inf, dtype)), True
        scores = p.op("Add", scores, mask)
    if attributes.get("is_causal", 0):
        scores = _hide_later_keys(p, scores, dtype)
    rank_axis = 3 if p.opset < 13 else -1
    wide = attributes.get("softmax_precision") == int(DType.FLOAT) and dtype is not DType.FLOAT
    scores = p.op("Cast", scores, to=int(DType.FLOAT)) if wide else scores
    weights = p.op("Softmax", scores, axis=rank_axis)
    if guarded:
        weights = p.op("Where", p.op("IsNaN", weights), p.scalar(0.0, DType.FLOAT if wide else dtype), weights)
    weights = p.op("Cast", weights, to=int(dtype)) if wide else weights
    value = p.op("MatMul", weights, v)
    if flat:
        value = p.op("Reshape", p.op("Transpose", value, perm=[0, 2, 1, 3]), p.ints(0, 0, -1))
    p.finish(value)


def _repeat_heads(p: Pieces, x: str, groups: int, times: int) -> str:
    """[B, G, S, D] to [B, G * times, S, D], each head `times` times in a row."""
    tall = p.op("Expand", p.over_axes("Unsqueeze", x, [2]), p.ints(1, 1, times, 1, 1))
    shape = p.op("Shape", x)
    ends = [p.op("Slice", shape, p.ints(a), p.ints(b), p.ints(0)) for a, b in ((0, 1), (2, 4))]
    return p.op("Reshape", tall, p.op("Concat", ends[0], p.ints(groups * times), ends[1], axis=0))


def _hide_later_keys(p: Pieces, scores: str, dtype: DType) -> str:
    """scores where key index < query index + 1, else -inf."""
    shape = p.op("Shape", scores)
    rows, columns = (p.op("Gather", shape, p.constant(np.array(i, np.int64))) for i in (2, 3))
    zero, one = (p.constant(np.array(i, np.int64)) for i in (0, 1))
    limit = p.over_axes("Unsqueeze", p.op("Range", one, p.op("Add", rows, one), one), [1])
    return p.op("Where", p.op("Less", p.op("Range", zero, columns, one), limit), scores, p.scalar(-math.inf, dtype))


EXPANSIONS: dict[str, Callable[[Pieces], None]] = {
    "Gelu": _gelu, "Swish": _swish, "HardSwish": _hard_swish, "Mish": _mish, "LayerNormalization": _normalization,
    "RMSNormalization": _normalization, "GroupNormalization": _group_normalization, "Softmax": _softmax,
    "RotaryEmbedding": _rotary, "Attention": _attention,
}  # fmt: skip


def expand_nodes(graph: Graph, chosen: Sequence[Node], opset: int) -> tuple[Graph, list[list[Node]]]:
    """A graph with these of its nodes, which are `expandable`, written out in operators of an opset.

    Returns:
        The graph, whose new nodes have no version yet, and the new nodes instead of each of `chosen`.
    """
    out = graph.clone()
    wanted = {id(n) for n in chosen}
    taken = set(out.types) | set(out.constants) | set(out.input_names()) | {o for n in out.nodes for o in n.outputs}
    nodes: list[Node] = []
    found: dict[int, list[Node]] = {}
    for original, node in zip(graph.nodes, out.nodes, strict=True):
        if id(original) not in wanted:
            nodes.append(node)
            continue
        pieces = Pieces(out, node, opset, taken)
        EXPANSIONS[node.op_type](pieces)
        nodes.extend(pieces.nodes)
        out.constants.update({c.name: c for c in pieces.constants})
        found[id(original)] = pieces.nodes
    out.nodes = nodes
    return out, [found[id(n)] for n in chosen]


def expandable(graph: Graph, node: Node) -> bool:
    """Whether the node is one of the forms that the rules write, with the types that writing it out needs."""
    if node.domain or node.op_type not in EXPANSIONS or any(o for o in node.outputs[1:]):
        return False
    kinds = [graph.type_of(n) for n in node.inputs if n]
    if any(not isinstance(t, TensorType) or t.shape is None for t in kinds):
        return False
    given = max((i + 1 for i, name in enumerate(node.inputs) if name), default=0)  # those behind are left out by ""
    if node.op_type == "Attention":
        return (
            given <= 4
            and not node.attributes.get("softcap", 0.0)
            and not node.attributes.get("qk_matmul_output_mode", 0)
        )
    if node.op_type == "RotaryEmbedding":
        return (
            given == 3
            and not node.attributes.get("interleaved", 0)
            and not node.attributes.get("rotary_embedding_dim", 0)
        )
    return True
