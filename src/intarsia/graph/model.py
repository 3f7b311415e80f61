"""The graph: named values, nodes in topological order, constants whose data stays where it was mapped.

Values are identified by their names (ONNX is SSA: a name is written once). A `Graph` is a plain value: passes take one
and return another (`clone` is shallow: nodes are copied, constant data is shared).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.errors import InvalidModelError
from intarsia.graph.dims import Shape, format_shape
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import visible

DEFAULT_DOMAIN = ""
_MOST_VERSIONS = 1 << 31


def domain_named(name: str) -> str:
    """The domain of ONNX's own operators has two names."""
    return DEFAULT_DOMAIN if name == "ai.onnx" else name


def opset_import(name: str, version: int, label: str) -> tuple[str, int]:
    """Domain and version of an operator set that the model `label` imports.

    Raises:
        InvalidModelError: the version is none that onnx's own functions take, which are of 32 bits.
    """
    if not -_MOST_VERSIONS <= version < _MOST_VERSIONS:
        expected = f"expected 1 to {_MOST_VERSIONS - 1}"
        raise InvalidModelError(f"{label}: imports version {version} of operator set {name!r}; {expected}")
    return domain_named(name), version


@dataclass(frozen=True)
class TensorType:
    """Element type and shape of a tensor; `shape` is None where not even the rank is known."""

    dtype: DType
    shape: Shape | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def onnx_name(self) -> str:
        return f"tensor({self.dtype.onnx_name})"

    def __str__(self) -> str:
        return f"{self.dtype.onnx_name}{'[...]' if self.shape is None else format_shape(self.shape)}"


@dataclass(frozen=True)
class SparseTensorType(TensorType):
    @property
    def onnx_name(self) -> str:
        return f"sparse_tensor({self.dtype.onnx_name})"


@dataclass(frozen=True)
class SequenceType:
    element: ValueType | None

    @property
    def onnx_name(self) -> str:
        return f"seq({self.element.onnx_name if self.element else ''})"

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True)
class OptionalType:
    element: ValueType | None

    @property
    def onnx_name(self) -> str:
        return f"optional({self.element.onnx_name if self.element else ''})"

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True)
class MapType:
    key: DType
    value: ValueType | None

    @property
    def onnx_name(self) -> str:
        return f"map({self.key.onnx_name},{self.value.onnx_name if self.value else ''})"

    def __str__(self) -> str:
        return f"map({self.key.onnx_name}, {self.value})"


ValueType = TensorType | SequenceType | OptionalType | MapType


@dataclass(frozen=True)
class Value:
    """A graph input or output: its name and, where the model declares one, its type."""

    name: str
    type: ValueType | None = None
    doc: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.type if self.type is not None else '?'}"


class Constant:
    """A tensor known when the model is loaded. Its data is read only when `numpy()` is called.

    Args:
        name: the value's name in the graph.
        dtype: element type.
        shape: sizes of all dimensions.
        data: the array, or a function that returns it (e.g. reads a file), called when it is needed and again after `forget`.
        source: where the bytes come from, for error messages ("model.onnx at byte 1024").
        retained: False: what the function returns is not retained, so that it is in memory as long as somebody else has it.

    Attributes:
        place: where the data is as it stands, in a file of its own: location relative to the model's folder, first byte, bytes.
        read_row: of a matrix in a file, what reads one row into an array, without the others; None elsewhere.
    """

    __slots__ = ("_array", "_data", "_retained", "dtype", "name", "place", "read_row", "shape", "source")

    def __init__(
        self, name: str, dtype: DType, shape: tuple[int, ...], data: np.ndarray | Callable[[], np.ndarray], source: str = "",
        retained: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.dtype, self.shape, self.source = name, dtype, tuple(int(d) for d in shape), source
        self._array: np.ndarray | None = data if isinstance(data, np.ndarray) else None
        self._data = data if not isinstance(data, np.ndarray) else None
        self._retained = retained
        self.place: tuple[str, int, int] | None = None
        self.read_row: Callable[[int, np.ndarray], None] | None = None

    @classmethod
    def of(cls, name: str, array: np.ndarray, source: str = "") -> Constant:
        array = np.asarray(array)
        return cls(name, DType.of(array.dtype), array.shape, array, source)

    def numpy(self) -> np.ndarray:
        """The data, shape `self.shape`, dtype `self.dtype.numpy`; read-only where it is a model's own."""
        array = self._array
        if array is None:
            assert self._data is not None
            array = np.asarray(self._data())  # arithmetic on rank 0 gives a NumPy scalar
            if self._retained:
                self._array = array
        return array

    @property
    def retained(self) -> bool:
        """Whether the data stays in memory, as long as nobody calls `forget`, once it was requested."""
        return self._retained

    @property
    def maker(self) -> Callable[[], np.ndarray] | None:
        """The function that returns the data, where it was not given as an array."""
        return self._data

    def forget(self) -> None:
        """Drop data that was computed or read on demand: the next `numpy()` makes it again."""
        if self._data is not None:
            self._array = None

    def renamed(self, name: str) -> Constant:
        data = self._array if self._array is not None else self.numpy
        made = Constant(name, self.dtype, self.shape, data, self.source, self._retained)
        made.place, made.read_row = self.place, self.read_row
        return made

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return (self.size * self.dtype.bits + 7) // 8

    def __repr__(self) -> str:
        return f"Constant({self.name!r}, {self.type})"


Attribute = Any  # int, float, str, bytes, np.ndarray, Graph, ValueType, SparseTensor, AttributeRef, or a list of one of these


@dataclass(frozen=True)
class AttributeRef:
    """In a function's node: the value that the caller gives to the function's attribute `name`.

    `kind` is the number in `AttributeProto.AttributeType` that the model declares.
    """

    name: str
    kind: int = 0

    def __str__(self) -> str:
        return f"@{visible(self.name)}"


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """`values` [nnz] at `indices` [nnz] (row-major positions) or [nnz, rank] of a tensor of zeros with sizes `dims`."""

    values: np.ndarray
    indices: np.ndarray
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"sparse{list(self.dims)} with {self.values.size} values"


@dataclass
class Node:
    """One operator call. Omitted optional inputs and outputs are empty names.

    `version` is the operator's since-version that the model's opset selects (0: not resolved yet), so that a node keeps
    its meaning wherever it is moved. `origin` names the nodes of the model it was made from, for `explain`. `widened_from`
    is the type of 16 bits that the model computes it in, where a provider computes it in float32.
    """

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    domain: str = DEFAULT_DOMAIN
    name: str = ""
    version: int = 0
    overload: str = ""
    doc: str = ""
    origin: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    widened_from: DType | None = None
    traced: Any = field(default=None, repr=False, compare=False)  # what `ops.framework.infer` last found for it

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "traced": None}

    def __post_init__(self) -> None:
        self.domain = domain_named(self.domain)

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def compiled_part(self) -> bool:
        """Whether the node is machine code of a part that was compiled ahead of time (`ep_context`)."""
        return self.op_type == "EPContext" and self.domain == "com.microsoft"

    @property
    def has_subgraphs(self) -> bool:
        for value in self.attributes.values():
            if isinstance(value, Graph) or (isinstance(value, list) and value and isinstance(value[0], Graph)):
                return True
        return False

    @property
    def subgraphs(self) -> Sequence[Graph]:
        """Graphs among the attributes. Passes ask all nodes again and again, and most have none."""
        found: list[Graph] | None = None
        for value in self.attributes.values():
            kind = type(value)
            if kind is int or kind is str or kind is float or kind is bytes:
                continue
            if isinstance(value, Graph):
                found = [*(found or ()), value]
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                found = [*(found or ()), *value]
        return found if found is not None else ()

    def copy(self, **changes: Any) -> Node:
        """A copy whose lists and attribute dict can be changed without touching this node."""
        made: Node = object.__new__(Node)
        values = made.__dict__
        values.update(self.__dict__)
        values["inputs"], values["outputs"] = list(self.inputs), list(self.outputs)
        values["attributes"] = dict(self.attributes)
        if changes:
            values.update(changes)
            made.__post_init__()
        return made

    def make_names_unique(self, outer: AbstractSet[str]) -> None:
        """`Graph.make_names_unique` of the node's subgraphs, where `outer` are the names around them."""
        self.replace_subgraphs(lambda graph: _unhiding(graph, outer))

    def replace_subgraphs(self, changed: Callable[[Graph], Graph]) -> None:
        """Replace each of the node's subgraphs by `changed(subgraph)` (in place)."""
        for key, value in self.attributes.items():
            if isinstance(value, Graph):
                self.attributes[key] = changed(value)
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                self.attributes[key] = [changed(v) for v in value]

    def used_names(self) -> set[str]:
        """Names this node reads: its inputs and what its subgraphs capture from outside."""
        names = {n for n in self.inputs if n}
        for sub in self.subgraphs:
            names |= sub.captured_names()
        return names

    def __str__(self) -> str:
        from intarsia.graph.text import format_node

        return format_node(self)


@dataclass
class Function:
    """A model-local function: an operator defined by a graph. `attributes` lists names without (None) or with a default."""

    domain: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute | None]
    nodes: list[Node]
    opset_imports: dict[str, int]
    overload: str = ""


@dataclass
class Metadata:
    """What the model says of itself."""

    ir_version: int = 0
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    graph_doc: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    path: str = ""
    external_files: tuple[str, ...] = ()  # locations of weights in other files


@dataclass
class Graph:
    """Nodes in topological order, over named values.

    Attributes:
        inputs: values given by the caller (without those that only name an initializer).
        overridable: names of initializers that are also listed as graph inputs: the caller may replace them.
        constants: initializers by name.
        types: types of inner values, as declared or inferred.
        opset_imports: domain -> opset version.
        followed: inputs whose elements sizes may be written in from the beginning (positions, in the body of a loop).
        declared: own value -> its name in the model, where it hid a value around this graph and was renamed.
    """

    name: str = ""
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    opset_imports: dict[str, int] = field(default_factory=dict)
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)
    overridable: list[str] = field(default_factory=list)
    metadata: Metadata = field(default_factory=Metadata)
    followed: frozenset[str] = frozenset()
    declared: dict[str, str] = field(default_factory=dict)

    def clone(self) -> Graph:
        """A graph whose nodes, lists and dicts can be changed without touching this one (constant data is shared)."""
        return Graph(
            self.name, list(self.inputs), list(self.outputs), [n.copy() for n in self.nodes], dict(self.constants),
            dict(self.types), dict(self.opset_imports), self.functions, list(self.overridable), self.metadata,
            self.followed, dict(self.declared),
        )  # fmt: skip

    def producers(self) -> dict[str, Node]:
        """Value name -> the node that computes it."""
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        """Value name -> the nodes that read it (once each), those with capturing subgraphs included."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.used_names():
                found.setdefault(name, []).append(node)
        return found

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value, where declared or inferred."""
        if name in self.constants:
            return self.constants[name].type
        found = self.types.get(name)
        if found is not None:
            return found
        return next((v.type for v in (*self.inputs, *self.outputs) if v.name == name), None)

    def overridable_type(self, name: str) -> ValueType:
        """What may replace an overridable initializer: the model's declared type, which may have sizes that it leaves open."""
        return self.types.get(name) or self.constants[name].type

    def input_names(self) -> list[str]:
        return [v.name for v in self.inputs]

    def declared_inputs(self) -> list[str]:
        """The inputs' names in the model, by which some operators (BeamSearch, custom ones) know them."""
        return [self.declared.get(v.name, v.name) for v in self.inputs]

    def output_names(self) -> list[str]:
        return [v.name for v in self.outputs]

    def captured_names(self) -> set[str]:
        """Names that this graph, as a subgraph, reads from the graphs around it."""
        known = {v.name for v in self.inputs} | set(self.constants)
        used: set[str] = {v.name for v in self.outputs}
        for node in self.nodes:
            used |= node.used_names()
            known.update(node.outputs)
        return {n for n in used if n and n not in known}

    def unique_name(self, stem: str, taken: Iterable[str] = ()) -> str:
        """A value name not used in this graph or `taken`."""
        used = self._names() | set(taken)
        if stem not in used:
            return stem
        i = 1
        while f"{stem}_{i}" in used:
            i += 1
        return f"{stem}_{i}"

    def _names(self) -> set[str]:
        names = {v.name for v in (*self.inputs, *self.outputs)} | set(self.constants)
        for node in self.nodes:
            names.update(node.outputs)
        return names

    def replace_uses(self, renames: Mapping[str, str]) -> None:
        """Make every reader of the key names read the value names instead, inside subgraphs too (in place)."""
        for node in self.nodes:
            node.inputs = [renames.get(n, n) for n in node.inputs]
            node.replace_subgraphs(lambda graph: _captures_renamed(graph, renames))

    def make_names_unique(self, outer: Iterable[str] = ()) -> None:
        """Rename inputs and constants of subgraphs that hide a value around them, which ONNX allows (in place)."""
        parents = [node for node in self.nodes if node.has_subgraphs]
        visible = self._names().union(outer) if parents else set()
        for node in parents:
            node.make_names_unique(visible)

    def own_renamed(self, renames: Mapping[str, str]) -> Graph:
        """A copy in which values that this graph defines have other names. No new name may be used in it already."""
        out = self.clone()
        out.replace_uses(renames)
        out.inputs = [Value(renames.get(v.name, v.name), v.type, v.doc) for v in out.inputs]
        out.outputs = [Value(renames.get(v.name, v.name), v.type, v.doc) for v in out.outputs]
        out.constants = {renames.get(n, n): c.renamed(renames[n]) if n in renames else c for n, c in out.constants.items()}
        out.types = {renames.get(n, n): kind for n, kind in out.types.items()}
        out.overridable = [renames.get(n, n) for n in out.overridable]
        for node in out.nodes:
            node.outputs = [renames.get(o, o) for o in node.outputs]
        out.declared = {renames.get(n, n): name for n, name in out.declared.items()}
        for value in self.inputs:
            if value.name in renames:
                out.declared.setdefault(renames[value.name], value.name)
        return out

    def inputs_as_declared(self) -> Graph:
        """This subgraph with the inputs' names of the model, as far as nothing in it has such a name by now."""
        if not self.declared:
            return self
        used = self.defined_names() | {n for node in self.nodes for n in node.used_names()}
        back = {v.name: self.declared[v.name] for v in self.inputs if self.declared.get(v.name, v.name) not in used}
        return self.own_renamed(back) if back else self

    def defined_names(self) -> set[str]:
        """Names of the values that this graph itself defines."""
        return {v.name for v in self.inputs} | self.constants.keys() | {o for node in self.nodes for o in node.outputs if o}

    def __str__(self) -> str:
        from intarsia.graph.text import format_graph

        return format_graph(self)


def _own_names_changed(graph: Graph, taken: AbstractSet[str]) -> Graph:
    """A copy of a subgraph in which no value of its own has one of the names `taken`: it would hide the value outside."""
    own = graph.defined_names()
    used = own | taken | {n for node in graph.nodes for n in node.used_names()}
    renames: dict[str, str] = {}
    for name in sorted(own & taken):
        fresh = next(n for k in itertools.count(1) if (n := f"{name}.{k}") not in used)
        used.add(fresh)
        renames[name] = fresh
    return graph.own_renamed(renames) if renames else graph.clone()


def _unhiding(graph: Graph, outer: AbstractSet[str]) -> Graph:
    hiding = outer & ({v.name for v in graph.inputs} | graph.constants.keys())
    if hiding:
        graph = _own_names_changed(graph, hiding)
    graph.make_names_unique(outer)
    return graph


def _captures_renamed(graph: Graph, renames: Mapping[str, str]) -> Graph:
    captured = graph.captured_names()
    inner = {a: b for a, b in renames.items() if a in captured}
    if not inner:
        return graph
    out = _own_names_changed(graph, set(inner.values()))
    out.replace_uses(inner)
    out.outputs = [Value(inner.get(v.name, v.name), v.type, v.doc) for v in out.outputs]
    return out
