"""Writes an NNAPI model of a graph: operands, operations, and in which layout each value is there.

Images are channels-last (NHWC), as NNAPI's convolutions read them: a value of rank 4 is held as ONNX has it (`PLAIN`), or
channels last (`NHWC`), or both; it is transposed where something reads it otherwise, once. With `Target.nchw` nothing is moved.
Of more than four axes, which most operations do not take, a value is held as its elements in ONNX's order in fewer dimensions
(`ELEMENTS`): what reshapes and transposes it needs no more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.model import Call, NnapiModel, Operand
from intarsia.providers.nnapi.operands import KIND_OF, LEVEL_6, Kind, OperandType, Tensor, operand_dims
from intarsia.providers.nnapi.operations import ACTIVATIONS, OPERATIONS
from intarsia.providers.vendor.translator import Untranslatable

PLAIN, NHWC, ELEMENTS = "plain", "nhwc", "elements"
MOST_AXES = 4
"""Of what most operations take."""
MOVERS = frozenset(("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that read a value by its `elements`."""
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
AXIS_IN_NHWC = (0, 3, 1, 2)
"""ONNX's axis (N, C, H, W) -> where it is in NHWC."""

_SCALAR_OF = {Kind.TENSOR_FLOAT32: Kind.FLOAT32, Kind.TENSOR_FLOAT16: Kind.FLOAT16}
_INT32 = np.iinfo(np.int32)
_BOUNDS = {(0.0, math.inf): "RELU", (-1.0, 1.0): "RELU1", (0.0, 6.0): "RELU6"}


@dataclass(frozen=True)
class Target:
    """What a model is written for.

    Attributes:
        level: NNAPI's feature level: 27 to 31, then 1000006 to 1000008.
        nchw: convolutions and pools read NCHW as ONNX has it (feature level 29).
        relaxed: float32 may be computed in float16.
    """

    level: int = 31
    nchw: bool = False
    relaxed: bool = False


class Writer:
    """One model under construction.

    Args:
        graph: types inferred, all sizes known.
        target: what it is for.
        scales: of values of 8-bit integers: (scale, zero point) of their operands; (1, 0) for others.
    """

    def __init__(self, graph: Graph, target: Target, scales: Mapping[str, tuple[float, int]]) -> None:
        self.graph, self.target, self.scales = graph, target, scales
        self.model = NnapiModel(relaxed=target.relaxed, level=target.level)
        self.done: set[int] = set()
        """Nodes (by `id`) that were written with the one before them."""
        self.producers = {name: node for node in graph.nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for name in node.inputs:
                if name:
                    self.readers[name].append(node)
        self.outputs = frozenset(graph.output_names())
        self.deferred: dict[str, tuple[Node, Callable[[Writer, Node], None]]] = {}
        """Values that are written when something reads them, with what writes them."""
        self._values: dict[tuple[str, str], Tensor] = {}
        self._constants: dict[Any, Tensor] = {}
        for value in graph.inputs:
            kind, layout = self.type_of(value.name), PLAIN
            if len(kind.dims) > MOST_AXES and all(n.op_type in MOVERS and not n.domain for n in self.readers[value.name]):
                kind, layout = kind.of(few_dims(kind.dims)), ELEMENTS
            found = self.operand(kind)
            self.model.inputs.append(found.index)
            self._values[value.name, layout] = found

    # what is known of the graph

    def dtype(self, name: str) -> DType:
        kind = self.graph.type_of(name)
        if not isinstance(kind, TensorType):
            raise Untranslatable(f"NNAPI has tensors only, and {name!r} is {kind}", "type")
        return kind.dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a value; () for rank 0.

        Raises:
            Untranslatable: it has no elements, or not all sizes are known.
        """
        kind = self.graph.type_of(name)
        if not isinstance(kind, TensorType) or kind.shape is None or not all(isinstance(d, int) for d in kind.shape):
            raise Untranslatable(f"NNAPI needs all sizes, and {name!r} is {kind}", "shape")
        found = tuple(d for d in kind.shape if isinstance(d, int))
        if 0 in found:
            raise Untranslatable(f"NNAPI has no empty tensors, and {name!r} is {kind}", "shape")
        return found

    def kind(self, name: str) -> Kind:
        dtype = self.dtype(name)
        found = KIND_OF.get(dtype)
        if found is None:
            raise Untranslatable(f"NNAPI has no tensors of {dtype}, as {name!r} is", "type")
        return found

    def type_of(self, name: str) -> OperandType:
        """The type of the operand of a value, as ONNX lays it out."""
        kind, dims = self.kind(name), operand_dims(self.shape(name))
        if not kind.byte:
            return OperandType(kind, dims)
        scale, zero_point = self.scales.get(name, (1.0, 0))
        return OperandType(kind, dims, float(np.float32(scale)), zero_point)

    def array(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        found = self.graph.constants.get(name)
        return found.numpy() if found is not None else None

    def ints(self, name: str, what: str) -> list[int]:
        """The elements of a constant of integers, which the message calls `what`."""
        found = self.array(name)
        if found is None:
            raise Untranslatable(f"NNAPI needs {what} as constants")
        return [int(v) for v in found.reshape(-1)]

    def sole_reader(self, name: str) -> Node | None:
        """The node that reads a value, where that is the only one and the value is no output."""
        found = self.readers.get(name, [])
        return found[0] if len(found) == 1 and name not in self.outputs else None

    def activation(self, node: Node) -> tuple[Tensor, str]:
        """The activation that is written with `node` (a scalar operand), and the value that the two together give."""
        out = node.outputs[0]
        reader = self.sole_reader(out)
        name = self.activation_of(reader) if reader is not None and self.kind(out).real else ""
        if reader is not None and name:
            self.done.add(id(reader))
            out = reader.outputs[0]
        return self.int32(ACTIVATIONS[name]), out

    def activation_of(self, node: Node) -> str:
        """RELU, RELU1 or RELU6, where a node computes that; else ""."""
        if node.domain or node.op_type not in ("Relu", "Clip"):
            return ""
        if node.op_type == "Relu":
            return "RELU"
        low, high = self.clip_bounds(node)
        return _BOUNDS.get((low, high), "") if low is not None and high is not None else ""

    def clip_bounds(self, node: Node) -> tuple[float | None, float | None]:
        """Clip's bounds; None where a run gives them."""
        found: list[float | None] = []
        for i, (name, default) in enumerate((("min", -math.inf), ("max", math.inf)), 1):
            if i < len(node.inputs) and node.inputs[i]:
                array = self.array(node.inputs[i])
                found.append(None if array is None else float(array.reshape(())))
            else:
                found.append(float(node.attributes.get(name, default)))
        return found[0], found[1]

    # operands

    def operand(self, kind: OperandType, value: np.ndarray | None = None, *, omitted: bool = False) -> Tensor:
        """A new operand.

        Raises:
            Untranslatable: its type is of a later feature level.
        """
        if kind.kind.since > self.target.level:
            since = kind.kind.since
            raise Untranslatable(
                f"NNAPI has {kind.kind.name} from feature level {since} on, and this is {self.target.level}", "type"
            )
        self.model.operands.append(Operand(kind, value, omitted))
        return Tensor(len(self.model.operands) - 1, kind)

    def omitted(self, kind: OperandType) -> Tensor:
        """An optional operand that is not given."""
        return self.operand(kind, omitted=True)

    def scalar(self, kind: Kind, value: Any) -> Tensor:
        key = (kind, value)
        if key not in self._constants:
            self._constants[key] = self.operand(OperandType(kind), np.array(value, kind.numpy))
        return self._constants[key]

    def int32(self, value: int) -> Tensor:
        return self.scalar(Kind.INT32, int(value))

    def boolean(self, value: Any) -> Tensor:
        return self.scalar(Kind.BOOL, bool(value))

    def number(self, like: Tensor, value: float) -> Tensor:
        """A scalar in the floating-point type of a tensor."""
        return self.scalar(_SCALAR_OF[like.kind], float(value))

    def constant(self, array: np.ndarray, kind: OperandType | None = None) -> Tensor:
        """A constant tensor; `kind` where its element type does not follow from the array's."""
        if kind is None:
            found = KIND_OF.get(DType.of(array.dtype))
            if found is None or found.byte:
                raise Untranslatable(f"NNAPI has no constants of {array.dtype}", "type")
            kind = OperandType(found, operand_dims(array.shape))
        if array.dtype == np.int64:
            if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
                raise Untranslatable("NNAPI computes integers in 32 bits, and a constant does not fit", "type")
        data = np.ascontiguousarray(array, kind.kind.numpy).reshape(kind.dims)
        key = (kind, data.tobytes()) if data.nbytes <= 64 else None
        if key is None or key not in self._constants:
            made = self.operand(kind, data)
            if key is None:
                return made
            self._constants[key] = made
        return self._constants[key]

    def vector(self, values: Sequence[int]) -> Tensor:
        """A constant of 32-bit integers, of rank 1."""
        return self.constant(np.array(values, np.int32))

    # operations

    def call(self, name: str, inputs: Sequence[Tensor], result: OperandType) -> Tensor:
        """Add an operation with one result.

        Raises:
            Untranslatable: the operation does not take these inputs at the target's feature level.
        """
        return self.calls(name, inputs, [result])[0]

    def calls(self, name: str, inputs: Sequence[Tensor], results: Sequence[OperandType]) -> list[Tensor]:
        """Add an operation with several results."""
        if why := OPERATIONS[name].refusal(tuple(inputs), self.target.level):
            raise Untranslatable(why, "no-kernel")
        made = [self.operand(kind) for kind in results]
        self.model.calls.append(Call(name, tuple(t.index for t in inputs), tuple(t.index for t in made)))
        return made

    # values and their layouts

    def value(self, name: str, layout: str = PLAIN) -> Tensor:
        """The operand of a value in a layout, transposed where it is there in the other alone."""
        self._resolve(name)
        found = self._values.get((name, layout))
        if found is not None:
            return found
        array = self.array(name)
        if array is not None:
            found = self._constant(name, array, layout)
        elif layout == PLAIN and (name, ELEMENTS) in self._values:
            found = self.reshaped(self._values[name, ELEMENTS], operand_dims(self.shape(name)))
        else:
            other = self._values.get((name, NHWC if layout == PLAIN else PLAIN))
            if other is None:
                raise Untranslatable(f"NNAPI does not compute {name!r}")
            perm = TO_NHWC if layout == NHWC else TO_NCHW
            dims = tuple(other.dims[p] for p in perm)
            longer = [p for p in perm if other.dims[p] != 1]
            if longer == sorted(longer):
                found = self.reshaped(other, dims)
            else:
                found = self.call("TRANSPOSE", [other, self.vector(perm)], other.type.of(dims))
        self._values[name, layout] = found
        return found

    def elements(self, name: str) -> Tensor:
        """An operand with a value's elements in ONNX's order; instead of more than four dimensions it has others."""
        self._resolve(name)
        held = self._values.get((name, ELEMENTS))
        if held is not None:
            return held
        array = self.array(name)
        if array is None or array.ndim <= MOST_AXES:
            return self.value(name)
        kind = self.type_of(name)
        return self.constant(array.reshape(few_dims(array.shape)), kind.of(few_dims(kind.dims)) if kind.kind.byte else None)

    def set_elements(self, name: str, found: Tensor) -> None:
        """Say which operand has a value's elements; it is given the value's dimensions where these are four at most."""
        if len(self.shape(name)) <= MOST_AXES:
            self.set(name, found)
        else:
            self._values[name, ELEMENTS] = found

    def _constant(self, name: str, array: np.ndarray, layout: str) -> Tensor:
        kind = self.type_of(name)
        if layout == NHWC and array.size > 1:
            array = array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_NHWC)
            kind = kind.of(array.shape)
        return self.constant(array, kind if kind.kind.byte or array.size <= 1 else None)

    def set(self, name: str, found: Tensor, layout: str = PLAIN) -> None:
        """Say which operand a value is. One of other dimensions, but as many elements, is reshaped."""
        wanted = operand_dims(self.shape(name))
        if layout == NHWC:
            wanted = tuple(wanted[p] for p in TO_NHWC)
        if found.dims != wanted:
            assert layout == PLAIN and math.prod(found.dims) == math.prod(wanted), (name, found.dims, wanted)
            found = self.reshaped(found, wanted)
        self._values[name, layout] = found

    def reshaped(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """The same elements in other dimensions."""
        dims = operand_dims(dims)
        if x.dims == dims:
            return x
        constant = self.model.operands[x.index].value
        if constant is not None:
            return self.constant(constant.reshape(dims), x.type.of(dims))
        if x.kind is Kind.TENSOR_INT32 and self.target.level < LEVEL_6:
            return self._expanded(x, dims)
        if x.kind is Kind.TENSOR_BOOL8:
            ones = self.constant(np.ones(x.dims, np.float32))
            as_real = self.call("SELECT", [x, ones, self.constant(np.zeros(x.dims, np.float32))], ones.type)
            moved = self.reshaped(as_real, dims)
            return self.call("NOT_EQUAL", [moved, self.constant(np.zeros(1, np.float32))], x.type.of(dims))
        return self.call("RESHAPE", [x, self.vector(dims)], x.type.of(dims))

    def _expanded(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        """Integers with dimensions of 1 put in: RESHAPE takes them from feature level 6 only."""
        at = 0
        for i, size in enumerate(dims):
            if at < x.rank and x.dims[at] == size:
                at += 1
            elif size == 1:
                found = (*x.dims[:i], 1, *x.dims[i:])
                x, at = self.call("EXPAND_DIMS", [x, self.int32(i)], x.type.of(found)), at + 1
        if x.dims != dims:
            why = f"NNAPI's RESHAPE takes TENSOR_INT32 from feature level {LEVEL_6} on, and this is {self.target.level}"
            raise Untranslatable(why, "no-kernel")
        return x

    def _resolve(self, name: str) -> None:
        if name in self.deferred:
            node, write = self.deferred.pop(name)
            write(self, node)

    def forget(self, calls: int, operands: int) -> None:
        """Take back what was written since there were so many operations and operands."""
        del self.model.calls[calls:], self.model.operands[operands:]
        self._values = {key: t for key, t in self._values.items() if t.index < operands}
        self._constants = {key: t for key, t in self._constants.items() if t.index < operands}

    def layout(self, name: str) -> str:
        """The layout in which a value is there; NHWC where it is there in both."""
        self._resolve(name)
        return NHWC if (name, NHWC) in self._values else PLAIN

    def together(self, names: Sequence[str]) -> tuple[list[Tensor], str]:
        """Operands of one layout for an element-wise operation, and the layout."""
        images = [n for n in names if self.layout(n) == NHWC and n not in self.graph.constants]
        layout = NHWC if images and all(self._can_be_image(n) for n in names) else PLAIN
        return [self.value(n, layout if math.prod(self.shape(n)) > 1 else PLAIN) for n in names], layout

    def _can_be_image(self, name: str) -> bool:
        shape = self.shape(name)
        return len(shape) == 4 or math.prod(shape) == 1 and len(shape) < 4 or name in self.graph.constants and len(shape) < 4

    def finish(self) -> NnapiModel:
        """The model, with its outputs and without what nothing reads. One of constants alone gets an input all the same."""
        if not self.model.inputs:
            self.model.inputs.append(self.operand(OperandType(Kind.TENSOR_FLOAT32, (1,))).index)
        taken = set(self.model.inputs)
        for name in self.graph.output_names():
            found = self.elements(name)
            if found.index in taken or self.model.operands[found.index].value is not None:
                found = self.copied(found)
            taken.add(found.index)
            self.model.outputs.append(found.index)
        return _pruned(self.model)

    def copied(self, x: Tensor) -> Tensor:
        """A new operand of the same elements."""
        if x.kind is Kind.TENSOR_BOOL8:
            return self.call("LOGICAL_OR", [x, x], x.type)
        if x.kind is Kind.TENSOR_INT32 and self.target.level < LEVEL_6 or x.rank > 4:
            return self.call("SLICE", [x, self.vector([0] * x.rank), self.vector(x.dims)], x.type)
        return self.call("RESHAPE", [x, self.vector(x.dims)], x.type)


def few_dims(dims: Sequence[int]) -> tuple[int, ...]:
    """The dimensions with the last ones multiplied, so that there are four at most."""
    leading = MOST_AXES - 1
    return (*dims[:leading], math.prod(dims[leading:])) if len(dims) > MOST_AXES else tuple(dims)


def _pruned(model: NnapiModel) -> NnapiModel:
    """The model without operations and operands that its outputs do not depend on."""
    read, calls = set(model.outputs), []
    for call in reversed(model.calls):
        if read.intersection(call.outputs):
            calls.append(call)
            read.update(call.inputs, call.outputs)
    read.update(model.inputs)
    used = sorted(read)
    number = {old: new for new, old in enumerate(used)}

    def renumbered(operands: Sequence[int]) -> tuple[int, ...]:
        return tuple(number[i] for i in operands)

    return NnapiModel(
        [model.operands[i] for i in used],
        [Call(c.name, renumbered(c.inputs), renumbered(c.outputs)) for c in reversed(calls)],
        list(renumbered(model.inputs)),
        list(renumbered(model.outputs)),
        model.relaxed,
        model.level,
    )
