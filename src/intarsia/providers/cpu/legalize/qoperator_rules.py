"""Operators of integers in terms of integer products and element-wise nodes; see `qdq_to_integer`."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.contrib.qoperator import bnb4_weights
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import whole_blocks
from intarsia.providers.cpu.legalize.qdq_graph import Draft

_CONTRIB = "com.microsoft"
_HALF = (DType.FLOAT16, DType.BFLOAT16)


class IntegerOperators:
    """Each method takes a node and says whether it was written into the draft in other terms."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def qlinear_conv(self, node: Node) -> bool:
        draft = self.draft
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *rest = node.inputs
        bias = rest[0] if rest else ""
        xs, ws, ys = (draft.array(n) for n in (x_scale, w_scale, y_scale))
        kind = draft.types.get(x)
        if xs is None or ws is None or ys is None or w not in draft.graph.constants or draft.rank(x) not in (3, 4, 5):
            return False
        if not isinstance(kind, TensorType) or any(draft.dtype(n) not in BYTES for n in (x, w, y_zero)):
            return False
        zero = draft.array(y_zero)
        if xs.size != 1 or ys.size != 1 or zero is None or zero.size != 1 or draft.array(x_zero) is None:
            return False
        steps = draft.array(bias) if bias else None
        if bias and steps is None:
            return False
        with np.errstate(all="ignore"):
            scale = xs.reshape(-1) * ws.reshape(-1) / ys.reshape(-1)
        if not np.isfinite(scale).all():  # as in `Draft.note_dequantised`
            return False
        shape = (1, -1, *(1,) * (draft.rank(x) - 2))
        total = draft.append(node, "ConvInteger", 10, [x, w, x_zero, w_zero], attributes=node.attributes)
        if steps is not None:
            total = draft.append(node, "Add", 14, [total, draft.constant(bias, steps.reshape(shape))])
        real = draft.name(node.outputs[0])
        draft.scaled(node, total, scale.reshape(shape) if scale.size > 1 else scale.reshape(()), "", real)
        draft.quantized(node, real, y_zero)
        return True

    def qgemm(self, node: Node) -> bool:
        draft = self.draft
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = [*node.inputs, *[""] * (9 - len(node.inputs))]
        attributes = node.attributes
        transposed = bool(attributes.get("transB", 0))
        scales = [draft.array(n) for n in (a_scale, b_scale, y_scale) if n]
        if any(s is None for s in scales) or attributes.get("transA", 0) or (transposed and b not in draft.graph.constants):
            return False
        if any(draft.dtype(n) not in BYTES for n in (a, b, y_zero) if n) or any(draft.rank(n) != 2 for n in (a, b)):
            return False
        sides = [s for s in scales if s is not None]
        if any(s.size != 1 for s in (sides[0], *sides[2:])) or bool(y_scale) != bool(y_zero):
            return False
        if y_zero and draft.array(y_zero) is None and draft.rank(y_zero) not in (0, 1):
            return False
        with np.errstate(all="ignore"):
            scale = sides[0].reshape(()) * (sides[1] if sides[1].size > 1 else sides[1].reshape(()))
            scale = scale * np.float32(attributes.get("alpha", 1.0)) / (sides[2].reshape(()) if y_scale else np.float32(1))
        if not np.isfinite(scale).all():
            return False
        right = draft.transposed(b) if transposed else b
        total = draft.append(node, "MatMulInteger", 10, [a, right, a_zero, b_zero])
        if c:
            total = draft.append(node, "Add", 14, [total, c])
        if not y_scale:
            draft.scaled(node, total, scale, "", node.outputs[0])
            return True
        real = draft.name(node.outputs[0])
        draft.scaled(node, total, scale, "", real)
        draft.quantized(node, real, y_zero)
        return True

    def dynamic_matmul(self, node: Node) -> bool:
        draft = self.draft
        a, b, b_scale, *rest = node.inputs
        zero, bias = [*rest, "", ""][:2]
        parts = [draft.name(node.outputs[0]) for _ in range(3)]
        draft.nodes.append(Node("DynamicQuantizeLinear", [a], parts, name=node.name, version=11, origin=node.origin))
        integers, scale, a_zero = parts
        inputs = [integers, b, scale, b_scale, a_zero, zero, bias]
        draft.append(node, "MatMulIntegerToFloat", 1, inputs, node.outputs[0], _CONTRIB)
        return True

    def half_by_blocks(self, node: Node) -> bool:
        """MatMulNBits of 16-bit floats, computed in float32."""
        draft = self.draft
        a, b, scales, zeros, groups, bias = [*node.inputs, *[""] * (6 - len(node.inputs))]
        kind = draft.dtype(a)
        if kind not in _HALF or scales not in draft.graph.constants:
            return False
        wide = [draft.append(node, "Cast", 13, [n], attributes={"to": DType.FLOAT.value}) if n else "" for n in (a, bias)]
        real = [self._widened(n) if n and draft.dtype(n) in _HALF else n for n in (scales, zeros)]
        inputs = [wide[0], b, *real, groups, wide[1]]
        out = draft.append(node, "MatMulNBits", 1, inputs, "", _CONTRIB, node.attributes)
        draft.append(node, "Cast", 13, [out], node.outputs[0], attributes={"to": kind.value})
        return True

    def by_codes(self, node: Node) -> bool:
        """MatMulBnb4 of 16-bit floats, computed in float32; MatMul where blocks do not lie along K."""
        draft, attributes = self.draft, node.attributes
        a, codes, largest = node.inputs
        kind, whole = draft.dtype(a), whole_blocks(attributes)
        half = kind in _HALF
        if kind is None or not (half or kind is DType.FLOAT) or (kind is DType.FLOAT and whole):
            return False
        if any(name not in draft.graph.constants for name in (codes, largest)):
            return False
        wide = draft.append(node, "Cast", 13, [a], attributes={"to": DType.FLOAT.value}) if half else a
        last = "" if half else node.outputs[0]
        if whole:
            factors = self._widened(largest) if draft.dtype(largest) in _HALF else largest
            out = draft.append(node, "MatMulBnb4", 1, [wide, codes, factors], last, _CONTRIB, attributes)
        else:
            out = draft.append(node, "MatMul", 13, [wide, self._decoded(node)], last)
        if half:
            draft.append(node, "Cast", 13, [out], node.outputs[0], attributes={"to": kind.value})
        return True

    def _decoded(self, node: Node) -> str:
        """The name of MatMulBnb4's weights as float32, as they are multiplied."""
        draft, attributes = self.draft, node.attributes
        codes, largest = (draft.graph.constants[name] for name in node.inputs[1:3])
        size, kind, depth, columns = (int(attributes[name]) for name in ("block_size", "quant_type", "K", "N"))
        transposed = bool(attributes.get("transB", 1))

        def weights() -> np.ndarray:
            stored = bnb4_weights(codes.numpy(), largest.numpy(), size, kind, (columns, depth))
            return stored.T if transposed else stored

        return draft.lazy_constant(codes.name, DType.FLOAT, (depth, columns) if transposed else (columns, depth), weights)

    def _widened(self, name: str) -> str:
        constant = self.draft.graph.constants[name]
        return self.draft.lazy_constant(name, DType.FLOAT, constant.shape, lambda: constant.numpy().astype(np.float32))
