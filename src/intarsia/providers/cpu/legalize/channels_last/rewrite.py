"""Channels-last layout for the parts of a graph around convolutions.

Convolution and pooling nodes are replaced by their channels-last forms, and the transposes that this needs are pushed along:
a value that has a channels-last twin lends it to every node that can work on it, and is transposed back only where a node
cannot. So a network of convolutions is transposed once where it begins and once where it ends. Transposes that the model
itself has from or to channels-last cost nothing: the value behind is the twin, or has the value before as its twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.channels_last import DOMAIN, OPERATORS
from intarsia.ops.internal.integers import DOMAIN as INTEGERS
from intarsia.providers.cpu.kernels.conv.conv_transpose import (
    EachPixel,
    as_convolution,
    is_transposed_convolution,
    transposed_convolution,
)
from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import is_byte_convolution
from intarsia.providers.cpu.legalize.channels_last.blocks import Blocks, has_computed_filters, is_bent, is_sampled
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

_ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu "
    "Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod "
    "Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish "
    "Tan Tanh ThresholdedRelu Where Xor".split()
)
_REDUCTIONS = frozenset("ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare".split())
_POOLS = frozenset("MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split())
_NEAR = 64  # values that are looked at behind a transpose of the model


def assign_channels_last(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with convolutions in channels-last form, or None if it has none that a template takes.

    Pooling alone is not worth the transposes: loops take its operands as they are.
    """
    graph = inference.graph
    windowed = [n for n in graph.nodes if _is_windowed(n, inference)]
    special = (has_computed_filters(n, inference) or is_bent(n, inference) or is_sampled(n, inference) for n in graph.nodes)
    if all(n.op_type in _POOLS for n in windowed) and not any(special):
        return None
    return _Rewrite(inference, env).run()


def _is_windowed(node: Node, inference: Inference) -> bool:
    if is_transposed_convolution(node, inference):
        return True
    if node.domain or node.op_type not in OPERATORS or sum(bool(o) for o in node.outputs) != 1:
        return False
    kind = inference.types.get(node.inputs[0])
    if not isinstance(kind, TensorType) or kind.shape is None:
        return False
    if node.op_type == "ConvInteger":
        return len(kind.shape) in (3, 4, 5) and is_byte_convolution(node, inference)
    bytes_ = node.op_type == "MaxPool" and kind.dtype in (DType.UINT8, DType.INT8)
    if not bytes_ and kind.dtype not in (DType.FLOAT, DType.DOUBLE):
        return False
    if node.op_type == "Conv" and node.inputs[1] not in inference.graph.constants:
        return False
    return 3 <= len(kind.shape) <= 5


class _Rewrite(Blocks):
    def __init__(self, inference: Inference, env: LegalizeEnv) -> None:
        super().__init__(inference)
        self.env = env

    def run(self) -> Graph:
        outputs = self.graph.output_names()
        for node in self.inference.graph.nodes:
            if node.outputs and node.outputs[0] in self.done:
                continue
            rule = self._rule(node)
            if rule is None or not rule(node):
                for name in sorted(node.used_names()):
                    self.restore(name)
                if node.has_subgraphs:
                    self._materialize(node.used_names())
                self.nodes.append(node.copy())
        for name in outputs:
            self.restore(name)
        self._materialize(set(outputs))
        for node in self.nodes:
            node.inputs = [self.same.get(name, name) for name in node.inputs]
        return self.finish()

    def _materialize(self, names: set[str]) -> None:
        """Make sure that values exist under their own names."""
        for name in sorted((names & self.same.keys()) - self.stored):
            self._append("Identity", [self.same[name]], name)
            self.stored.add(name)

    def _rule(self, node: Node) -> Callable[[Node], bool] | None:
        if _is_windowed(node, self.inference):
            return self._windowed
        if has_computed_filters(node, self.inference):
            return self._computed_filters
        if is_bent(node, self.inference):
            return self._bent
        if is_sampled(node, self.inference):
            return self._grid_sample
        if node.domain == INTEGERS and node.inputs[0] in self.twin:
            return self._lookup if node.op_type == "Lookup" else self._elementwise
        if not node.domain and node.op_type == "Transpose":
            return self._transpose
        if not node.domain and node.op_type == "Split" and node.inputs[0] in self.twin:
            return self._split
        if (node.domain, node.op_type) == ("", "DynamicQuantizeLinear") and node.outputs[0] and node.inputs[0] in self.twin:
            return self._dynamic_quantize
        if node.domain or len([o for o in node.outputs if o]) != 1 or not any(n in self.twin for n in node.inputs):
            return None
        if node.op_type in _ELEMENTWISE:
            return self._elementwise
        if node.op_type in _REDUCTIONS:
            return self._reduction
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return self._quantize
        rules = {
            "Concat": self._concat, "Pad": self._pad, "Resize": self._resize, "Upsample": self._resize,
            "Squeeze": self._squeeze, "Slice": self._slice, "Reshape": self._reshape,
            "Flatten": self._flatten, "DepthToSpace": self._depth_to_space, "SpaceToDepth": self._space_to_depth,
            "InstanceNormalization": self._normalization, "GroupNormalization": self._normalization,
        }  # fmt: skip
        return rules.get(node.op_type)

    # --- rules: whether the node was rewritten ---

    def _windowed(self, node: Node) -> bool:
        if node.op_type == "ConvTranspose":
            return self._transposed_convolution(node)
        return self._emit(node, [self._last(node.inputs[0]), *node.inputs[1:]], domain=DOMAIN)

    def _transposed_convolution(self, node: Node) -> bool:
        """A convolution with stride 1 that computes all pixels of a stride's block as channels, or one for each of them beside
        each other (`conv_transpose.SCHEDULES`), and their interleaving.
        """
        template = transposed_convolution(node, self.inference)
        if template is None:
            return False
        schedule = self.env.choose(template)
        (output,) = [o for o in node.outputs if o]
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        weights, lengths = self.graph.constants[node.inputs[1]], self.shape(node.inputs[0])[2:]
        image, blocks, twin = self._last(node.inputs[0]), self.name(output), self.name(output)

        def add(
            op: str, inputs: list[str], name: str, attributes: dict[str, Any], version: int = 1, domain: str = DOMAIN
        ) -> None:
            own = node.widened_from
            self.nodes.append(
                Node(op, inputs, [name], attributes, domain, node.name, version, origin=node.origin, widened_from=own)
            )

        if not isinstance(schedule, EachPixel):
            given = self.graph.constants[bias].numpy() if bias else None
            parts = as_convolution(node, weights.numpy(), given, lengths)
            arranged = self._arranged(weights, parts.weights.shape, lambda w: as_convolution(node, w, None, lengths).weights)
            inputs = [image, arranged, *([self.constant(bias, parts.bias)] if parts.bias is not None else [])]
            add("Conv", inputs, blocks, parts.convolution, 11)
            interleave = parts.interleave
        else:
            phases = schedule.phases(template)
            rank, made = len(lengths), [self.name(output) for _ in phases]
            for phase, name in zip(phases, made, strict=True):
                shape = (*weights.shape[1::-1], *phase.convolution["kernel_shape"])
                inputs = [image, self._arranged(weights, shape, phase.weights), *([bias] if bias else [])]
                add("Conv", inputs, name, phase.convolution, 11)
            add("Concat", made, blocks, {"axis": rank + 1}, 13, "")
            strides = list(node.attributes["strides"])
            interleave = {"blocks": strides, "begins": [0] * rank, "ends": [0] * rank, "group": 1}
        add("Interleave", [blocks], twin, interleave)
        self.replace(output, twin)
        return True

    def _elementwise(self, node: Node) -> bool:
        (output,) = [o for o in node.outputs if o]
        rank = self.rank(output)
        if rank < 3:
            return False
        inputs = []
        for name in node.inputs:
            moved = self._operand(name, rank)
            if moved is None:
                return False
            inputs.append(moved)
        return self._emit(node, inputs)

    def _lookup(self, node: Node) -> bool:
        return self._emit(node, [self.twin[node.inputs[0]], node.inputs[1]])

    def _quantize(self, node: Node) -> bool:
        """By one scale for the whole tensor: element-wise."""
        scales = [self.inference.types.get(n) for n in node.inputs[1:] if n]
        if not all(isinstance(t, TensorType) and t.shape is not None and all(d == 1 for d in t.shape) for t in scales):
            return False
        return self._elementwise(node)

    def _dynamic_quantize(self, node: Node) -> bool:
        """Bytes in the order of the floats; their scale and zero point have no order."""
        y, *numbers = node.outputs
        twin = self.name(y)
        self.nodes.append(node.copy(inputs=[self.twin[node.inputs[0]]], outputs=[twin, *numbers]))
        self.replace(y, twin)
        return True

    def _operand(self, name: str, rank: int) -> str | None:
        """An operand of an element-wise node as it looks beside channels-last tensors of `rank`."""
        if not name or (name in self.twin and self.rank(name) == rank):
            return self.twin.get(name, "")
        kind = self.inference.types.get(name)
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        if all(d == 1 for d in kind.shape):
            return name if name not in self.missing else None
        constant = self.graph.constants.get(name)
        if constant is not None and constant.size < 1 << 20:
            array = constant.numpy()
            array = array.reshape((1,) * (rank - array.ndim) + array.shape)
            return self.constant(name, np.moveaxis(array, 1, -1))
        if len(kind.shape) == rank and name not in self.missing:
            return self._last(name)
        return None

    def _axis(self, axis: int, rank: int) -> int:
        axis = axis + rank if axis < 0 else axis
        return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1

    def _concat(self, node: Node) -> bool:
        rank = self.rank(node.outputs[0])
        inputs = [self._operand(n, rank) for n in node.inputs]
        if any(i is None or self.rank(n) != rank for i, n in zip(inputs, node.inputs, strict=True)):
            return False
        attributes = {**node.attributes, "axis": self._axis(int(node.attributes["axis"]), rank)}
        return self._emit(node, [i for i in inputs if i is not None], attributes=attributes)

    def _split(self, node: Node) -> bool:
        rank = self.rank(node.inputs[0])
        axis = self._axis(int(node.attributes.get("axis", 0)), rank)
        outputs = [self.name(o) if o else "" for o in node.outputs]
        attributes = {**node.attributes, "axis": axis}
        self.nodes.append(
            node.copy(inputs=[self.twin[node.inputs[0]], *node.inputs[1:]], outputs=outputs, attributes=attributes)
        )
        for output, twin in zip(node.outputs, outputs, strict=True):
            if output:
                self.replace(output, twin)
        return True

    def _slice(self, node: Node) -> bool:
        axes = self._ints(node, 3, "axes")
        if node.inputs[0] not in self.twin or axes is None or "axes" in node.attributes:
            return False
        moved = self.constant(node.inputs[3], np.array([self._axis(a, self.rank(node.inputs[0])) for a in axes], np.int64))
        return self._emit(node, [self.twin[node.inputs[0]], *node.inputs[1:3], moved, *node.inputs[4:]])

    def _transpose(self, node: Node) -> bool:
        """The model's own way from or to channels-last."""
        (source,), (output,) = node.inputs, node.outputs
        rank = self.rank(source)
        perm = [int(p) for p in node.attributes.get("perm", range(rank)[::-1])]
        if rank < 3:
            return False
        if perm == [0, *range(2, rank), 1] and source in self.twin:
            self.same[output] = self.same.get(self.twin[source], self.twin[source])
            return True
        if perm == [0, rank - 1, *range(1, rank - 1)] and self._is_near_convolution(output):
            self.restore(source)
            self.replace(output, self.same.get(source, source))
            return True
        return False

    def _is_near_convolution(self, name: str) -> bool:
        """Whether a node that reads the value, directly or behind nodes that pass on a layout, computes channels-last."""
        seen, names = {name}, [name]
        for read in names:
            for node in self.consumers.get(read, ()):
                if _is_windowed(node, self.inference) or any(n in self.twin for n in node.inputs):
                    return True
                if self._passes_layout(node, read):
                    fresh = [o for o in node.outputs if o not in seen]
                    seen.update(fresh)
                    names += fresh
            if len(names) > _NEAR:
                return False
        return False

    def _passes_layout(self, node: Node, name: str) -> bool:
        """Whether `node` would compute its result channels-last if `name` were so."""
        if node.domain:
            return False
        if node.op_type in _ELEMENTWISE or node.op_type == "Concat":
            return True
        if name != node.inputs[0]:
            return False
        if node.op_type == "Reshape":
            return self._moved_shape(node, self.shape(name), self.shape(node.outputs[0])) is not None
        return node.op_type in ("Pad", "Resize", "Split", "Upsample")

    def _flatten(self, node: Node) -> bool:
        """One pixel has the same numbers in both layouts."""
        before, after = self.shape(node.inputs[0]), self.shape(node.outputs[0])
        if not before or len(after) != 2 or any(d != 1 for d in before[2:]) or after[0] != before[0] or after[1] != before[1]:
            return False
        if not isinstance(after[1], int):
            return False
        self._reshaped(node, self.twin[node.inputs[0]], node.outputs[0], (0, after[1]))
        return True

    def _reshape(self, node: Node) -> bool:
        """Pixels in another arrangement, one pixel, or channels that are shuffled (by way of two axes, which are exchanged)."""
        if node.inputs[0] not in self.twin:
            return False
        (output,) = node.outputs
        before, after = self.shape(node.inputs[0]), self.shape(output)
        if len(after) < 2 or len(before) < 3 or after[0] != before[0]:
            return False
        if len(after) == 2:
            return self._flatten(node)
        moved = self._moved_shape(node, before, after)
        if moved is not None:
            twin = self.name(output)
            self._reshaped(node, self.twin[node.inputs[0]], twin, moved)
            self.replace(output, twin)
            return True
        return all(isinstance(d, int) for d in after[1:]) and self._shuffle(node, before, after)

    def _moved_shape(self, node: Node, before: tuple[Dim, ...], after: tuple[Dim, ...]) -> tuple[int, ...] | str | None:
        """The shape of a Reshape's result as channels-last, where only pixels are arranged anew: numbers (0: the batch), or
        the name of the shape that is to be permuted."""
        if len(before) < 3 or len(after) < 3 or after[:2] != before[:2] or not isinstance(after[1], int):
            return None
        if all(isinstance(d, int) for d in after[2:]):
            return (0, *numbers_of(after[2:]), after[1])
        given = self.graph.constants.get(node.inputs[1])
        if given is not None:
            sizes = [d if isinstance(d, int) else int(g) for d, g in zip(after, given.numpy().reshape(-1), strict=True)]
            return (0, *sizes[2:], after[1]) if sizes.count(-1) < 2 and 0 not in sizes[2:] else None
        known = self.inference.values.get(node.inputs[1])
        return node.inputs[1] if known is not None and not any(d == 0 for d in known[2:]) else None

    def _shuffle(self, node: Node, before: tuple[Dim, ...], after: tuple[Dim, ...]) -> bool:
        exchange = self._only_consumer(node.outputs[0], "Transpose")
        joined = self._only_consumer(exchange.outputs[0], "Reshape") if exchange is not None else None
        rank = len(before)
        if exchange is None or joined is None or len(after) != rank + 1 or after[3:] != before[2:]:
            return False
        perm = [int(p) for p in exchange.attributes.get("perm", ())]
        if perm != [0, 2, 1, *range(3, rank + 1)] or self.shape(joined.outputs[0]) != before:
            return False
        if not isinstance(before[1], int) or not all(isinstance(d, int) for d in before[2:]):
            return False
        (output,) = joined.outputs
        parts, mixed, twin = (self.name(output) for _ in range(3))
        self._reshaped(node, self.twin[node.inputs[0]], parts, (0, *numbers_of((*before[2:], *after[1:3]))))
        self._append("Transpose", [parts], mixed, perm=[*range(rank - 1), rank, rank - 1])
        self._reshaped(joined, mixed, twin, (0, *numbers_of(before[2:]), before[1]))
        self.replace(output, twin)
        self.done |= {exchange.outputs[0], output}
        return True

    def _only_consumer(self, name: str, op_type: str) -> Node | None:
        found = self.consumers.get(name, [])
        if len(found) != 1 or name in self.graph.output_names():
            return None
        return found[0] if found[0].op_type == op_type and not found[0].domain and found[0].inputs[0] == name else None

    def _reduction(self, node: Node) -> bool:
        rank = self.rank(node.inputs[0])
        axes = self._ints(node, 1, "axes")
        if not axes or rank < 3:
            return False
        moved = sorted(self._axis(a, rank) for a in axes)
        keep = bool(node.attributes.get("keepdims", 1))
        if not keep and sorted(a % rank for a in axes) != list(range(2, rank)):
            return False
        attributes = {a: v for a, v in node.attributes.items() if a != "axes"}
        inputs = [self.twin[node.inputs[0]]]
        if "axes" in node.attributes:
            attributes["axes"] = moved
        else:
            inputs.append(self.constant(node.inputs[1], np.array(moved, np.int64)))
        if keep:
            return self._emit(node, inputs, attributes=attributes)
        self.nodes.append(node.copy(inputs=inputs, attributes=attributes))
        return True

    def _pad(self, node: Node) -> bool:
        pads = self._ints(node, 1, "pads")
        rank = self.rank(node.inputs[0])
        if pads is None or "pads" in node.attributes or len(pads) != 2 * rank or len(node.inputs) > 3 and node.inputs[3]:
            return False
        order = [0, *range(2, rank), 1]
        moved = [*(pads[i] for i in order), *(pads[rank + i] for i in order)]
        made = self.constant(node.inputs[1], np.array(moved, np.int64))
        return self._emit(node, [self.twin[node.inputs[0]], made, *node.inputs[2:]])

    def _resize(self, node: Node) -> bool:
        """Scales, sizes and regions in the order of the twin's axes; those that a run computes are permuted by it."""
        rank = self.rank(node.inputs[0])
        if "axes" in node.attributes or node.inputs[0] not in self.twin:
            return False
        order = [0, *range(2, rank), 1]
        attributes, inputs = dict(node.attributes), [self.twin[node.inputs[0]]]
        if "scales" in attributes:
            attributes["scales"] = [attributes["scales"][axis] for axis in order]
        regions = 1 if node.op_type == "Resize" and node.version >= 11 else -1
        for i, name in enumerate(node.inputs[1:], 1):
            constant = self.graph.constants.get(name)
            if not name or (constant is not None and constant.size == 0):
                inputs.append(name)
                continue
            places = [*order, *(rank + axis for axis in order)] if i == regions else order
            if constant is not None:
                inputs.append(self.constant(name, constant.numpy()[places]))
            else:
                inputs.append(self.name(name))
                self._append("Gather", [name, self.constant(name, np.array(places, np.int64))], inputs[-1], axis=0)
        return self._emit(node, inputs, attributes=attributes)

    def _squeeze(self, node: Node) -> bool:
        """Heights and widths of one element drop out; the rest is channels-last still."""
        axes, rank = self._ints(node, 1, "axes"), self.rank(node.inputs[0])
        if not axes or rank - len(axes) < 2 or any(a % rank < 2 for a in axes):
            return False
        moved = sorted(self._axis(a, rank) for a in axes)
        attributes, inputs = dict(node.attributes), [self.twin[node.inputs[0]]]
        if "axes" in attributes:
            attributes["axes"] = moved
        else:
            inputs.append(self.constant(node.inputs[1], np.array(moved, np.int64)))
        if rank - len(axes) > 2:
            return self._emit(node, inputs, attributes=attributes)
        self.nodes.append(node.copy(inputs=inputs, attributes=attributes))  # images and channels: no order to change
        return True
