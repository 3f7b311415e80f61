"""Sequences of nodes as one: Gelu, LayerNormalization and LpNormalization as exporters of older operator sets write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.quantization.description.model_editor import attributes_of, copied

_CLOSE = 1e-4


class PatternFusion:
    """A graph in which sequences are looked for; `replace` writes one anew.

    Args:
        model: changed in place.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        graph = model.graph
        self.stored = {t.name: t for t in graph.initializer}
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                if name:
                    self.readers.setdefault(name, []).append(node)
        self.outputs = {v.name for v in graph.output}
        self._gone: set[int] = set()
        self._behind: dict[int, onnx.NodeProto] = {}

    def constant(self, name: str) -> np.ndarray | None:
        """A stored tensor, or what a Constant gives."""
        if name in self.stored:
            return np.asarray(numpy_helper.to_array(self.stored[name]))
        node = self.makers.get(name)
        value = attributes_of(node).get("value") if node is not None and node.op_type == "Constant" else None
        return None if value is None else np.asarray(numpy_helper.to_array(value))

    def is_number(self, name: str, value: float) -> bool:
        """Whether it is this number, for all of its elements."""
        found = self.constant(name)
        return found is not None and found.size == 1 and abs(float(found.reshape(())) - value) <= _CLOSE * abs(value)

    def maker(self, name: str, *op_types: str) -> onnx.NodeProto | None:
        """The node that computes a value, if it is one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in op_types and id(node) not in self._gone else None

    def reader(self, name: str, *op_types: str) -> onnx.NodeProto | None:
        """The only node that reads a value, if it is one of these operators."""
        found = self.readers.get(name, [])
        return found[0] if len(found) == 1 and found[0].op_type in op_types else None

    def other(self, node: onnx.NodeProto, name: str) -> str:
        """The operand of two that is not `name`."""
        return str(node.input[1] if node.input[0] == name else node.input[0])

    def replace(self, nodes: Sequence[onnx.NodeProto], made: onnx.NodeProto) -> bool:
        """Write one node, which gives what the last gives, instead of several; not where others need what is between."""
        inner = {name for node in nodes for name in node.output} - set(made.output)
        members = {id(node) for node in nodes}
        needed = any(id(reader) not in members for name in inner for reader in self.readers.get(name, ()))
        if needed or inner & self.outputs or members & self._gone:
            return False
        self._gone |= members
        self._behind[id(nodes[-1])] = made
        return True

    def finish(self) -> bool:
        """Write the graph; whether anything changed. Constants that nothing reads any more go."""
        if not self._behind:
            return False
        graph = self.model.graph
        left = []
        for node in graph.node:
            if id(node) in self._behind:
                left.append(self._behind[id(node)])
            elif id(node) not in self._gone:
                left.append(copied(node))
        graph.ClearField("node")
        read = {name for node in left for name in node.input} | self.outputs
        graph.node.extend(n for n in left if n.op_type != "Constant" or set(n.output) & read)
        tensors = [copied_tensor(t) for t in graph.initializer if t.name in read]
        del graph.initializer[:]
        graph.initializer.extend(tensors)
        return True

    def name(self, op_type: str) -> str:
        """A name that no node has."""
        taken = {n.name for n in self.model.graph.node} | {n.name for n in self._behind.values()}
        number = 0
        while f"{op_type}_fused_{number}" in taken:
            number += 1
        return f"{op_type}_fused_{number}"


def copied_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A stored tensor separate from the graph that it was in."""
    found = onnx.TensorProto()
    found.CopyFrom(tensor)
    return found


def _nodes(model: onnx.ModelProto, op_type: str) -> Iterable[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == op_type]


def fuse_gelu(model: onnx.ModelProto) -> bool:
    """x / 2 * (1 + erf(x / sqrt(2))), its factors in any order, as onnxruntime's Gelu. Returns whether there were any."""
    fusion = PatternFusion(model)
    for erf in _nodes(model, "Erf"):
        _gelu(fusion, erf)
    changed = fusion.finish()
    if changed and all(entry.domain != "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return changed


def _gelu(fusion: PatternFusion, erf: onnx.NodeProto) -> None:
    scaled = fusion.maker(erf.input[0], "Div", "Mul")
    plus = fusion.reader(erf.output[0], "Add")
    if scaled is None or plus is None or not fusion.is_number(fusion.other(plus, erf.output[0]), 1.0):
        return
    divides = scaled.op_type == "Div"
    factor = math.sqrt(2.0) if divides else math.sqrt(0.5)
    pairs = [(scaled.input[0], scaled.input[1])] + ([] if divides else [(scaled.input[1], scaled.input[0])])
    source = next((value for value, number in pairs if fusion.is_number(number, factor)), "")
    nodes, value, missing = [scaled, erf, plus], plus.output[0], {"x", "half"}
    while source and missing:
        product = fusion.reader(value, "Mul")
        if product is None:
            return
        other = fusion.other(product, value)
        inner = fusion.maker(other, "Mul")
        if other == source:
            missing.discard("x")
        elif fusion.is_number(other, 0.5):
            missing.discard("half")
        elif inner is not None and source in inner.input and fusion.is_number(fusion.other(inner, source), 0.5):
            nodes.append(inner)
            missing.clear()
        else:
            return
        nodes.append(product)
        value = product.output[0]
    if source:
        fusion.replace(nodes, helper.make_node("Gelu", [source], [value], fusion.name("Gelu"), domain="com.microsoft"))


def fuse_layer_normalization(model: onnx.ModelProto) -> bool:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axes. Returns whether there were any."""
    fusion = PatternFusion(model)
    for root in _nodes(model, "Sqrt"):
        _layer_normalization(fusion, root)
    return fusion.finish()


def _axes(fusion: PatternFusion, node: onnx.NodeProto) -> list[int] | None:
    """The axes of a reduction that keeps them."""
    given = attributes_of(node)
    if given.get("keepdims", 1) != 1:
        return None
    found = fusion.constant(node.input[1]) if len(node.input) > 1 else given.get("axes")
    return None if found is None else [int(a) for a in np.asarray(found).reshape(-1)]


def _layer_normalization(fusion: PatternFusion, root: onnx.NodeProto) -> None:
    plus = fusion.maker(root.input[0], "Add")
    variance = next((v for n in (plus.input if plus is not None else ()) if (v := fusion.maker(n, "ReduceMean"))), None)
    if plus is None or variance is None:
        return
    epsilon = fusion.constant(fusion.other(plus, variance.output[0]))
    square = fusion.maker(variance.input[0], "Pow", "Mul")
    centred = fusion.maker(square.input[0], "Sub") if square is not None else None
    mean = fusion.maker(centred.input[1], "ReduceMean") if centred is not None else None
    if epsilon is None or epsilon.size != 1 or square is None or centred is None or mean is None:
        return
    squares = square.input[0] == square.input[1] if square.op_type == "Mul" else fusion.is_number(square.input[1], 2.0)
    axes = _axes(fusion, mean)
    divided = fusion.reader(root.output[0], "Div")
    same = mean.input[0] == centred.input[0] and axes is not None and axes == _axes(fusion, variance)
    if not (squares and same and axes and divided is not None and divided.input[0] == centred.output[0]):
        return
    scaled = fusion.reader(divided.output[0], "Mul")
    shifted = fusion.reader(scaled.output[0], "Add") if scaled is not None else None
    if scaled is None or shifted is None:
        return
    scale, bias = fusion.other(scaled, divided.output[0]), fusion.other(shifted, scaled.output[0])
    first = min(axes)
    whole = sorted(axes) == list(range(first, first + len(axes))) and max(axes) in (-1, *_last(fusion, mean))
    weights = [fusion.constant(name) for name in (scale, bias)]
    if not whole or any(array is None or array.ndim > len(axes) for array in weights):
        return
    made = helper.make_node(
        "LayerNormalization", [mean.input[0], scale, bias], [shifted.output[0]], fusion.name("LayerNormalization"),
        axis=first, epsilon=float(epsilon.reshape(())),
    )  # fmt: skip
    fusion.replace([mean, centred, square, variance, plus, root, divided, scaled, shifted], made)


def fuse_lp_normalization(model: onnx.ModelProto, epsilon: float = 1e-12) -> bool:
    """x / max(|x|, epsilon) over the last axis, by ReduceL2, Clip and Expand. Returns whether there were any."""
    fusion = PatternFusion(model)
    for norm in _nodes(model, "ReduceL2"):
        clip = fusion.reader(norm.output[0], "Clip")
        spread = fusion.reader(clip.output[0], "Expand") if clip is not None else None
        divided = fusion.reader(spread.output[0], "Div") if spread is not None else None
        if clip is None or spread is None or divided is None or _axes(fusion, norm) not in ([-1], _last(fusion, norm)):
            continue
        least = fusion.constant(clip.input[1]) if len(clip.input) > 1 else attributes_of(clip).get("min")
        bounded = least is not None and abs(float(np.asarray(least).reshape(())) - epsilon) < epsilon / 10
        if bounded and len(clip.input) < 3 and list(divided.input) == [norm.input[0], spread.output[0]]:
            name = fusion.name("LpNormalization")
            made = helper.make_node("LpNormalization", [norm.input[0]], divided.output, name, p=2, axis=-1)
            fusion.replace([norm, clip, spread, divided], made)
    return fusion.finish()


def _last(fusion: PatternFusion, node: onnx.NodeProto) -> list[int]:
    """The last axis counted from the front, where the rank is stated."""
    graph = fusion.model.graph
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.name == node.input[0] and value.type.tensor_type.HasField("shape"):
            return [len(value.type.tensor_type.shape.dim) - 1]
    return [-1]
