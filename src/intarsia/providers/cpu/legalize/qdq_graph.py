"""What the rules for 8-bit models (`qdq_to_integer`) know of a graph, and the graph that they write."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.integers import DOMAIN
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES
from intarsia.providers.cpu.legalize.graph_rewriter import GraphRewriter

DOMAINS = ("", "com.microsoft")  # of QuantizeLinear and DequantizeLinear


@dataclass(frozen=True)
class Dequantized:
    """What a DequantizeLinear reads: the integers, their constant scale, and the zero point (0 where it has no name)."""

    source: str
    scale: np.ndarray
    zero: str
    axis: int
    constant: bool

    @property
    def factor(self) -> np.ndarray:
        """The scale, a number where it is one for all."""
        return self.scale.reshape(()) if self.scale.size == 1 else self.scale


class Draft(GraphRewriter):
    """A copy of a graph whose nodes are written anew, in order.

    Attributes:
        dequantized: a value -> the integers that it is dequantised from.
        skipped: outputs of nodes that are not needed any more.
    """

    mark = "q"

    def __init__(self, inference: Inference) -> None:
        super().__init__(inference)
        self.types = dict(self.types)  # rules change some
        self.consumers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.used_names():
                self.consumers.setdefault(name, []).append(node)
        for name in self.graph.output_names():
            self.consumers.setdefault(name, []).append(Node("output", [name], []))
        self.dequantized: dict[str, Dequantized] = {}
        self.producers: dict[str, Node] = {}  # what is dequantised -> the node that does it
        self.skipped: set[str] = set()

    def note_dequantised(self) -> None:
        """Find what is dequantised."""
        for node in self.graph.nodes:
            if node.op_type == "DequantizeLinear" and node.domain in DOMAINS:
                self._note(node)
                self.producers[node.outputs[0]] = node

    # --- what is known of a graph's values ---

    def _note(self, node: Node) -> None:
        if node.attributes.get("block_size", 0):
            return
        x, out = self.types.get(node.inputs[0]), self.types.get(node.outputs[0])
        if not isinstance(x, TensorType) or x.dtype not in (*BYTES, DType.INT32) or not isinstance(out, TensorType):
            return
        scale, zero = self.array(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else ""
        if scale is None or scale.dtype != np.float32 or out.dtype is not DType.FLOAT or x.shape is None:
            return
        if zero and zero not in self.graph.constants:
            return
        if not np.isfinite(scale).all():  # sums of integers hide the zeros that an infinite scale makes NaN of
            return
        rank = len(x.shape)
        axis = int(node.attributes.get("axis", 1))
        self.dequantized[node.outputs[0]] = Dequantized(
            node.inputs[0], scale, zero, axis + rank if axis < 0 else axis, node.inputs[0] in self.graph.constants
        )

    def bytes_of(self, name: str, axis: int | None = None) -> Dequantized | None:
        """What `name` is dequantised from, by one scale or by one per entry of `axis`."""
        found = self.dequantized.get(name)
        if found is None or self.dtype(found.source) not in BYTES:
            return None
        zero = self.array(found.zero) if found.zero else None
        one = found.scale.size == 1 and (zero is None or zero.size == 1)
        return found if one or (axis is not None and found.axis == axis) else None

    def value_of(self, name: str) -> np.ndarray | None:
        """A constant, or a dequantised one."""
        found = self.dequantized.get(name)
        return self.array(name) if found is None else self.value(name) if found.constant else None

    def value(self, name: str) -> np.ndarray:
        """A dequantised constant by one scale, or by one per entry of its only axis."""
        found = self.dequantized[name]
        steps, zero = self.array(found.source), self.array(found.zero) if found.zero else np.int32(0)
        assert steps is not None and zero is not None
        centred: np.ndarray = (steps.astype(np.int64) - zero).astype(np.float32)
        numbers: np.ndarray = centred * found.scale
        return numbers

    def is_simple(self, node: Node) -> bool:
        """Whether a quantiser goes to 8 bits by one constant scale."""
        return self.steps_of(node, (np.uint8, np.int8)) is not None

    def steps_of(self, node: Node, dtypes: tuple[type, ...]) -> tuple[float, int, np.dtype] | None:
        """The scale and the zero point by which a node quantises or dequantises all elements, to or from one of the types."""
        scale = self.array(node.inputs[1])
        zero = self.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        if scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return None
        if zero.dtype not in dtypes or scale.dtype != np.float32 or not (scale.all() and np.isfinite(scale).all()):
            return None
        return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), zero.dtype

    def quantiser_behind(self, node: Node) -> Node | None:
        """The quantiser to 8 bits by one scale that alone reads what a node computes, if there is one."""
        users = self.consumers.get(node.outputs[0], [])
        if len(users) != 1 or users[0].op_type != "QuantizeLinear" or users[0].inputs[0] != node.outputs[0]:
            return None
        return users[0] if users[0].domain in DOMAINS and self.is_simple(users[0]) else None

    # --- new constants ---

    def transposed(self, name: str) -> str:
        constant, made = self.graph.constants[name], self.name(name)
        self.graph.constants[made] = Constant(made, constant.dtype, constant.shape[::-1], lambda: constant.numpy().T)
        return made

    def factor(self, quantiser: Node) -> str:
        scale = self.array(quantiser.inputs[1])
        assert scale is not None
        return self.constant(quantiser.outputs[0], np.float32(1) / scale.reshape(()))

    # --- new nodes ---

    def append(
        self, like: Node, op_type: str, version: int, inputs: list[str], output: str = "", domain: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> str:  # fmt: skip
        """A node instead of `like`; returns its output's name."""
        output = output or self.name(like.outputs[0])
        self.nodes.append(
            Node(op_type, inputs, [output], dict(attributes or {}), domain, like.name, version, origin=like.origin)
        )
        return output

    def scaled(self, node: Node, total: str, scale: np.ndarray, bias: str, last: str) -> None:
        """float32 of int32 sums, times `scale`, plus `bias` ("" for none); the node that ends it writes `last`."""
        factor = self.constant(node.outputs[0], scale.astype(np.float32))
        product = self.append(node, "Rescale", 1, [total, factor], "" if bias else last, DOMAIN)
        if bias:
            self.append(node, "Add", 14, [product, bias], last)

    def with_bias(self, node: Node, total: str, name: str, scale: np.ndarray, shape: tuple[int, ...]) -> tuple[str, str]:
        """(the sums with a bias that counts in their steps, the name of one that does not)."""
        if not name:
            return total, ""
        found = self.dequantized.get(name)
        zero = self.array(found.zero) if found is not None and found.zero else None
        if found is not None and found.constant and (zero is None or not zero.any()):
            steps = self.array(found.source)
            if steps is not None and steps.dtype == np.int32 and np.allclose(found.scale, scale.reshape(-1), 1e-6, 0):
                return self.append(node, "Add", 14, [total, self.constant(name, steps.reshape(shape))]), ""
        value = self.array(name)
        return total, name if value is None else self.constant(name, value.reshape(shape))

    def quantized(self, node: Node, value: str, zero: str, factor: np.ndarray | None = None) -> None:
        """`value` in steps of 1 / `factor`, rounded and shifted by `zero`, a number, of which only the rank may be another."""
        shift = self.array(zero)
        if shift is not None and shift.ndim:
            zero = self.constant(zero, shift.reshape(()))
        inputs = [value, zero]
        if factor is not None and not self._counts_in_steps(value, factor):
            inputs.append(self.constant(node.outputs[0], factor.astype(np.float32)))
        self.append(node, "Requantize", 1, inputs, node.outputs[0], DOMAIN)

    def _counts_in_steps(self, value: str, factor: np.ndarray) -> bool:
        """Whether the scale of sums that only `value` is computed from, could be multiplied by `factor` itself."""
        made = {n.outputs[0]: n for n in self.nodes[-3:]}
        while value in made and len(self.consumers.get(value, ())) == 1:
            node = made[value]
            if node.domain == DOMAIN and node.op_type == "Rescale":
                scale = self.array(node.inputs[1])
                assert scale is not None
                node.inputs[1] = self.constant(value, scale * factor)
                return True
            if node.op_type != "Relu" or factor < 0:
                return False
            value = node.inputs[0]
        return False
