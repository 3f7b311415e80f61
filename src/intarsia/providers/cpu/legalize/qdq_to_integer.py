"""Products of dequantised tensors as products of the integers that they were.

DequantizeLinear in front of MatMul, Gemm, Conv or ConvTranspose is taken out: the product is formed of the 8-bit integers
(MatMulInteger, ConvInteger) and its exact sums are scaled once. What followed stays: element-wise nodes and QuantizeLinear
become the product's epilogue. QLinearConv, QGemm and DynamicQuantizeMatMul are written in the same terms.

How far results move from the definition in float32: sums are exact here, and a QuantizeLinear inside the model multiplies by
the reciprocal of its scale; so a number that lies between two steps by less than float32's rounding may fall to the other
one: at most one step of the output's quantisation.

Weights that are dequantised for a product of floats stay packed: such a MatMul becomes MatMulNBits, or a MatMul by integers
whose sums are scaled, where the micro-kernel widens bytes at no cost. The session entry
"session.disable_quant_qdq" leaves tensors that are dequantised as the model has them.

`qdq_graph` is the graph that is written, `qdq_matmul_rules` what becomes of products between pairs, `qoperator_rules` of
operators of integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.integers import DOMAIN
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.legalize.qdq_graph import DOMAINS, Draft
from intarsia.providers.cpu.legalize.qdq_matmul_rules import PairProducts
from intarsia.providers.cpu.legalize.qoperator_rules import IntegerOperators

_INTEGER_OPERATORS = frozenset(("QLinearConv", "QGemm", "DynamicQuantizeMatMul", "MatMulNBits", "MatMulBnb4"))
OPERATORS = _INTEGER_OPERATORS | {"DequantizeLinear"}
_MOVES = frozenset(("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"))
_KEEP_STEPS = frozenset(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Gather", "Relu"))
_CONTRIB = "com.microsoft"


def convert_qdq_to_integer(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with products of integers, or None if it has none.

    Products of floats read weights of bytes as fast as those of float32 where a register holds half as many.
    """
    if env.keeps_qdq and not any(n.op_type in _INTEGER_OPERATORS for n in inference.graph.nodes):
        return None
    rewrite = _Rewrite(inference, not env.keeps_qdq, env.target.halves_vectors)
    graph = rewrite.run()
    return graph if rewrite.changed else None


class _Rewrite:
    def __init__(self, inference: Inference, pairs: bool, widens: bool) -> None:
        self.draft = Draft(inference)
        self.changed = False
        self.inner: set[str] = set()  # values that are computed from dequantised ones
        self.steps: dict[str, tuple[float, int, np.dtype]] = {}  # of values that lie on steps of 16 bits
        operators = IntegerOperators(self.draft)
        self.rules: dict[tuple[str, str], Callable[[Node], bool]] = {
            ("", "QLinearConv"): operators.qlinear_conv,
            (_CONTRIB, "QGemm"): operators.qgemm,
            (_CONTRIB, "DynamicQuantizeMatMul"): operators.dynamic_matmul,
            (_CONTRIB, "MatMulNBits"): operators.half_by_blocks,
            (_CONTRIB, "MatMulBnb4"): operators.by_codes,
        }
        if pairs:
            self._make_unsigned()
            self.draft.note_dequantised()
            products = PairProducts(self.draft, widens)
            self.rules |= {
                ("", "MatMul"): products.matmul,
                ("", "Gemm"): products.gemm,
                ("", "Conv"): products.conv,
                ("", "ConvTranspose"): products.conv_transpose,
            }
            self.rules |= {("", move): self._move for move in _MOVES}
            self.rules |= {(domain, "QuantizeLinear"): self._quantize for domain in DOMAINS}

    def run(self) -> Graph:
        draft = self.draft
        for node in draft.graph.nodes:
            rule = self.rules.get((node.domain, node.op_type))
            if node.outputs[0] not in draft.skipped and (rule is None or not rule(node)):
                draft.nodes.append(node)
            else:
                self.changed = True
            if node.op_type == "DequantizeLinear" or any(n in self.inner for n in node.inputs):
                self.inner.update(node.outputs)
            self._note_steps(node)
        return draft.finish()

    def _note_steps(self, node: Node) -> None:
        """Remember whether a node's result lies on steps of 16 bits."""
        found = None
        if node.op_type == "DequantizeLinear":
            found = self.draft.steps_of(node, (np.uint16, np.int16))
        elif node.op_type in _KEEP_STEPS and not node.domain:
            found = self.steps.get(node.inputs[0])
        if found is not None:
            self.steps[node.outputs[0]] = found

    def _make_unsigned(self) -> None:
        """Between a QuantizeLinear to int8 and its DequantizeLinear uint8 carries the same, and is multiplied faster."""
        draft = self.draft
        for node in draft.graph.nodes:
            if node.op_type != "QuantizeLinear" or node.domain not in DOMAINS or len(node.inputs) < 3:
                continue
            zero, (out,) = draft.array(node.inputs[2]), node.outputs
            users = draft.consumers.get(out, [])
            if zero is None or zero.dtype != np.int8 or zero.size != 1 or not users:
                continue
            if all(self._reads_as_is(user, out, zero) for user in users):
                lifted = draft.constant(node.inputs[2], (zero.astype(np.int16) + 128).astype(np.uint8))
                for user in (node, *users):
                    user.inputs[2] = lifted
                    user.traced = None
                kind = draft.types[out]
                assert isinstance(kind, TensorType)
                draft.types[out] = TensorType(DType.UINT8, kind.shape)

    def _reads_as_is(self, node: Node, name: str, zero: np.ndarray) -> bool:
        if node.op_type != "DequantizeLinear" or node.domain not in DOMAINS or node.inputs[0] != name or len(node.inputs) < 3:
            return False
        own = self.draft.array(node.inputs[2])
        return own is not None and own.dtype == zero.dtype and own.size == 1 and own.reshape(-1)[0] == zero.reshape(-1)[0]

    def _quantize(self, node: Node) -> bool:
        """Inside the model, times the reciprocal of the scale instead of the division."""
        draft = self.draft
        if node.inputs[0] not in self.inner or draft.dtype(node.inputs[0]) is not DType.FLOAT:
            return False
        if not draft.is_simple(node):
            return self._snap(node)
        scale = draft.array(node.inputs[1])
        assert scale is not None
        draft.quantized(node, node.inputs[0], node.inputs[2], np.float32(1) / scale.reshape(()))
        return True

    def _snap(self, node: Node) -> bool:
        """Steps of 16 bits, which no product takes, stay floats: an epilogue has room for them, and memory is not visited."""
        draft, users = self.draft, self.draft.consumers.get(node.outputs[0], [])
        steps = draft.steps_of(node, (np.uint16, np.int16))
        if steps is None or not users:
            return False
        for user in users:
            found = draft.steps_of(user, (np.uint16, np.int16)) if user.op_type == "DequantizeLinear" else None
            if found != steps or user.inputs[0] != node.outputs[0] or draft.dtype(user.outputs[0]) is not DType.FLOAT:
                return False
        source, results = node.inputs[0], [user.outputs[0] for user in users]
        draft.skipped.update(results)
        self.inner.update(results)
        if self.steps.get(source) != steps:  # else it changes nothing: a step is nearest to itself
            scale, zero, limits = np.float32(steps[0]), steps[1], np.iinfo(steps[2])
            numbers = (np.float32(1) / scale, limits.min - zero, limits.max - zero, scale)
            inputs = [source, *(draft.constant(results[0], np.array(n, np.float32)) for n in numbers)]
            source = draft.append(node, "Snap", 1, inputs, results.pop(0), DOMAIN)
            self.steps[source] = steps
        for name in results:
            draft.append(node, "Identity", 1, [source], name)
            self.steps[name] = steps
        return True

    def _move(self, node: Node) -> bool:
        """What only moves or picks elements works on the integers, where it is quantised as it was before."""
        draft = self.draft
        x = draft.bytes_of(node.inputs[0])
        users = draft.consumers.get(node.outputs[0], [])
        if x is None or x.constant or len(users) != 1 or users[0].op_type != "QuantizeLinear" or len(users[0].inputs) < 3:
            return False
        if len([n for n in node.outputs if n]) != 1 or users[0].inputs[0] != node.outputs[0]:
            return False
        scale, zero = draft.array(users[0].inputs[1]), draft.array(users[0].inputs[2])
        own = draft.array(x.zero) if x.zero else None
        if scale is None or zero is None or own is None or zero.size != 1 or scale.size != 1 or zero.dtype != own.dtype:
            return False
        if scale.reshape(-1)[0] != x.scale.reshape(-1)[0] or zero.reshape(-1)[0] != own.reshape(-1)[0]:
            return False
        draft.nodes.append(node.copy(inputs=[x.source, *node.inputs[1:]], outputs=list(users[0].outputs), traced=None))
        draft.skipped.add(users[0].outputs[0])
        return True
