"""What a handler of an operator is given: the node's operands as MIL variables, its constants, sizes and attributes.

A handler is a function from a `NodeBuilder` to the node's outputs, in order. Sizes may vary
(`dims`): a handler that needs a number requests it (`size`, `shape`), which refuses the node where it is none.

MIL is Core ML's intermediate language. A variable (`Var`) is of float32, float16, int32 or bool here: all of ONNX's integers
are computed in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.providers.vendor.narrow_integers import NARROW_LIMIT
from intarsia.providers.vendor.translator import Untranslatable

Var = Any
Handler = Callable[["NodeBuilder"], "Sequence[Var] | Var"]

FLOATS = (DType.FLOAT, DType.FLOAT16)
BYTES = (DType.INT8, DType.UINT8)
INTEGERS = (DType.INT32, DType.INT64, DType.INT16, DType.UINT16, *BYTES)
ALL = (*FLOATS, *INTEGERS, DType.BOOL)
MOST_AXES = 5

CARRIERS: Mapping[DType, type[Any]] = {
    DType.FLOAT: np.float32,
    DType.FLOAT16: np.float16,
    DType.BOOL: np.bool_,
    **dict.fromkeys(INTEGERS, np.int32),
}
"""Element type in ONNX -> that in which MIL computes it."""

MIL_NAMES: Mapping[type, str] = {np.float32: "fp32", np.float16: "fp16", np.bool_: "bool", np.int32: "int32"}


class NodeBuilder:
    """One node, while its MIL operations are written.

    Attributes:
        mb: coremltools' builder: `mb.relu(x=...)` adds an operation to the function that is being written.
        node, graph: what is translated.
    """

    def __init__(self, mb: Any, node: Node, graph: Graph, values: Mapping[str, Var]) -> None:
        self.mb, self.node, self.graph, self._values = mb, node, graph, values

    # operands

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return len(self.node.inputs) > index and self.node.inputs[index] != ""

    def x(self, index: int = 0) -> Var:
        """The input as a variable, or as an array in the element type that MIL computes it in."""
        return self.value(self.node.inputs[index])

    def value(self, name: str) -> Var:
        found = self._values.get(name)
        if found is not None:
            return found
        constant = self.graph.constants[name]
        return carried(constant.numpy(), constant.dtype, name)

    def constant(self, index: int) -> np.ndarray | None:
        """The input's numbers as ONNX has them, where they are known."""
        if not self.has(index):
            return None
        found = self.graph.constants.get(self.node.inputs[index])
        return None if found is None else found.numpy()

    def known(self, index: int, what: str) -> np.ndarray:
        """As `constant`, for what Core ML has to know.

        Raises:
            Untranslatable: only a run knows it.
        """
        found = self.constant(index)
        if found is None:
            raise Untranslatable(f"Core ML has to know {what}, which only a run knows")
        return found

    def ints(self, index: int, what: str) -> list[int]:
        """As `known`, as Python's integers."""
        return [int(n) for n in np.asarray(self.known(index, what)).reshape(-1)]

    # types

    def type_of(self, name: str) -> TensorType:
        kind = self.graph.type_of(name)
        if not isinstance(kind, TensorType) or kind.shape is None:
            raise Untranslatable(f"Core ML takes tensors of a known shape, and {name!r} is {kind or 'of unknown type'}", "type")
        return kind

    def dims(self, index: int = 0) -> tuple[Dim, ...]:
        """The input's sizes; those that vary are symbols."""
        return self.type_of(self.node.inputs[index]).shape or ()

    def out_dims(self, index: int = 0) -> tuple[Dim, ...]:
        return self.type_of(self.node.outputs[index]).shape or ()

    def size(self, axis: int, index: int = 0) -> int:
        """One size of an input, which has to be known."""
        return known_size(self.dims(index)[axis], self.node.inputs[index])

    def shape(self, index: int = 0) -> tuple[int, ...]:
        return fixed(self.type_of(self.node.inputs[index]), self.node.inputs[index])

    def out_shape(self, index: int = 0) -> tuple[int, ...]:
        return fixed(self.type_of(self.node.outputs[index]), self.node.outputs[index])

    def dtype(self, index: int = 0) -> DType:
        return self.type_of(self.node.inputs[index]).dtype

    def out_dtype(self, index: int = 0) -> DType:
        return self.type_of(self.node.outputs[index]).dtype

    def only(self, *dtypes: DType, index: int = 0) -> DType:
        """The input's element type, which has to be one of these.

        Raises:
            Untranslatable: it is another one.
        """
        dtype = self.dtype(index)
        if dtype not in dtypes:
            given = " or ".join(sorted({str(d) for d in dtypes}))
            raise Untranslatable(f"Core ML's {self.node.op_type} is for {given}, not {dtype}", "type")
        return dtype

    @property
    def rank(self) -> int:
        return len(self.dims(0))

    def axis(self, default: int = 0, rank: int | None = None, name: str = "axis") -> int:
        """An attribute that names an axis, not negative."""
        rank = self.rank if rank is None else rank
        found = int(self.attribute(name, default))
        return found + rank if found < 0 else found

    # attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        found = self.node.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else found

    def refuse(self, reason: str, code: str = "unsupported") -> Untranslatable:
        """The exception that says why the node is left."""
        return Untranslatable(reason, code)

    # writing

    def number(self, value: float, index: int = 0) -> Any:
        """A number in the element type of an input."""
        return CARRIERS[self.dtype(index)](value)

    def cast(self, x: Var, carrier: type) -> Var:
        """The variable in another of the element types that MIL computes in."""
        if isinstance(x, (np.ndarray, np.generic)):
            return x.astype(carrier)
        return x if carrier_of(x) is carrier else self.mb.cast(x=x, dtype=MIL_NAMES[carrier])

    def reshape(self, x: Var, shape: Sequence[int]) -> Var:
        """The variable in another shape; rank 0 is made by Core ML's squeeze."""
        shape = tuple(int(d) for d in shape)
        if tuple(x.shape) == shape:
            return x
        if isinstance(x, (np.ndarray, np.generic)):
            return x.reshape(shape) if shape else x.reshape(-1)[0]
        if not shape:
            x = x if len(x.shape) == 1 else self.mb.reshape(x=x, shape=[1])
            return self.mb.squeeze(x=x, axes=[0])
        if not x.shape:
            x = self.mb.expand_dims(x=x, axes=[0])
            return x if shape == (1,) else self.mb.reshape(x=x, shape=list(shape))
        return self.mb.reshape(x=x, shape=list(shape))

    def movable(self, x: Var) -> Var:
        """The variable in a type that every operation which moves elements takes: truth values as integers."""
        return self.cast(x, np.int32)

    def moved(self, x: Var, move: Callable[[Var], Var]) -> Var:
        """`move(x)`, for moves that MIL has not for truth values."""
        if carrier_of(x) is not np.bool_:
            return move(x)
        return self.mb.cast(x=move(self.mb.cast(x=x, dtype="int32")), dtype="bool")


def carried(array: np.ndarray, dtype: DType, name: str) -> Any:
    """A constant in the element type in which MIL computes it.

    Raises:
        Untranslatable: MIL has no such type, or an integer needs more than 32 bits.
    """
    if dtype not in CARRIERS:
        raise Untranslatable(f"Core ML has no {dtype}, which {name!r} is of", "type")
    if dtype is DType.INT64 and array.size and (array.min() < -NARROW_LIMIT or array.max() >= NARROW_LIMIT):
        raise Untranslatable(f"Core ML computes integers in 32 bits, and {name!r} needs more", "type")
    found: np.ndarray = np.asarray(array).astype(CARRIERS[dtype])
    return found if found.shape else found[()]  # MIL takes a scalar where the rank is 0


def carrier_of(x: Var) -> type[Any]:
    """The element type of a variable or an array."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.type
    from coremltools.converters.mil.mil import types

    return {types.fp32: np.float32, types.fp16: np.float16, types.bool: np.bool_, types.int32: np.int32}[x.dtype]


def shape_of(x: Var) -> tuple[int, ...]:
    """A variable's sizes.

    Raises:
        Untranslatable: one varies.
    """
    return tuple(known_size(d, "a value within") for d in x.shape)


def known_size(dim: Any, name: str) -> int:
    """A size as a number.

    Raises:
        Untranslatable: it varies.
    """
    if isinstance(dim, (int, np.integer)):
        return int(dim)
    raise Untranslatable(f"Core ML has to know a size of {name!r}, which varies", "shape")


def fixed(kind: TensorType, name: str) -> tuple[int, ...]:
    """The sizes, which all have to be known."""
    if kind.shape is None:
        raise Untranslatable(f"Core ML has to know how many dimensions {name!r} has", "shape")
    return tuple(known_size(d, name) for d in kind.shape)
