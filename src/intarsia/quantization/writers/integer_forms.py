"""A model of operators on integers: what its values are called once they are quantised, and nodes in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import attributes_of, copied, numbers_of, tensor_of
from intarsia.quantization.description.node_order import names_read, subgraphs
from intarsia.quantization.description.parameters import StoredRequest, TensorParameters, stored_parameters
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.description.tensor_marks import logger, opset_of
from intarsia.quantization.numerics.affine import AffineParameters, quantized
from intarsia.quantization.numerics.integer_bias import quantized_bias, widened_weight_scale
from intarsia.quantization.numerics.quant_types import FLOAT8, FLOAT_TYPES, QuantizedValueType, storage_dtype


@dataclass
class QuantizedValue:
    """A value in its quantised form: names of it, its scale and its zero point, in onnxruntime's order."""

    original_name: str
    q_name: str
    scale_name: str
    zp_name: str
    value_type: Any = QuantizedValueType.Input
    axis: int | None = None
    node_type: str | None = None
    node_qtype: int | None = None
    scale_type: int | None = None


@dataclass
class GraphNames:
    """A graph's stored tensors and the types of its values, and those of the graph around it.

    Attributes:
        computed: values that nodes of the graph compute, and its inputs.
    """

    graph: onnx.GraphProto
    outer: GraphNames | None = None
    stored: dict[str, TensorProto] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.graph
        self.stored = {t.name: t for t in graph.initializer}
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.type.HasField("tensor_type"):
                self.types[value.name] = value.type.tensor_type.elem_type
        self.computed = {v.name for v in graph.input} | {n for node in graph.node for n in node.output if n}

    def tensor(self, name: str) -> tuple[GraphNames, TensorProto] | None:
        """A stored tensor, of this graph or of one around it, and where it is."""
        if name in self.stored:
            return self, self.stored[name]
        return self.outer.tensor(name) if self.outer is not None and name not in self.computed else None

    def element_type(self, name: str) -> int | None:
        """A value's element type, where it is known."""
        found = self.tensor(name)
        if found is not None:
            return int(found[1].data_type)
        if name in self.types:
            return self.types[name]
        return self.outer.element_type(name) if self.outer is not None and name not in self.computed else None

    def add(self, tensor: TensorProto) -> None:
        """Store a tensor, unless one has its name."""
        if tensor.name not in self.stored:
            self.graph.initializer.append(tensor)
            self.stored[tensor.name] = self.graph.initializer[-1]


class IntegerWriter:
    """Writes a graph's nodes anew, those that can be on integers.

    Args:
        graph: changed in place by `write`.
        activations: parameters of tensors with calibrated ranges; None: ranges are found in each run.
        outer: the writer of the graph around it.
    """

    def __init__(
        self, graph: onnx.GraphProto, model: onnx.ModelProto, settings: QuantizerSettings,
        activations: Mapping[str, TensorParameters] | None, outer: IntegerWriter | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.model, self.settings = graph, model, settings
        self.activations, self.outer = activations, outer
        self.names: GraphNames = GraphNames(graph, outer.names if outer is not None else None)
        self.opset = opset_of(model)
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, QuantizedValue] = {}
        self.parameters: dict[str, AffineParameters] = outer.parameters if outer is not None else {}
        self._there = {v.name for v in graph.input}

    @property
    def static(self) -> bool:
        """Whether ranges were calibrated."""
        return self.activations is not None

    # Reading

    def value(self, name: str) -> QuantizedValue | None:
        """The quantised form of a value, of graphs around this one too."""
        if name in self.values:
            return self.values[name]
        return self.outer.value(name) if self.outer is not None and name not in self.names.computed else None

    def is_stored(self, name: str) -> bool:
        """Whether it is a stored tensor of floats."""
        found = self.names.tensor(name)
        return found is not None and found[1].data_type in FLOAT_TYPES

    def array(self, name: str) -> np.ndarray:
        """A stored tensor."""
        found = self.names.tensor(name)
        assert found is not None
        return np.asarray(numpy_helper.to_array(found[1]))

    def is_float(self, name: str) -> bool:
        """Whether a value is a tensor of float32 or float16."""
        kind = self.names.element_type(name)
        if kind is None:
            logger.warning("Failed to infer data type of tensor: %r: it stays as it is; declare its type in the model", name)
        return kind in FLOAT_TYPES

    def float_type(self, name: str) -> int:
        """The element type of a float value.

        Raises:
            InvalidArgument: it is not known, and the option DefaultTensorType is not set.
        """
        found = self.names.element_type(name) or self.settings.option("DefaultTensorType", None)
        if not found:
            raise InvalidArgument(
                f"Unable to find data type for weight_name={name!r}: shape inference gives no type for it, as behind an "
                "operator of another domain. Set the extra option DefaultTensorType, usually to onnx.TensorProto.FLOAT"
            )
        return int(found)

    def can_quantize(self, name: str) -> bool:
        """Whether a value can be had in quantised form."""
        if not name or self.value(name) is not None or self.is_stored(name):
            return True
        if self.names.tensor(name) is not None:
            return False
        return not self.static or name in (self.activations or {})

    # Values

    def output(self, name: str, parameters: AffineParameters | None = None) -> QuantizedValue | None:
        """The quantised form that a node's output is to have: its scale and zero point are stored. None without a range."""
        found = (self.activations or {}).get(name)
        chosen = parameters if parameters is not None or found is None else found.original
        return None if chosen is None else self._described(name, chosen)

    def fixed_output(self, name: str, scale: float, point: int) -> QuantizedValue | None:
        """`output` with a scale that does not follow from the range."""
        found = (self.activations or {}).get(name)
        if found is None:
            return None
        kind, dtype = found.original.kind, found.original.scale.dtype
        fixed = AffineParameters(np.array(scale, dtype), np.array(point).astype(storage_dtype(kind)), kind, source="given")
        return self._described(name, fixed)

    def _described(self, name: str, parameters: AffineParameters) -> QuantizedValue:
        found = QuantizedValue(name, f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")
        self._store_parameters(found, parameters, self.names)
        return found

    def _store_parameters(self, value: QuantizedValue, parameters: AffineParameters, where: GraphNames) -> None:
        scale = parameters.scale if parameters.axis is not None else parameters.scale.reshape(())
        point = parameters.zero_point if parameters.axis is not None else parameters.zero_point.reshape(())
        where.add(numbers_of(value.zp_name, point, parameters.kind))
        where.add(numbers_of(value.scale_name, scale, helper.np_dtype_to_tensor_dtype(scale.dtype)))
        self.parameters[value.scale_name] = parameters

    def input(self, name: str) -> QuantizedValue:
        """A node's input in quantised form: stored so, or by a QuantizeLinear behind what computes it.

        `can_quantize` is true for it.
        """
        if not name:
            return QuantizedValue("", "", "", "")
        found = self.value(name)
        if found is not None:
            return found
        if self.is_stored(name):
            kind, settings = self.settings.activation_type, self.settings
            usual = settings.symmetric_weights(kind) if kind == settings.weight_type else settings.symmetric_activations
            return self.weight(name, StoredRequest(kind, usual))
        if self.outer is not None and name not in self.names.computed:
            return self.outer.input(name)
        return self._quantized(name)

    def _quantized(self, name: str) -> QuantizedValue:
        value = self.output(name)
        if value is not None:
            reads = [name, value.scale_name, value.zp_name]
            self.emit(helper.make_node("QuantizeLinear", reads, [value.q_name], f"{name}_QuantizeLinear"))
        else:
            value = self._dynamic(name)
        self.values[name] = value
        return value

    def _dynamic(self, name: str) -> QuantizedValue:
        """A range that is found in each run."""
        value = QuantizedValue(name, f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")
        if self.opset > 10 and self.settings.activation_type == TensorProto.UINT8:
            source = name
            if self.names.element_type(name) == TensorProto.FLOAT16:  # the operator takes float32 alone
                source = f"{name}_float32"
                self.emit(helper.make_node("Cast", [name], [source], f"{name}_Cast", to=TensorProto.FLOAT))
            results = [value.q_name, value.scale_name, value.zp_name]
            self.emit(helper.make_node("DynamicQuantizeLinear", [source], results, f"{name}_QuantizeLinear"))
        else:
            self._ranges_by_reductions(name, value)
        return value

    def _ranges_by_reductions(self, name: str, value: QuantizedValue) -> None:
        """The same of older operators, and for int8, which is symmetric."""
        kind, number = self.settings.activation_type, self.float_type(name)
        dtype = helper.tensor_dtype_to_np_dtype(number)

        def node(op_type: str, reads: Sequence[str], result: str, **given: Any) -> str:
            self.emit(helper.make_node(op_type, list(reads), [result], f"{result}_node", **given))
            return result

        def constant(tail: str, number: float) -> str:
            self.names.add(numpy_helper.from_array(np.array(number, dtype), f"fixed_{tail}_{np.dtype(dtype).name}"))
            return f"fixed_{tail}_{np.dtype(dtype).name}"

        zero = constant("zero", 0.0)
        low = node("Min", [node("ReduceMin", [name], f"{name}_ReduceMin", keepdims=0), zero], f"{name}_least")
        high = node("Max", [node("ReduceMax", [name], f"{name}_ReduceMax", keepdims=0), zero], f"{name}_most")
        if kind == TensorProto.INT8:
            largest = node("Max", [node("Abs", [low], f"{name}_least_Abs"), high], f"{name}_Abs_Max")
            width, steps = largest, constant("steps_of_int8", 127.0)
        else:
            width, steps = node("Sub", [high, low], f"{name}_width"), constant("steps_of_uint8", 255.0)
        floor = constant("least_scale", float(np.finfo(dtype).tiny))
        node("Max", [node("Div", [width, steps], f"{name}_scale_or_zero"), floor], value.scale_name)
        if kind == TensorProto.INT8:
            value.zp_name = "fixed_zero_zp"
            self.names.add(tensor_of(value.zp_name, np.array(0, np.int8), kind))
        else:
            ratio = node("Div", [node("Sub", [zero, low], f"{name}_below"), value.scale_name], f"{name}_steps_below")
            node("Cast", [node("Floor", [ratio], f"{name}_point")], value.zp_name, to=kind)
        reads = [name, value.scale_name, value.zp_name]
        self.emit(helper.make_node("QuantizeLinear", reads, [value.q_name], f"{name}_QuantizeLinear"))

    def weight(self, name: str, request: StoredRequest, widen: tuple[QuantizedValue, str] | None = None) -> QuantizedValue:
        """A stored tensor in quantised form, stored where it was.

        Args:
            widen: the input that it is multiplied by, and a bias that must fit 32 bits with the scale of both.
        """
        known = self.value(name)
        if known is not None:
            return known
        found = self.names.tensor(name)
        assert found is not None
        where, values = found[0], self.array(name)
        axis = request.axis
        parameters = stored_parameters(name, values, request, self.settings)
        if widen is not None and widen[0].scale_name in self.parameters and not np.any(parameters.zero_point != 0):
            scale = widened_weight_scale(self.parameters[widen[0].scale_name].scale, parameters.scale, self.array(widen[1]))
            parameters = parameters if scale is None else parameters.with_scale(scale)
        value = QuantizedValue(
            name, f"{name}_quantized", f"{name}_scale", f"{name}_zero_point", QuantizedValueType.Initializer, axis
        )  # fmt: skip
        where.add(tensor_of(value.q_name, quantized(values, parameters), parameters.kind))
        self._store_parameters(value, parameters, where)
        self._owner(where).values[name] = value
        return value

    def _owner(self, where: GraphNames) -> IntegerWriter:
        """The writer of the graph that has these names."""
        return self if where is self.names or self.outer is None else self.outer._owner(where)

    def bias(self, name: str, source: QuantizedValue, weight: QuantizedValue, beta: float = 1.0) -> str:
        """A stored bias in 32-bit integers; with float8 in float32. Returns its name."""
        result, number = f"{name}_quantized", 0
        while result in self.names.stored:  # of another node: its scale is another
            number += 1
            result = f"{name}_quantized_{number}"
        values = self.array(name)
        if beta == 0:
            values, beta = np.zeros_like(values), 1.0
        if self.settings.weight_type == FLOAT8:
            self.names.add(numpy_helper.from_array(values.astype(np.float32), result))
        else:
            first, second = (self.parameters[v.scale_name].scale for v in (source, weight))
            found, clipped = quantized_bias(values, np.asarray(first * second * beta))
            if clipped:
                logger.warning("Quantized bias `%s` exceeds the range of a int32. The bias scale is too small.", name)
            self.names.add(numpy_helper.from_array(found, result))
        return result

    # Writing

    def emit(self, node: onnx.NodeProto) -> None:
        """Add a node at the end."""
        self.nodes.append(node)
        self._there.update(node.output)

    def keep(self, node: onnx.NodeProto) -> None:
        """Add a node as it is, behind DequantizeLinear of what it reads in floats."""
        captured = [n for sub in subgraphs(node) for n in names_read(sub)] if node.attribute else []
        for name in dict.fromkeys([*node.input, *captured]):
            self.dequantize(name)
        self.emit(node)

    def dequantize(self, name: str) -> None:
        """Compute a value in floats, if it is there only quantised."""
        value = self.values.get(name)
        if value is None or name in self._there:
            return
        extra = {} if value.axis is None else {"axis": value.axis}
        reads = [value.q_name, value.scale_name, value.zp_name]
        self.emit(helper.make_node("DequantizeLinear", reads, [name], f"{name}_DequantizeLinear", **extra))

    def write(self, rules: Mapping[str, Any]) -> None:
        """Write all nodes by the rules of their operators: `rules[op_type](writer, node)`."""
        inside = bool(self.settings.option("EnableSubgraph"))
        for node in list(self.graph.node):
            own = copied(node)
            if inside:
                self._bodies(own, rules)
            rule = rules.get(node.op_type)
            if rule is not None:
                rule(self, own)
            else:
                self.keep(own)
        for output in self.graph.output:
            self.dequantize(output.name)
        self.graph.ClearField("node")
        self.graph.node.extend(self.nodes)

    def _bodies(self, node: onnx.NodeProto, rules: Mapping[str, Any]) -> None:
        for sub in subgraphs(node):
            IntegerWriter(sub, self.model, self.settings, self.activations, self).write(rules)


def renamed(node: onnx.NodeProto) -> str:
    """The name of what replaces a node."""
    return f"{node.name}_quant" if node.name else ""


def other_attributes(node: onnx.NodeProto, *left_out: str) -> dict[str, Any]:
    """A node's attributes without some."""
    return {name: value for name, value in attributes_of(node).items() if name not in left_out}
