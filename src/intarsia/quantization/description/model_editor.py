"""A model while it is being quantised: values by name, and edits that cost no search through the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia.quantization.description.node_order import in_order, names_read
from intarsia.quantization.numerics.bit_packing import packed_4bit
from intarsia.quantization.numerics.quant_types import FLOAT_TYPES, INTEGER_TYPES

_MOST_NUMBERS = 1 << 16  # of scales and zero points: more are written as bytes


class ModelEditor:
    """The graph of a model in memory, indexed.

    Attributes:
        model: it is changed in place; what was added is in it after `finish`.
        initializers: by name, those added too.
        value_types: element types of values, where inference found them.
        shapes: their sizes; None for a size that is not known.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        graph = model.graph
        self.initializers: dict[str, onnx.TensorProto] = {t.name: t for t in graph.initializer}
        self.value_types: dict[str, int] = {}
        self.shapes: dict[str, tuple[int | None, ...]] = {}
        for value in (*graph.value_info, *graph.output, *graph.input):
            self._note(value)
        self.inputs = {v.name for v in graph.input}
        self.outputs = {v.name for v in graph.output}
        self.nodes: list[onnx.NodeProto] = list(graph.node)
        self._added: list[onnx.NodeProto] = []
        self._dropped: set[str] = set()
        self._removed: set[int] = set()
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.producers: dict[str, onnx.NodeProto] = {}
        for node in self.nodes:
            self._index(node)

    def _note(self, value: onnx.ValueInfoProto) -> None:
        if value.type.HasField("tensor_type"):
            tensor = value.type.tensor_type
            self.value_types[value.name] = tensor.elem_type
            if tensor.HasField("shape"):
                sizes = (d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
                self.shapes[value.name] = tuple(sizes)

    def _index(self, node: onnx.NodeProto) -> None:
        for name in dict.fromkeys(node.input):
            if name:
                self.readers.setdefault(name, []).append(node)
        for name in node.output:
            if name:
                self.producers[name] = node

    def element_type(self, name: str) -> int | None:
        """ONNX's number of a value's element type; None where it is not known."""
        stored = self.initializers.get(name)
        return stored.data_type if stored is not None else self.value_types.get(name)

    def is_float(self, name: str) -> bool:
        """Whether it is a tensor of float32 or float16."""
        return self.element_type(name) in FLOAT_TYPES

    def array(self, name: str) -> np.ndarray:
        """A stored tensor."""
        found: np.ndarray = numpy_helper.to_array(self.initializers[name])
        return found

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Store a tensor; one of this name that was added before stays."""
        if tensor.name not in self.initializers:
            self.model.graph.initializer.append(tensor)
            self.initializers[tensor.name] = self.model.graph.initializer[-1]

    def add_array(self, name: str, values: np.ndarray, kind: int) -> None:
        """Store an array under a name, in ONNX's element type `kind`."""
        self.add_initializer(tensor_of(name, values, kind))

    def add_numbers(self, name: str, values: np.ndarray, kind: int) -> None:
        """Store scales or zero points."""
        self.add_initializer(numbers_of(name, values, kind))

    def drop_initializer(self, name: str) -> None:
        """Remove a stored tensor: from the model in `finish`."""
        if self.initializers.pop(name, None) is not None:
            self._dropped.add(name)

    def add_node(self, node: onnx.NodeProto) -> None:
        """Add a node; `finish` puts it where its inputs are there."""
        self._added.append(node)
        self._index(node)

    def remove_node(self, node: onnx.NodeProto) -> None:
        """Take a node out."""
        self._removed.add(id(node))
        for name in dict.fromkeys(node.input):
            if name:
                self.readers[name] = [n for n in self.readers.get(name, ()) if n is not node]

    def readers_of(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that read a value, each once."""
        return self.readers.get(name, [])

    def redirect_reads(self, old: str, new: str, only: Collection[str] | None = None) -> None:
        """Let the nodes that read `old`, or those with these names, read `new`."""
        stay: list[onnx.NodeProto] = []
        moved: list[onnx.NodeProto] = []
        for node in self.readers.pop(old, []):
            (moved if only is None or node.name in only else stay).append(node)
        for node in moved:
            rename(node.input, old, new)
        if stay:
            self.readers[old] = stay
        self.readers.setdefault(new, []).extend(n for n in moved if n not in self.readers[new])

    def redirect_read(self, node: onnx.NodeProto, old: str, new: str) -> None:
        """Let one node read `new` where it reads `old`."""
        rename(node.input, old, new)
        self.readers[old] = [n for n in self.readers.get(old, ()) if n is not node]
        self.readers.setdefault(new, []).append(node)

    def rename_output(self, old: str, new: str) -> None:
        """Let the node that computes `old` compute it as `new`."""
        node = self.producers.pop(old, None)
        if node is not None:
            rename(node.output, old, new)
            self.producers[new] = node

    def added_nodes(self) -> list[onnx.NodeProto]:
        """The nodes that were added, in that order."""
        return self._added

    def free_name(self, prefix: str) -> str:
        """`prefix` with the next number that no stored tensor with this prefix has."""
        tails = (name[len(prefix) :] for name in self.initializers if name.startswith(prefix))
        return f"{prefix}{max((int(t) for t in tails if t.isdigit()), default=-1) + 1}"

    def finish(self, *, keep_unused: bool = False) -> onnx.ModelProto:
        """The model with everything done: nodes in an order in which they can run, and without tensors that nothing reads.

        Args:
            keep_unused: leave tensors that nothing reads.
        """
        graph = self.model.graph
        left = [n for n in (*self.nodes, *self._added) if id(n) not in self._removed]
        nodes = [copied(n) for n in in_order(left, {*self.initializers, *self.inputs})]
        graph.ClearField("node")
        graph.node.extend(nodes)
        needed = None if keep_unused else {*names_read(graph), *self.outputs}
        keep_initializers(graph, lambda t: t.name not in self._dropped and (needed is None or t.name in needed))
        return self.model


def rename(names: Any, old: str, new: str) -> None:
    """Replace a name in a node's inputs or outputs."""
    for i, name in enumerate(names):
        if name == old:
            names[i] = new


def copied(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node separate from the graph that it was in."""
    found = onnx.NodeProto()
    found.CopyFrom(node)
    return found


def keep_initializers(graph: onnx.GraphProto, wanted: Callable[[onnx.TensorProto], bool]) -> None:
    """Leave the stored tensors that `wanted(tensor)` is true for, and inputs that have their names with them."""
    gone = {t.name for t in graph.initializer if not wanted(t)}
    for i in reversed(range(len(graph.initializer))):
        if graph.initializer[i].name in gone:
            del graph.initializer[i]
    for i in reversed(range(len(graph.input))):
        if graph.input[i].name in gone:
            del graph.input[i]


def tensor_of(name: str, values: np.ndarray, kind: int, dims: Iterable[int] | None = None) -> onnx.TensorProto:
    """A stored tensor of an array; values of four bits are packed."""
    own = INTEGER_TYPES.get(kind)
    shape = list(values.shape if dims is None else dims)
    found = onnx.TensorProto(name=name, data_type=kind, dims=shape)
    if own is not None and own.bits == 4:
        found.raw_data = packed_4bit(values).tobytes()
    else:
        found.raw_data = np.ascontiguousarray(values).tobytes()
    return found


def store_constants(model: onnx.ModelProto) -> None:
    """Make stored tensors of Constant nodes that give weights (floats, more than one), in place: exporters write them so."""
    graph, left = model.graph, []
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if (
            node.op_type != "Constant"
            or node.domain
            or value is None
            or value.data_type not in FLOAT_TYPES
            or math.prod(value.dims) <= 1
            or any(o.name == node.output[0] for o in graph.output)
        ):
            left.append(node)
        else:
            tensor = graph.initializer.add()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
    if len(left) < len(graph.node):
        nodes = [copied(node) for node in left]
        graph.ClearField("node")
        graph.node.extend(nodes)


def numbers_of(name: str, values: np.ndarray, kind: int) -> onnx.TensorProto:
    """A stored tensor of scales or zero points, as numbers that tools read and print, where they are not many."""
    if values.size > _MOST_NUMBERS:
        return tensor_of(name, values, kind)
    return onnx.helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name, for `onnx.helper.make_node`."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
