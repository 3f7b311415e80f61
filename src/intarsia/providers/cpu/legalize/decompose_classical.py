"""Classical models decomposed: trees as a descent and what follows it, and labels that are words as indices into them.

What is numeric is then compiled like any other operator; only the words themselves are looked up in Python.
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.errors import InvalidGraph
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference, call, resolve_version
from intarsia.ops.framework.registry import Registry
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.categories import TensorEncoderAttributes, mapping_of
from intarsia.ops.ml.native import DOMAIN as NATIVE
from intarsia.ops.ml.packed import pack
from intarsia.ops.ml.scores import Classes
from intarsia.ops.ml.trees import MEANINGS, Ensemble
from intarsia.primitives import lang as k
from intarsia.providers.cpu.legalize.decompose_svm import machine
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

_SEARCHED = (DType.FLOAT, DType.DOUBLE, DType.INT64, DType.INT32)
_SPREAD = 8  # integer keys are looked up in a table of at most so many times their number
_MACHINES = ("SVMClassifier", "SVMRegressor")
_LABELLED = ("LinearClassifier", "SVMClassifier")


def decompose_classical(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with classical models in parts; None if it has none.

    Raises:
        InvalidGraph: a node's attributes do not describe trees.
    """
    graph = inference.graph
    if not any(n.domain == DOMAIN for n in graph.nodes):
        return None
    out = graph.clone()
    nodes = [part for node in out.nodes for part in _parts(out, node, inference, env.registry)]
    if all(a is b for a, b in zip(nodes, out.nodes, strict=False)):
        return None
    out.nodes = _words_first(nodes, {value.name for value in out.inputs})
    out.types = {}
    return out


def _words_first(nodes: list[Node], given: set[str]) -> list[Node]:
    """What numbers words of the model's inputs is one call, in front of everything that is compiled."""
    chosen = [n for n in nodes if n.domain == NATIVE and n.op_type == "Positions" and n.inputs[0] in given]
    if not chosen:
        return nodes
    attributes = {key: [n.attributes[key][0] for n in chosen] for key in ("words", "known")}
    merged = chosen[0].copy(inputs=[n.inputs[0] for n in chosen], outputs=[n.outputs[0] for n in chosen], traced=None)
    merged.attributes = attributes
    return [merged, *(n for n in nodes if not any(n is c for c in chosen))]


def _parts(graph: Graph, node: Node, inference: Inference, registry: Registry) -> list[Node]:
    if node.domain != DOMAIN or not any(node.outputs):
        return [node]
    if node.op_type in MEANINGS and _is_matrix(node, inference):
        return _Rewrite(graph, node, inference, registry).nodes()
    if node.op_type in _MACHINES and not node.attributes.get("classlabels_strings"):
        parts = machine(node, inference, functools.partial(_constant, graph), _native)
        return [node] if parts is None else parts
    if node.op_type in _LABELLED and node.attributes.get("classlabels_strings") and node.outputs[0]:
        numbered, label = _worded(node)
        return [*_parts(graph, numbered, inference, registry), label]
    if node.op_type == "ArrayFeatureExtractor":
        return _picked(graph, node, inference)
    if node.op_type == "LabelEncoder" and node.version > 1:
        return _looked_up(graph, node, inference)
    if node.op_type == "OneHotEncoder":
        return _indicated(graph, node, inference)
    return [node]


def _is_matrix(node: Node, inference: Inference) -> bool:
    kind = inference.types.get(node.inputs[0]) if node.inputs else None
    return isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) in (1, 2)


def _worded(node: Node) -> list[Node]:
    """A classifier of words: one of their indices, and the words by index."""
    words = Classes.of(node.attributes.get("classlabels_ints"), node.attributes["classlabels_strings"]).names()
    index, *others = node.outputs
    numbered = node.copy(outputs=[f"{index}%index", *others], traced=None)
    numbered.attributes["classlabels_ints"] = list(range(len(node.attributes["classlabels_strings"])))
    del numbered.attributes["classlabels_strings"]
    return [numbered, _label(node, numbered.outputs[0], index, words)]


def _picked(graph: Graph, node: Node, inference: Inference) -> list[Node]:
    """Words of a constant by computed indices, as classifiers without an operator of their own pick their labels."""
    words = graph.constants.get(node.inputs[0])
    if words is None or words.dtype is not DType.STRING or len(words.shape) not in (1, 2) or words.size != words.shape[-1]:
        return [node]
    name = f"{node.outputs[0]}%index"
    row = _constant(graph, f"{node.outputs[0]}%row", np.array([1, -1]))
    reshape = Node("Reshape", [node.inputs[1], row], [name], {}, "", node.name, 13, origin=node.origin)
    return [reshape, _label(node, name, node.outputs[0], words.numpy().reshape(-1))]


def _looked_up(graph: Graph, node: Node, inference: Inference) -> list[Node]:
    """A LabelEncoder of numbers as a search among them."""
    kind = inference.types.get(node.inputs[0])
    try:
        mapping = mapping_of(TensorEncoderAttributes(**node.attributes))
    except k.DefinitionError as error:
        raise InvalidGraph(f"node {node.name!r} ({node.qualified_op}): {error}") from error
    keys, places, values = mapping.table.keys, mapping.table.positions, mapping.values
    if not isinstance(kind, TensorType) or kind.shape is None or keys is None or places is None or not len(keys):
        return [node]
    if kind.dtype not in _SEARCHED:
        return [node]
    exact = keys.astype(kind.dtype.numpy)
    if not np.array_equal(exact, keys, equal_nan=keys.dtype.kind == "f"):
        return [node]
    nan = exact.dtype.kind == "f" and bool(np.isnan(exact[-1]))
    known, order = (exact[:-1], places[:-1]) if nan else (exact, places)
    if not len(known):
        return [node]
    order = np.concatenate([order, [places[-1] if nan else -1, -1]])  # the last of the values is the default
    words = values.dtype == object
    chosen = np.arange(len(order)) if words else values[order]
    first = node.outputs[0]
    out = f"{first}%index" if words else first
    spread = int(known[-1]) - int(known[0]) + 1 if known.dtype.kind == "i" else 0
    if 0 < spread <= _SPREAD * len(known) + _SPREAD:
        table = np.full(spread + 1, chosen[-1], chosen.dtype)
        table[known - known[0]] = chosen[:-2]
        search = _native("Table", node, [node.inputs[0], _constant(graph, f"{first}%values", table)], out, low=int(known[0]))
    else:
        arrays = [_constant(graph, f"{first}%{n}", a) for n, a in (("keys", known), ("values", chosen))]
        search = _native("Lookup", node, [node.inputs[0], *arrays], out, nan=int(nan))
    return [search, _label(node, out, first, values[order])] if words else [search]


def _constant(graph: Graph, name: str, array: np.ndarray) -> str:
    graph.constants[name] = Constant.of(name, np.ascontiguousarray(array))
    return name


def _native(op_type: str, node: Node, inputs: list[str], output: str, **attributes: object) -> Node:
    return Node(op_type, inputs, [output], attributes, NATIVE, node.name, 1, origin=node.origin)


def _indicated(graph: Graph, node: Node, inference: Inference) -> list[Node]:
    """A OneHotEncoder as comparisons: of numbers, to which unknown ones are no errors, or of the words' positions."""
    kind, attributes = inference.types.get(node.inputs[0]), node.attributes
    numbers, words = attributes.get("cats_int64s"), attributes.get("cats_strings")
    if not isinstance(kind, TensorType) or kind.shape is None or bool(numbers) == bool(words):
        return [node]
    if (kind.dtype is DType.STRING) != bool(words):
        return [node]
    zeros, name = attributes.get("zeros", 1), f"{node.outputs[0]}%categories"
    if words:
        at = f"{node.outputs[0]}%positions"
        found = _native("Positions", node, [node.inputs[0]], at, words=[words], known=[int(not zeros)])
        return [found, _native("Indicators", node, [at, _constant(graph, name, np.arange(len(words)))], node.outputs[0])]
    if not numbers or not zeros or len(set(numbers)) < len(numbers):
        return [node]
    return [_native("Indicators", node, [node.inputs[0], _constant(graph, name, np.array(numbers, np.int64))], node.outputs[0])]


def _label(node: Node, index: str, output: str, words: np.ndarray) -> Node:
    return _native("Label", node, [index], output, words=words.tolist())


class _Rewrite:
    def __init__(self, graph: Graph, node: Node, inference: Inference, registry: Registry) -> None:
        self.graph, self.node = graph, node
        kind = inference.types[node.inputs[0]]
        assert isinstance(kind, TensorType)
        self.kind = kind
        self.first = next(n for n in node.outputs if n)
        record = resolve_version(inference.graph, node, registry)
        assert record is not None
        self.record = record
        self.made: list[Node] = []

    def nodes(self) -> list[Node]:
        try:
            meant: Ensemble = call(self.record, self.node, [self.kind], self._meaning)
            sums = self._sums(meant)
        except k.DefinitionError as error:
            raise InvalidGraph(f"node {self.node.name!r} ({self.node.qualified_op}): {error}") from error
        base = "" if meant.base is None else _constant(self.graph, f"{self.first}%base", meant.base)
        if meant.classes is None:
            dtype = self.kind.dtype if self.node.op_type == "TreeEnsemble" else DType.FLOAT
            self._add(
                "TreeScores", [sums, base], list(self.node.outputs), aggregate=meant.aggregate, trees=len(meant.forest.roots),
                transform=meant.transform, dtype=dtype.onnx_name,
            )  # fmt: skip
        else:
            self._classify(meant, sums, base)
        return self.made

    def _meaning(self, _data: TensorType, **attributes: object) -> Ensemble:
        return MEANINGS[self.node.op_type](**attributes)

    def _sums(self, meant: Ensemble) -> str:
        x = self.node.inputs[0]
        double = self.kind.dtype is DType.DOUBLE
        if self.kind.dtype not in (DType.FLOAT, DType.DOUBLE):
            x = self._add("Cast", [x], [f"{self.first}%real"], domain="", to=1)
        aggregate = "SUM" if meant.aggregate == "AVERAGE" else meant.aggregate
        packed = pack(meant.forest, np.dtype(np.float64 if double else np.float32), aggregate)
        arrays = {
            "nodes": packed.nodes, "trees": packed.trees, "columns": packed.columns, "weights": packed.weights,
            "first": packed.first, "targets": packed.targets,
        }  # fmt: skip
        constants = [_constant(self.graph, f"{self.first}%{name}", array) for name, array in arrays.items()]
        return self._add(
            "TreeSums", [x, *constants], [f"{self.first}%sums"], votes=packed.votes, aggregate=aggregate,
            scores=meant.forest.targets, features=int(packed.columns.max(initial=-1)) + 1, steps=packed.steps,
        )  # fmt: skip

    def _classify(self, meant: Ensemble, sums: str, base: str) -> None:
        assert meant.classes is not None
        names = meant.classes.names()
        label, scores = (*self.node.outputs, "")[:2]
        words = names.dtype == object
        plain = words or np.array_equal(names, np.arange(len(names)))
        labels = "" if plain else _constant(self.graph, f"{self.first}%labels", names)
        index = f"{self.first}%index" if words and label else label
        self._add(
            "TreeClasses", [sums, base, labels], [index, scores], transform=meant.transform,
            only=-1 if meant.only is None else meant.only, probability=int(meant.probability),
        )  # fmt: skip
        if words and label:
            self.made.append(_label(self.node, index, label, names))

    def _add(self, op_type: str, inputs: list[str], outputs: list[str], domain: str = NATIVE, **attributes: object) -> str:
        while inputs and not inputs[-1]:
            inputs.pop()
        version = 13 if not domain else 1
        node = Node(op_type, inputs, outputs, attributes, domain, self.node.name, version, origin=self.node.origin)
        self.made.append(node)
        return outputs[0]
