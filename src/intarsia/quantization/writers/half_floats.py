"""A model that computes in float16 or bfloat16, but for nodes that cannot, or whose values are too large.

A value that a converted node computes is called `NAME_half`; a Cast gives `NAME` in float32 again where something needs that:
outputs of the model, nodes that stay as they were, bodies of control flow. So inputs and outputs keep their types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import copied, keep_initializers, rename
from intarsia.quantization.description.model_files import with_shapes
from intarsia.quantization.description.node_order import names_read, subgraphs
from intarsia.quantization.description.tensor_marks import opset_of

_KINDS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
_DTYPES = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
USUALLY_IN_FLOAT32 = frozenset({"NonMaxSuppression", "TopK", "CumSum", "Range", "RandomNormal", "RandomUniform"})
"""Operators whose results depend on the last digits."""


@dataclass
class HalfModel:
    """What became of a model.

    Attributes:
        in_float32: nodes that stay in float32 -> why.
        converted: how many nodes do not.
    """

    model: onnx.ModelProto
    in_float32: dict[str, str] = field(default_factory=dict)
    converted: int = 0


def to_half_floats(
    model: onnx.ModelProto, kind: str = "float16", in_float32: Collection[str] = (), largest: dict[str, float] | None = None
) -> HalfModel:
    """The model, in place, in 16-bit floats.

    Args:
        kind: "float16" or "bfloat16".
        in_float32: names of nodes, and operators, that stay in float32.
        largest: the largest magnitude of values, where it is known: a node that reads or computes a larger one than the type
            has stays in float32.

    Raises:
        InvalidArgument: another type.
    """
    if kind not in _KINDS:
        raise InvalidArgument(f"16-bit floats: expected {' or '.join(_KINDS)}, got {kind!r}")
    return _Conversion(with_shapes(model), _KINDS[kind], {*in_float32, *USUALLY_IN_FLOAT32}, largest or {}).done()


class _Conversion:
    def __init__(self, model: onnx.ModelProto, kind: int, in_float32: set[str], largest: dict[str, float]) -> None:
        self.model, self.kind, self.dtype = model, kind, _DTYPES[kind]
        self.keep, self.largest = in_float32, largest
        self.limit = float(ml_dtypes.finfo(self.dtype).max)
        graph = model.graph
        self.stored = {t.name: t for t in graph.initializer}
        self.types = {t.name: t.data_type for t in graph.initializer}
        for value in (*graph.value_info, *graph.output, *graph.input):
            self.types.setdefault(value.name, value.type.tensor_type.elem_type)
        self.nodes: list[onnx.NodeProto] = []
        self.half: set[str] = set()  # computed in 16 bits, or cast to that
        self.single: set[str] = {v.name for v in graph.input} | self.stored.keys()
        self.result = HalfModel(model)

    def done(self) -> HalfModel:
        graph = self.model.graph
        for node in graph.node:
            own = copied(node)
            why = self._why_float32(own)
            if why:
                self._keep(own)
                if why != _NO_FLOATS:
                    self.result.in_float32[node.name or node.output[0]] = why
            else:
                self._convert(own)
                self.result.converted += 1
        for output in graph.output:
            self._as_single(output.name)
        graph.ClearField("node")
        graph.node.extend(self.nodes)
        read = {*names_read(graph), *(v.name for v in graph.output)}
        keep_initializers(graph, lambda t: t.name in read)
        known = {n for node in graph.node for n in node.output}
        left = [v for v in graph.value_info if v.name in known]
        del graph.value_info[:]
        graph.value_info.extend(left)
        return self.result

    def _is_single(self, name: str) -> bool:
        return bool(self.types.get(name) == TensorProto.FLOAT)

    def _why_float32(self, node: onnx.NodeProto) -> str:
        floats = [n for n in (*node.input, *node.output) if n and self._is_single(n)]
        if any(n and not self.types.get(n) for n in (*node.input, *node.output)):
            return "types of its values are not known"
        if not floats:
            return _NO_FLOATS
        if node.name in self.keep or node.op_type in self.keep:
            return "kept by name"
        if any(True for _ in subgraphs(node)):
            return "it has bodies"
        inputs, outputs = _takes_half(node.op_type, node.domain, opset_of(self.model), self.kind)
        if not all(inputs(i) is not None for i, n in enumerate(node.input) if n and self._is_single(n)):
            return "its operator has no such type"
        given = {inputs(i) for i, n in enumerate(node.input) if n and self._is_single(n)} - {""}
        if not all(outputs(i) in given for i, n in enumerate(node.output) if n and self._is_single(n)):
            return "its operator has no such type"
        size = max((self._size(n) for n in floats), default=0.0)
        return f"values up to {size:.3g}" if size > self.limit else ""

    def _size(self, name: str) -> float:
        if name in self.stored:
            values = np.abs(numpy_helper.to_array(self.stored[name]))
            return float(values[np.isfinite(values)].max(initial=0.0))
        return self.largest.get(name, 0.0)

    def _keep(self, node: onnx.NodeProto) -> None:
        captured = [n for sub in subgraphs(node) for n in names_read(sub)] if node.attribute else []
        for name in dict.fromkeys([*node.input, *captured]):
            self._as_single(name)
        self.nodes.append(node)
        self.single.update(node.output)

    def _convert(self, node: onnx.NodeProto) -> None:
        inputs, _ = _takes_half(node.op_type, node.domain, opset_of(self.model), self.kind)
        for i, name in enumerate(list(node.input)):
            if not name or not self._is_single(name):
                continue
            if inputs(i):
                self._as_half(name)
                node.input[i] = f"{name}_half"
            else:
                self._as_single(name)
        for name in list(node.output):
            if name and self._is_single(name):
                rename(node.output, name, f"{name}_half")
                self.half.add(name)
        self.nodes.append(node)

    def _as_single(self, name: str) -> None:
        if name in self.half and name not in self.single:
            self.nodes.append(helper.make_node("Cast", [f"{name}_half"], [name], f"{name}_to_single", to=TensorProto.FLOAT))
            self.single.add(name)

    def _as_half(self, name: str) -> None:
        if name in self.half:
            return
        self.half.add(name)
        if name in self.stored:
            self.model.graph.initializer.append(self._stored(name))
        else:
            self.nodes.append(helper.make_node("Cast", [name], [f"{name}_half"], f"{name}_to_half", to=self.kind))

    def _stored(self, name: str) -> TensorProto:
        """A stored tensor in 16 bits; what would become 0 is the smallest number there is."""
        values = numpy_helper.to_array(self.stored[name])
        with np.errstate(over="ignore"):
            found = values.astype(self.dtype)
        lost = (found == 0) & (values != 0)
        if lost.any():
            least = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)
            found[lost] = (np.sign(values[lost]) * least).astype(self.dtype)
        return TensorProto(name=f"{name}_half", data_type=self.kind, dims=found.shape, raw_data=found.tobytes())


_NO_FLOATS = "it has no floats"
_Variable = Callable[[int], str | None]


@cache
def _takes_half(op_type: str, domain: str, opset: int, kind: int) -> tuple[_Variable, _Variable]:
    """For an operator, functions of an input's and an output's place: the type variable that may have the type.

    "" where the schema fixes float32, None where the variable has no such type, and for operators without a schema.
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return (lambda place: None), (lambda place: None)
    wanted = "tensor(float16)" if kind == TensorProto.FLOAT16 else "tensor(bfloat16)"
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}

    def finder(parameters: list[onnx.defs.OpSchema.FormalParameter]) -> _Variable:
        def find(place: int) -> str | None:
            if not parameters:
                return None
            variable = parameters[min(place, len(parameters) - 1)].type_str
            if variable not in allowed:
                return ""
            return variable if wanted in allowed[variable] else None

        return find

    return finder(list(schema.inputs)), finder(list(schema.outputs))


def float_values(model: onnx.ModelProto) -> Iterator[str]:
    """The names of a model's inner values of float32, whose magnitudes decide what can be in 16 bits."""
    for value in (*model.graph.value_info, *model.graph.output, *model.graph.input):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            yield value.name
