"""Products of dequantised tensors as products of the integers that they were.

DequantizeLinear in front of MatMul, Gemm, Conv or ConvTranspose is taken out: the product is formed of the 8-bit integers
(MatMulInteger, ConvInteger) and its exact sums are scaled once. What followed stays: element-wise nodes and QuantizeLinear
become the product's epilogue. QLinearConv, QGemm and DynamicQuantizeMatMul are written in the same terms.

How far results move from the definition in float32: sums are exact here, and a QuantizeLinear inside the model multiplies by
the reciprocal of its scale; so a number that lies between two steps by less than float32's rounding may fall to the other
one: at most one step of the output's quantisation.

Weights that are dequantised for a product of floats stay packed: such a MatMul becomes MatMulNBits. The session entry
"session.disable_quant_qdq" leaves tensors
that are dequantised as the model has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intarsia.codegen.byte_kernel import BYTES
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.infer import Inference
from intarsia.ops.integers import DOMAIN
from intarsia.providers.cpu.layout_twins import derived_name
from intarsia.providers.cpu.stored_blocks import stored_blocks
from intarsia.providers.cpu.transposed import as_convolution, is_plain
from intarsia.records import dataclass

_INTEGER_OPERATORS = frozenset(("QLinearConv", "QGemm", "DynamicQuantizeMatMul", "MatMulNBits"))
_HALF = (DType.FLOAT16, DType.BFLOAT16)
_MOVES = frozenset(("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"))
_CONTRIB = "com.microsoft"
_DOMAINS = ("", _CONTRIB)


@dataclass(frozen=True)
class Dequantized:
    """What a DequantizeLinear reads: the integers, their constant scale, and the zero point (0 where it has no name)."""

    source: str
    scale: np.ndarray
    zero: str
    axis: int
    constant: bool


def integer_products(inference: Inference, pairs: bool) -> Graph | None:
    """The graph with products of integers, or None if it has none; `pairs`: also where tensors are dequantised first."""
    nodes = inference.graph.nodes
    wanted = _INTEGER_OPERATORS | ({"DequantizeLinear"} if pairs else set())
    if not any(n.op_type in wanted for n in nodes):
        return None
    rewrite = _Rewrite(inference, pairs)
    graph = rewrite.run()
    return graph if rewrite.changed else None


class _Rewrite:
    def __init__(self, inference: Inference, pairs: bool) -> None:
        self.types = inference.types
        self.graph = inference.graph.clone()
        self.pairs, self.changed = pairs, False
        self.nodes: list[Node] = []
        self.serial = 0
        self.consumers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.used_names():
                self.consumers.setdefault(name, []).append(node)
        for name in self.graph.output_names():
            self.consumers.setdefault(name, []).append(Node("output", [name], []))
        self.dequantized: dict[str, Dequantized] = {}
        self.producers: dict[str, Node] = {}  # what is dequantised -> the node that does it
        self.inner: set[str] = set()  # values that are computed from dequantised ones
        self.skipped: set[str] = set()  # outputs of nodes that are not needed any more

    def run(self) -> Graph:
        if self.pairs:
            self._make_unsigned()
            for node in self.graph.nodes:
                self._note(node)
                if node.op_type == "DequantizeLinear" and node.domain in _DOMAINS:
                    self.producers[node.outputs[0]] = node
        for node in self.graph.nodes:
            rule = self._rule(node)
            if node.outputs[0] not in self.skipped and (rule is None or not rule(node)):
                self.nodes.append(node)
            else:
                self.changed = True
            if node.op_type == "DequantizeLinear" or any(n in self.inner for n in node.inputs):
                self.inner.update(node.outputs)
        self.graph.nodes = self.nodes
        self.graph.types = {}
        return self.graph

    def _rule(self, node: Node) -> Callable[[Node], bool] | None:
        if node.op_type in _INTEGER_OPERATORS:
            rules = {
                ("", "QLinearConv"): self._qlinear_conv,
                (_CONTRIB, "QGemm"): self._qgemm,
                (_CONTRIB, "DynamicQuantizeMatMul"): self._dynamic_matmul,
                (_CONTRIB, "MatMulNBits"): self._half_by_blocks,
            }
            return rules.get((node.domain, node.op_type))
        if not self.pairs:
            return None
        if node.op_type == "QuantizeLinear" and node.domain in _DOMAINS:
            return self._quantize
        if node.domain:
            return None
        if node.op_type in _MOVES:
            return self._move
        pairs = {"MatMul": self._matmul, "Gemm": self._gemm, "Conv": self._conv, "ConvTranspose": self._conv_transpose}
        return pairs.get(node.op_type)

    # --- what is known of a graph's values ---

    def _array(self, name: str) -> np.ndarray | None:
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.numpy()

    def _rank(self, name: str) -> int:
        kind = self.types.get(name)
        return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else -1

    def _note(self, node: Node) -> None:
        if node.op_type != "DequantizeLinear" or node.domain not in _DOMAINS or node.attributes.get("block_size", 0):
            return
        x, out = self.types.get(node.inputs[0]), self.types.get(node.outputs[0])
        if not isinstance(x, TensorType) or x.dtype not in (*BYTES, DType.INT32) or not isinstance(out, TensorType):
            return
        scale, zero = self._array(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else ""
        if scale is None or scale.dtype != np.float32 or out.dtype is not DType.FLOAT or x.shape is None:
            return
        if zero and zero not in self.graph.constants:
            return
        rank = len(x.shape)
        axis = int(node.attributes.get("axis", 1))
        self.dequantized[node.outputs[0]] = Dequantized(
            node.inputs[0], scale, zero, axis + rank if axis < 0 else axis, node.inputs[0] in self.graph.constants
        )

    def _bytes(self, name: str, axis: int | None = None) -> Dequantized | None:
        """What `name` is dequantised from, by one scale or by one per entry of `axis`."""
        found = self.dequantized.get(name)
        if found is None or self._dtype(found.source) not in BYTES:
            return None
        zero = self._array(found.zero) if found.zero else None
        one = found.scale.size == 1 and (zero is None or zero.size == 1)
        return found if one or (axis is not None and found.axis == axis) else None

    def _dtype(self, name: str) -> DType | None:
        constant = self.graph.constants.get(name)
        if constant is not None:
            return constant.dtype
        kind = self.types.get(name)
        return kind.dtype if isinstance(kind, TensorType) else None

    # --- signed activations ---

    def _make_unsigned(self) -> None:
        """Between a QuantizeLinear to int8 and its DequantizeLinear uint8 carries the same, and is multiplied faster."""
        for node in self.graph.nodes:
            if node.op_type != "QuantizeLinear" or node.domain not in _DOMAINS or len(node.inputs) < 3:
                continue
            zero, (out,) = self._array(node.inputs[2]), node.outputs
            users = self.consumers.get(out, [])
            if zero is None or zero.dtype != np.int8 or zero.size != 1 or not users:
                continue
            if all(self._reads_as_is(user, out, zero) for user in users):
                lifted = self._constant(node.inputs[2], (zero.astype(np.int16) + 128).astype(np.uint8))
                for user in (node, *users):
                    user.inputs[2] = lifted
                    user.traced = None
                kind = self.types[out]
                assert isinstance(kind, TensorType)
                self.types[out] = TensorType(DType.UINT8, kind.shape)

    def _reads_as_is(self, node: Node, name: str, zero: np.ndarray) -> bool:
        if node.op_type != "DequantizeLinear" or node.domain not in _DOMAINS or node.inputs[0] != name or len(node.inputs) < 3:
            return False
        own = self._array(node.inputs[2])
        return own is not None and own.dtype == zero.dtype and own.size == 1 and own.reshape(-1)[0] == zero.reshape(-1)[0]

    # --- new nodes ---

    def _name(self, name: str) -> str:
        self.serial += 1
        return derived_name(name, f"q{self.serial}")

    def _constant(self, name: str, array: np.ndarray) -> str:
        made = self._name(name)
        self.graph.constants[made] = Constant.of(made, np.ascontiguousarray(array).reshape(array.shape))
        return made

    def _append(
        self, like: Node, op_type: str, version: int, inputs: list[str], output: str = "", domain: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> str:  # fmt: skip
        """A node in the place of `like`; returns its output's name."""
        output = output or self._name(like.outputs[0])
        self.nodes.append(
            Node(op_type, inputs, [output], dict(attributes or {}), domain, like.name, version, origin=like.origin)
        )
        return output

    def _scaled(self, node: Node, total: str, scale: np.ndarray, bias: str, last: str) -> None:
        """float32 of int32 sums, times `scale`, plus `bias` ("" for none); the node that ends it writes `last`."""
        factor = self._constant(node.outputs[0], scale.astype(np.float32))
        product = self._append(node, "Rescale", 1, [total, factor], "" if bias else last, DOMAIN)
        if bias:
            self._append(node, "Add", 14, [product, bias], last)

    def _with_bias(self, node: Node, total: str, name: str, scale: np.ndarray, shape: tuple[int, ...]) -> tuple[str, str]:
        """(the sums with a bias that counts in their steps, the name of one that does not)."""
        if not name:
            return total, ""
        found = self.dequantized.get(name)
        zero = self._array(found.zero) if found is not None and found.zero else None
        if found is not None and found.constant and (zero is None or not zero.any()):
            steps = self._array(found.source)
            if steps is not None and steps.dtype == np.int32 and np.allclose(found.scale, scale.reshape(-1), 1e-6, 0):
                return self._append(node, "Add", 14, [total, self._constant(name, steps.reshape(shape))]), ""
        value = self._array(name)
        return total, name if value is None else self._constant(name, value.reshape(shape))

    # --- products: whether the node was rewritten ---

    def _matmul(self, node: Node) -> bool:
        a, b = self._bytes(node.inputs[0]), self._bytes(node.inputs[1], max(0, self._rank(node.inputs[1]) - 1))
        if a is None:
            return self._weights_only(node)
        if b is None or (b.scale.size > 1 and self._rank(node.inputs[1]) != 2):
            return False
        total = self._append(node, "MatMulInteger", 10, [a.source, b.source, a.zero, b.zero])
        self._scaled(node, total, a.scale.reshape(()) * _scale(b), "", node.outputs[0])
        return True

    def _gemm(self, node: Node) -> bool:
        attributes = node.attributes
        transposed = bool(attributes.get("transB", 0))
        a, b = self._bytes(node.inputs[0]), self._bytes(node.inputs[1], 0 if transposed else 1)
        if a is None or b is None or attributes.get("transA", 0) or (transposed and not b.constant):
            return False
        alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
        bias = node.inputs[2] if len(node.inputs) > 2 and beta != 0 else ""
        if bias and beta != 1:
            return False
        right = self._transposed(b.source) if transposed else b.source
        total = self._append(node, "MatMulInteger", 10, [a.source, right, a.zero, b.zero])
        scale = a.scale.reshape(()) * _scale(b) * np.float32(alpha)
        kind = self.types.get(bias)
        shape = kind.shape if isinstance(kind, TensorType) else None
        if bias and (shape is None or not all(isinstance(d, int) for d in shape)):
            return False
        total, bias = self._with_bias(node, total, bias, scale, shape or ())  # type: ignore[arg-type]
        self._scaled(node, total, scale, bias, node.outputs[0])
        return True

    def _transposed(self, name: str) -> str:
        constant, made = self.graph.constants[name], self._name(name)
        self.graph.constants[made] = Constant(made, constant.dtype, constant.shape[::-1], lambda: constant.numpy().T)
        return made

    def _conv(self, node: Node) -> bool:
        x, w = self._bytes(node.inputs[0]), self._bytes(node.inputs[1], 0)
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if x is None or w is None or not w.constant or self._rank(node.inputs[0]) not in (3, 4, 5):
            return False
        if bias and bias not in self.graph.constants and bias not in self.dequantized:
            return False
        shape = (1, -1, *(1,) * (self._rank(node.inputs[0]) - 2))
        total = self._append(node, "ConvInteger", 10, [x.source, w.source, x.zero, w.zero], attributes=node.attributes)
        scale = x.scale.reshape(()) * _scale(w)
        total, bias = self._with_bias(node, total, bias, scale, shape)
        if bias and bias not in self.graph.constants:
            bias = self._constant(bias, self._value(bias).reshape(shape))
        self._scaled(node, total, scale.reshape(shape) if scale.size > 1 else scale, bias, node.outputs[0])
        return True

    def _conv_transpose(self, node: Node) -> bool:
        """A convolution of bytes that computes the pixels of a stride's block as channels, and these put beside each other as
        bytes where they are quantised next."""
        x, w = self._bytes(node.inputs[0]), self._bytes(node.inputs[1], 1)
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        strides = tuple(node.attributes.get("strides") or (1, 1))
        if x is None or w is None or not w.constant or self._rank(node.inputs[0]) != 4 or strides != (strides[0],) * 2:
            return False
        if not is_plain(node) or int(node.attributes.get("group", 1)) != 1:
            return False
        zero, weights = self._array(w.zero) if w.zero else np.zeros(1, np.int8), self._array(w.source)
        number = self._value_of(bias) if bias else np.zeros(1, np.float32)
        if zero is None or weights is None or number is None:
            return False
        count, pixels = weights.shape[1], strides[0] ** 2
        parts = as_convolution(node, weights.astype(np.int16) - zero.astype(np.int16).reshape(1, -1, 1, 1), None)
        zeros = np.tile(np.broadcast_to(zero.reshape(-1), count), pixels)
        filters = (parts.weights + zeros.reshape(-1, 1, 1, 1)).astype(weights.dtype)
        inputs = [x.source, self._constant(w.source, filters), x.zero]
        if zeros.any():
            inputs.append(self._constant(w.source, zeros))
        total = self._append(node, "ConvInteger", 10, inputs, attributes=parts.convolution)
        each = np.broadcast_to((x.scale.reshape(()) * _scale(w)).reshape(-1), count)
        shape = (1, -1, 1, 1)
        after = self._quantiser_behind(node)
        blocks, last = self._name(node.outputs[0]), node.outputs[0]
        self._scaled(
            node, total, np.tile(each, pixels).reshape(shape),
            self._constant(bias, np.tile(number, pixels).reshape(shape)) if bias else "", blocks,
        )  # fmt: skip
        if after is not None:
            (last,) = after.outputs
            blocks = self._append(after, "Requantize", 1, [blocks, after.inputs[2], self._factor(after)], "", DOMAIN)
            self.skipped.add(last)
        low, high = parts.interleave["begins"], parts.interleave["ends"]
        cropped = any(low) or any(high)
        moved = self._append(
            node, "DepthToSpace", 13, [blocks], "" if cropped else last, attributes={"blocksize": strides[0], "mode": "DCR"}
        )
        if cropped:
            whole = np.iinfo(np.int64).max
            bounds = (low, [-e if e else whole for e in high], [2, 3])
            inputs = [self._constant(last, np.array(b, np.int64)) for b in bounds]
            self._append(node, "Slice", 13, [moved, *inputs], last)
        return True

    def _quantiser_behind(self, node: Node) -> Node | None:
        """The quantiser to 8 bits by one scale that alone reads what a node computes, if there is one."""
        users = self.consumers.get(node.outputs[0], [])
        if len(users) != 1 or users[0].op_type != "QuantizeLinear" or users[0].inputs[0] != node.outputs[0]:
            return None
        return users[0] if users[0].domain in _DOMAINS and self._is_simple(users[0]) else None

    def _factor(self, quantiser: Node) -> str:
        scale = self._array(quantiser.inputs[1])
        assert scale is not None
        return self._constant(quantiser.outputs[0], np.float32(1) / scale.reshape(()))

    def _value_of(self, name: str) -> np.ndarray | None:
        """A constant, or a dequantised one."""
        found = self.dequantized.get(name)
        return self._array(name) if found is None else self._value(name) if found.constant else None

    def _value(self, name: str) -> np.ndarray:
        """A dequantised constant by one scale, or by one per entry of its only axis."""
        found = self.dequantized[name]
        steps, zero = self._array(found.source), self._array(found.zero) if found.zero else np.int32(0)
        assert steps is not None and zero is not None
        centred: np.ndarray = (steps.astype(np.int64) - zero).astype(np.float32)
        numbers: np.ndarray = centred * found.scale
        return numbers

    def _qlinear_conv(self, node: Node) -> bool:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *rest = node.inputs
        bias = rest[0] if rest else ""
        scales = [self._array(n) for n in (x_scale, w_scale, y_scale)]
        kind = self.types.get(x)
        if any(s is None for s in scales) or w not in self.graph.constants or self._rank(x) not in (3, 4, 5):
            return False
        if not isinstance(kind, TensorType) or any(self._dtype(n) not in BYTES for n in (x, w, y_zero)):
            return False
        zero = self._array(y_zero)
        if scales[0].size != 1 or scales[2].size != 1 or zero is None or zero.size != 1 or self._array(x_zero) is None:  # type: ignore[union-attr]
            return False
        steps = self._array(bias) if bias else None
        if bias and steps is None:
            return False
        shape = (1, -1, *(1,) * (self._rank(x) - 2))
        total = self._append(node, "ConvInteger", 10, [x, w, x_zero, w_zero], attributes=node.attributes)
        if steps is not None:
            total = self._append(node, "Add", 14, [total, self._constant(bias, steps.reshape(shape))])
        xs, ws, ys = (s.reshape(-1) for s in scales)  # type: ignore[union-attr]
        real = self._name(node.outputs[0])
        scale = xs * ws / ys
        self._scaled(node, total, scale.reshape(shape) if scale.size > 1 else scale.reshape(()), "", real)
        self._quantized(node, real, y_zero)
        return True

    def _qgemm(self, node: Node) -> bool:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = [*node.inputs, *[""] * (9 - len(node.inputs))]
        attributes = node.attributes
        transposed = bool(attributes.get("transB", 0))
        scales = [self._array(n) for n in (a_scale, b_scale, y_scale) if n]
        if any(s is None for s in scales) or attributes.get("transA", 0) or (transposed and b not in self.graph.constants):
            return False
        if any(self._dtype(n) not in BYTES for n in (a, b, y_zero) if n) or any(self._rank(n) != 2 for n in (a, b)):
            return False
        sides = [s for s in scales if s is not None]
        if any(s.size != 1 for s in (sides[0], *sides[2:])) or bool(y_scale) != bool(y_zero):
            return False
        right = self._transposed(b) if transposed else b
        total = self._append(node, "MatMulInteger", 10, [a, right, a_zero, b_zero])
        if c:
            total = self._append(node, "Add", 14, [total, c])
        scale = sides[0].reshape(()) * (sides[1] if sides[1].size > 1 else sides[1].reshape(()))
        scale = scale * np.float32(attributes.get("alpha", 1.0))
        if not y_scale:
            self._scaled(node, total, scale, "", node.outputs[0])
            return True
        real = self._name(node.outputs[0])
        self._scaled(node, total, scale / sides[2].reshape(()), "", real)
        self._quantized(node, real, y_zero)
        return True

    def _dynamic_matmul(self, node: Node) -> bool:
        a, b, b_scale, *rest = node.inputs
        zero, bias = [*rest, "", ""][:2]
        parts = [self._name(node.outputs[0]) for _ in range(3)]
        self.nodes.append(Node("DynamicQuantizeLinear", [a], parts, name=node.name, version=11, origin=node.origin))
        integers, scale, a_zero = parts
        inputs = [integers, b, scale, b_scale, a_zero, zero, bias]
        self._append(node, "MatMulIntegerToFloat", 1, inputs, node.outputs[0], _CONTRIB)
        return True

    def _half_by_blocks(self, node: Node) -> bool:
        """MatMulNBits of 16-bit floats, computed in float32."""
        a, b, scales, zeros, groups, bias = [*node.inputs, *[""] * (6 - len(node.inputs))]
        kind = self._dtype(a)
        if kind not in _HALF or scales not in self.graph.constants:
            return False
        wide = [self._append(node, "Cast", 13, [n], attributes={"to": DType.FLOAT.value}) if n else "" for n in (a, bias)]
        real = [self._widened(n) if n and self._dtype(n) in _HALF else n for n in (scales, zeros)]
        inputs = [wide[0], b, *real, groups, wide[1]]
        out = self._append(node, "MatMulNBits", 1, inputs, "", _CONTRIB, node.attributes)
        self._append(node, "Cast", 13, [out], node.outputs[0], attributes={"to": kind.value})
        return True

    def _widened(self, name: str) -> str:
        constant = self.graph.constants[name]
        return self._derived(name, DType.FLOAT, constant.shape, lambda: constant.numpy().astype(np.float32))

    def _derived(self, name: str, dtype: DType, shape: tuple[int, ...], make: Callable[[], np.ndarray]) -> str:
        """The name of a constant that is computed when it is packed."""
        made = self._name(name)
        self.graph.constants[made] = Constant(made, dtype, shape, make)
        return made

    def _weights_only(self, node: Node) -> bool:
        """Floats by dequantised weights: MatMulNBits keeps these packed."""
        producer = self.producers.get(node.inputs[1])
        kind, rank = self._dtype(node.inputs[0]), self._rank(node.inputs[0])
        if producer is None or kind is not DType.FLOAT or rank < 2:
            return False
        found = stored_blocks(producer, self.graph.constants)
        if found is None or self.types[node.inputs[1]] != TensorType(DType.FLOAT, (found.depth, found.columns)):
            return False
        blocks = -(-found.depth // found.size)
        shape = (found.columns, blocks, found.size * found.bits // 8)
        source = producer.inputs[0]
        names = [
            self._derived(source, DType.UINT8, shape, found.numbers),
            self._derived(source, DType.FLOAT, shape[:2], found.scales),
            self._derived(source, DType.FLOAT, shape[:2], found.zeros) if found.has_zeros else "",
        ]
        attributes = {"K": found.depth, "N": found.columns, "bits": found.bits, "block_size": found.size}
        self._append(node, "MatMulNBits", 1, [node.inputs[0], *names], node.outputs[0], _CONTRIB, attributes)
        return True

    # --- the rest ---

    def _quantized(self, node: Node, value: str, zero: str, factor: np.ndarray | None = None) -> None:
        """`value` in steps of 1 / `factor`, rounded and shifted."""
        inputs = [value, zero]
        if factor is not None and not self._counts_in_steps(value, factor):
            inputs.append(self._constant(node.outputs[0], factor.astype(np.float32)))
        self._append(node, "Requantize", 1, inputs, node.outputs[0], DOMAIN)

    def _counts_in_steps(self, value: str, factor: np.ndarray) -> bool:
        """Whether the scale of sums that only `value` is computed from, could be multiplied by `factor` itself."""
        made = {n.outputs[0]: n for n in self.nodes[-3:]}
        while value in made and len(self.consumers.get(value, ())) == 1:
            node = made[value]
            if node.domain == DOMAIN and node.op_type == "Rescale":
                scale = self._array(node.inputs[1])
                assert scale is not None
                node.inputs[1] = self._constant(value, scale * factor)
                return True
            if node.op_type != "Relu" or factor < 0:
                return False
            value = node.inputs[0]
        return False

    def _quantize(self, node: Node) -> bool:
        """Inside the model, times the reciprocal of the scale in the place of the division."""
        if node.inputs[0] not in self.inner or not self._is_simple(node) or self._dtype(node.inputs[0]) is not DType.FLOAT:
            return False
        scale = self._array(node.inputs[1])
        assert scale is not None
        self._quantized(node, node.inputs[0], node.inputs[2], np.float32(1) / scale.reshape(()))
        return True

    def _is_simple(self, node: Node) -> bool:
        """Whether a quantiser goes to 8 bits by one constant scale."""
        scale = self._array(node.inputs[1])
        zero = self._array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        if scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return False
        if zero.dtype not in (np.uint8, np.int8) or scale.dtype != np.float32:
            return False
        return bool(scale.all() and np.isfinite(scale).all())

    def _move(self, node: Node) -> bool:
        """What only moves or picks elements works on the integers, where it is quantised as it was before."""
        x = self._bytes(node.inputs[0])
        users = self.consumers.get(node.outputs[0], [])
        if x is None or x.constant or len(users) != 1 or users[0].op_type != "QuantizeLinear" or len(users[0].inputs) < 3:
            return False
        if len([n for n in node.outputs if n]) != 1 or users[0].inputs[0] != node.outputs[0]:
            return False
        scale, zero = self._array(users[0].inputs[1]), self._array(users[0].inputs[2])
        own = self._array(x.zero) if x.zero else None
        if scale is None or zero is None or own is None or zero.size != 1 or scale.size != 1 or zero.dtype != own.dtype:
            return False
        if scale.reshape(-1)[0] != x.scale.reshape(-1)[0] or zero.reshape(-1)[0] != own.reshape(-1)[0]:
            return False
        self.nodes.append(node.copy(inputs=[x.source, *node.inputs[1:]], outputs=list(users[0].outputs), traced=None))
        self.skipped.add(users[0].outputs[0])
        return True


def _scale(b: Dequantized) -> np.ndarray:
    return b.scale.reshape(()) if b.scale.size == 1 else b.scale
