"""Products of dequantised tensors, decomposed: the integers' product, and its scale; see `qdq_to_integer`."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.internal.integers import DOMAIN
from intarsia.providers.cpu.kernels.conv.conv_transpose import as_convolution, is_plain
from intarsia.providers.cpu.legalize.qdq_graph import Draft
from intarsia.providers.cpu.legalize.qdq_to_nbits import StoredBlocks, stored_blocks
from intarsia.providers.cpu.legalize.widen_float16 import Widened

_CONTRIB = "com.microsoft"


class PairProducts:
    """Each method takes a product of floats and says whether it was written into the draft as one of integers."""

    def __init__(self, draft: Draft, widens: bool) -> None:
        self.draft, self.widens = draft, widens

    def matmul(self, node: Node) -> bool:
        draft = self.draft
        a, b = draft.bytes_of(node.inputs[0]), draft.bytes_of(node.inputs[1], max(0, draft.rank(node.inputs[1]) - 1))
        if a is None:
            return self._weights_only(node)
        if b is None or (b.scale.size > 1 and draft.rank(node.inputs[1]) != 2):
            return False
        total = draft.append(node, "MatMulInteger", 10, [a.source, b.source, a.zero, b.zero])
        draft.scaled(node, total, a.scale.reshape(()) * b.factor, "", node.outputs[0])
        return True

    def gemm(self, node: Node) -> bool:
        draft = self.draft
        attributes = node.attributes
        transposed = bool(attributes.get("transB", 0))
        a, b = draft.bytes_of(node.inputs[0]), draft.bytes_of(node.inputs[1], 0 if transposed else 1)
        if a is None or b is None or attributes.get("transA", 0) or (transposed and not b.constant):
            return False
        alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
        bias = node.inputs[2] if len(node.inputs) > 2 and beta != 0 else ""
        if bias and beta != 1:
            return False
        right = draft.transposed(b.source) if transposed else b.source
        total = draft.append(node, "MatMulInteger", 10, [a.source, right, a.zero, b.zero])
        scale = a.scale.reshape(()) * b.factor * np.float32(alpha)
        kind = draft.types.get(bias)
        shape = kind.shape if isinstance(kind, TensorType) else None
        if bias and (shape is None or not all(isinstance(d, int) for d in shape)):
            return False
        total, bias = draft.with_bias(node, total, bias, scale, numbers_of(shape or ()))
        draft.scaled(node, total, scale, bias, node.outputs[0])
        return True

    def conv(self, node: Node) -> bool:
        draft = self.draft
        x, w = draft.bytes_of(node.inputs[0]), draft.bytes_of(node.inputs[1], 0)
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if x is None or w is None or not w.constant or draft.rank(node.inputs[0]) not in (3, 4, 5):
            return False
        if bias and bias not in draft.graph.constants and bias not in draft.dequantized:
            return False
        shape = (1, -1, *(1,) * (draft.rank(node.inputs[0]) - 2))
        total = draft.append(node, "ConvInteger", 10, [x.source, w.source, x.zero, w.zero], attributes=node.attributes)
        scale = x.scale.reshape(()) * w.factor
        total, bias = draft.with_bias(node, total, bias, scale, shape)
        if bias and bias not in draft.graph.constants:
            bias = draft.constant(bias, draft.value(bias).reshape(shape))
        draft.scaled(node, total, scale.reshape(shape) if scale.size > 1 else scale, bias, node.outputs[0])
        return True

    def conv_transpose(self, node: Node) -> bool:
        """A convolution of bytes that computes the pixels of a stride's block as channels, and these put beside each other as
        bytes where they are quantised next."""
        draft = self.draft
        x, w = draft.bytes_of(node.inputs[0]), draft.bytes_of(node.inputs[1], 1)
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        strides = tuple(node.attributes.get("strides") or (1, 1))
        if x is None or w is None or not w.constant or draft.rank(node.inputs[0]) != 4 or strides != (strides[0],) * 2:
            return False
        if not is_plain(node) or int(node.attributes.get("group", 1)) != 1:
            return False
        zero, weights = draft.array(w.zero) if w.zero else np.zeros(1, np.int8), draft.array(w.source)
        number = draft.value_of(bias) if bias else np.zeros(1, np.float32)
        if zero is None or weights is None or number is None:
            return False
        count, pixels = weights.shape[1], strides[0] ** 2
        parts = as_convolution(node, weights.astype(np.int16) - zero.astype(np.int16).reshape(1, -1, 1, 1), None)
        zeros = np.tile(np.broadcast_to(zero.reshape(-1), count), pixels)
        filters = (parts.weights + zeros.reshape(-1, 1, 1, 1)).astype(weights.dtype)
        inputs = [x.source, draft.constant(w.source, filters), x.zero]
        if zeros.any():
            inputs.append(draft.constant(w.source, zeros))
        total = draft.append(node, "ConvInteger", 10, inputs, attributes=parts.convolution)
        each = np.broadcast_to((x.scale.reshape(()) * w.factor).reshape(-1), count)
        shape = (1, -1, 1, 1)
        after = draft.quantiser_behind(node)
        blocks, last = draft.name(node.outputs[0]), node.outputs[0]
        draft.scaled(
            node, total, np.tile(each, pixels).reshape(shape),
            draft.constant(bias, np.tile(number, pixels).reshape(shape)) if bias else "", blocks,
        )  # fmt: skip
        if after is not None:
            (last,) = after.outputs
            blocks = draft.append(after, "Requantize", 1, [blocks, after.inputs[2], draft.factor(after)], "", DOMAIN)
            draft.skipped.add(last)
        low, high = parts.interleave["begins"], parts.interleave["ends"]
        cropped = any(low) or any(high)
        moved = draft.append(
            node, "DepthToSpace", 13, [blocks], "" if cropped else last, attributes={"blocksize": strides[0], "mode": "DCR"}
        )
        if cropped:
            whole = np.iinfo(np.int64).max
            bounds = (low, [-e if e else whole for e in high], [2, 3])
            inputs = [draft.constant(last, np.array(b, np.int64)) for b in bounds]
            draft.append(node, "Slice", 13, [moved, *inputs], last)
        return True

    def _weights_only(self, node: Node) -> bool:
        """Floats by dequantised weights, which stay packed: bytes with scales of their own for columns, or MatMulNBits."""
        draft = self.draft
        producer = draft.producers.get(node.inputs[1])
        kind, rank = draft.dtype(node.inputs[0]), draft.rank(node.inputs[0])
        if producer is None or kind is not DType.FLOAT or rank < 2:
            return False
        found = stored_blocks(producer, draft.graph.constants)
        if found is None or draft.types[node.inputs[1]] != TensorType(DType.FLOAT, (found.depth, found.columns)):
            return False
        if self.widens and found.are_bytes:
            return self._by_columns(node, found)
        blocks = -(-found.depth // found.size)
        shape = (found.columns, blocks, found.size * found.bits // 8)
        source = producer.inputs[0]
        names = [
            draft.lazy_constant(source, DType.UINT8, shape, found.numbers),
            draft.lazy_constant(source, DType.FLOAT, shape[:2], found.scales),
            draft.lazy_constant(source, DType.FLOAT, shape[:2], found.zeros) if found.has_zeros else "",
        ]
        attributes = {"K": found.depth, "N": found.columns, "bits": found.bits, "block_size": found.size}
        draft.append(node, "MatMulNBits", 1, [node.inputs[0], *names], node.outputs[0], _CONTRIB, attributes)
        return True

    def _by_columns(self, node: Node, found: StoredBlocks) -> bool:
        """A product by the integers, in float32, whose sums are scaled."""
        draft, data = self.draft, found.data
        weights = draft.lazy_constant(data.name, DType.FLOAT, data.shape, Widened(data))
        sums = draft.append(node, "MatMul", 13, [node.inputs[0], weights])
        scale = draft.constant(data.name, found.scale.numpy().reshape(-1))
        draft.append(node, "Mul", 14, [sums, scale], node.outputs[0])
        return True
