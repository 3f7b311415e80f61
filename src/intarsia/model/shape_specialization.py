"""Branches that sizes choose: where inputs' sizes, or an input of one integer, decide which branch of an If runs, and the If is
no part of the native program, the model is made ready without it, once for each choice that runs come by.

Exporters write such an If for PyTorch's `squeeze`: one branch has another rank than the other, so nothing behind it has a rank
before a run, and runs node by node. In a graph without the branch that is not taken all ranks are known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.graph.dims import Dim, Expr, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, OptionalType, SequenceType, TensorType, ValueType
from intarsia.plan.size_constraints import SEPARATE_BRANCHES, WINDOWS_ON_HOST

if TYPE_CHECKING:
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.ops.framework.infer import Inference
    from intarsia.ops.framework.registry import Registry

CHOICES = 8  # graphs that are made for one model; what more runs ask for runs by the graph with all branches
_KNOWN = 64  # combinations of sizes and numbers whose model is known
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq, "Less": operator.lt, "LessOrEqual": operator.le,
    "Greater": operator.gt, "GreaterOrEqual": operator.ge,
}  # fmt: skip


class SizeCondition(NamedTuple):
    """`holds(left, right)` of two sizes, as the value `name` of a graph says it (or its contrary)."""

    name: str
    holds: Callable[[int, int], bool]
    left: Dim
    right: Dim
    negated: bool

    @property
    def symbols(self) -> frozenset[str]:
        return symbols_of(self.left) | symbols_of(self.right)

    def chosen(self, env: dict[str, int]) -> bool:
        left, right = (d.evaluate(env) if isinstance(d, Expr) else d for d in (self.left, self.right))
        return self.holds(left, right) != self.negated


def hosted(model: Runnable) -> frozenset[str]:
    """The outputs of every If that a compiled model runs as a step of its own."""
    units = (unit for program in model.programs for unit in getattr(getattr(program, "executable", None), "units", ()))
    nodes = (node for unit in units if isinstance(node := getattr(unit, "node", None), Node))
    return frozenset(name for node in nodes if _is_if(node) for name in node.outputs if name)


def conditions(graph: Graph, steps: frozenset[str], operators: Registry) -> list[SizeCondition]:
    """What sizes and single numbers of inputs decide about the branches of an optimised graph that `steps` are outputs of."""
    from intarsia.ops.framework.infer import infer

    if not any(_is_if(node) and steps.intersection(node.outputs) for node in graph.nodes):
        return []
    graph = graph.clone()
    graph.followed = frozenset(value.name for value in graph.inputs if _is_number(value.type))
    found = infer(graph, operators, strict=False)
    makers = {name: node for node in found.graph.nodes for name in node.outputs if name}
    given = {name for value in graph.inputs for name, _ in _symbols(value.type)} | {_element(n) for n in graph.followed}
    outputs = set(graph.output_names())
    named: dict[str, SizeCondition] = {}
    for node in found.graph.nodes:
        if _is_if(node) and steps.intersection(node.outputs) and node.inputs[0] not in outputs:
            condition = _condition(node.inputs[0], makers, found)
            if condition is not None and condition.symbols <= given:
                named[condition.name] = condition
    return list(named.values())


def without(graph: Graph, choices: dict[str, bool]) -> Graph:
    """The graph with the values `choices` known, so that rewriting it takes the branches that are not chosen away."""
    out = graph.clone()
    out.nodes = [node for node in out.nodes if not choices.keys() & set(node.outputs)]
    for name, chosen in choices.items():
        shape = getattr(graph.types.get(name), "shape", None) or ()
        out.constants[name] = Constant.of(name, np.full(shape, chosen), "a comparison of sizes")
    return out


def with_separate_branches(graph: Graph) -> Graph:
    """The graph whose branches are programs of their own, wherever it has an If."""
    return _marked(graph, _is_if, SEPARATE_BRANCHES)


def with_windows_on_host(graph: Graph) -> Graph:
    """The graph whose pools Python computes, for maps of any size: some, whose size a run computes, are smaller than their
    window."""
    from intarsia.ops.nn.sliding_windows import CLIPPED

    return _marked(graph, lambda node: node.op_type in CLIPPED, WINDOWS_ON_HOST)


def _marked(graph: Graph, chosen: Callable[[Node], bool], attribute: str) -> Graph:
    """The graph with an attribute at nodes, those of bodies and functions included."""
    out = graph.clone()
    out.functions = {key: replace(f, nodes=[node.copy() for node in f.nodes]) for key, f in graph.functions.items()}
    for node in (*out.nodes, *(node for function in out.functions.values() for node in function.nodes)):
        bodies = {n: _marked(v, chosen, attribute) for n, v in node.attributes.items() if isinstance(v, Graph)}
        node.attributes = {**node.attributes, **bodies, **({attribute: 1} if chosen(node) else {})}
    return out


def pinned(graph: Graph, inputs: Sequence[Any]) -> Graph | None:
    """The graph with the sizes of these inputs instead of symbols; None where it has no symbols of inputs."""
    from intarsia.model.load_and_optimize import with_sizes

    shapes = [(value, getattr(x, "shape", None)) for value, x in zip(graph.inputs, inputs, strict=True)]
    sizes = {n: int(shape[axis]) for value, shape in shapes if shape is not None for n, axis in _symbols(value.type)}
    return with_sizes(graph, sizes) if sizes else None


def with_any_elements(graph: Graph) -> Graph | None:
    """The graph in which elements of sequences may be of any shape, as onnxruntime takes them; None where no input is one."""
    if not any(isinstance(v.type, SequenceType | OptionalType) for v in graph.inputs):
        return None
    out = graph.clone()
    out.inputs = [replace(v, type=_of_any_shape(v.type)) for v in graph.inputs]
    out.types = {n: t for n, found in graph.types.items() if (t := _of_any_shape(found)) is not None}
    return out


def _of_any_shape(kind: ValueType | None, *, inside: bool = False) -> ValueType | None:
    """A type without the shapes of elements of sequences."""
    if isinstance(kind, SequenceType | OptionalType):
        return type(kind)(_of_any_shape(kind.element, inside=inside or isinstance(kind, SequenceType)))
    return TensorType(kind.dtype) if inside and isinstance(kind, TensorType) else kind


class SizeBranches:
    """The model for the inputs of each run.

    Args:
        graph: the session's optimised graph.
        model: what it was compiled to.
        operators: the session's.
        made: compiles a graph under a name, or gives the model that it made before.
    """

    def __init__(
        self, graph: Graph, model: Runnable, operators: Registry, made: Callable[[str, Callable[[], Graph]], CompiledModel]
    ) -> None:
        self._made, self._inputs, self._operators = made, list(graph.inputs), operators
        self._levels: dict[str, tuple[Graph, list[SizeCondition]]] = {}
        self._known: dict[tuple[Any, ...], CompiledModel | None] = {}
        self._numbers: list[int] = []  # inputs whose element a condition reads
        self._enter("", graph, model)

    def model(self, inputs: Sequence[Any]) -> CompiledModel | None:
        """The model for these inputs; None: the one with all branches."""
        key = (*[getattr(x, "shape", None) for x in inputs], *[_number(inputs[i]) for i in self._numbers])
        if key not in self._known:
            found = self._found(inputs)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            if len(key) == len(inputs) + len(self._numbers):  # no condition on a further number was met
                self._known[key] = found
            return found
        return self._known[key]

    def _found(self, inputs: Sequence[Any]) -> CompiledModel | None:
        env: dict[str, int] = {}
        for value, x in zip(self._inputs, inputs, strict=True):
            shape = getattr(x, "shape", None)
            env.update((name, shape[axis]) for name, axis in _symbols(value.type) if shape is not None)
            if _is_number(value.type) and (number := _number(x)) is not None:
                env[_element(value.name)] = number
        model, path = None, ""
        while self._levels[path][1]:
            graph, undecided = self._levels[path]
            try:
                choices = {c.name: c.chosen(env) for c in undecided}
            except (KeyError, ValueError, ZeroDivisionError):
                return model
            path += "".join("01"[chosen] for chosen in choices.values()) + "."
            if path not in self._levels and len(self._levels) > CHOICES:
                return None
            model = self._made(path, partial(without, graph, choices))
            if path not in self._levels:
                self._enter(path, model.partition.graph, model)
        return model

    def _enter(self, path: str, graph: Graph, model: Runnable) -> None:
        found = conditions(graph, hosted(model), self._operators)
        self._levels[path] = (graph, found)
        read = frozenset[str]().union(*(c.symbols for c in found))
        more = [i for i, v in enumerate(self._inputs) if i not in self._numbers and _element(v.name) in read]
        if more:
            self._numbers += more
            self._known.clear()


def _is_if(node: Node) -> bool:
    return node.op_type == "If" and not node.domain


def _is_number(kind: object) -> bool:
    """Whether an input is one integer."""
    integer = isinstance(kind, TensorType) and kind.dtype in (DType.INT32, DType.INT64)
    return integer and isinstance(kind, TensorType) and kind.shape in ((), (1,))


def _element(name: str) -> str:
    """The symbol of an input's only element (`Graph.followed`)."""
    return f"{name}[0]"


def _number(x: Any) -> int | None:
    return int(x.item()) if isinstance(x, np.ndarray) and x.size == 1 else None


def _symbols(kind: object) -> list[tuple[str, int]]:
    """Names of sizes and the axes that have them."""
    dims = (kind.shape or ()) if isinstance(kind, TensorType) else ()
    return [(str(d), axis) for axis, d in enumerate(dims) if isinstance(d, Expr) and d.symbols == {str(d)}]


def _condition(name: str, makers: dict[str, Node], found: Inference) -> SizeCondition | None:
    """What a value says of sizes; None where it says anything else."""
    negated, at = False, name
    while (node := makers.get(at)) is not None and node.op_type in ("Not", "Cast", "Identity") and not node.domain:
        negated, at = negated != (node.op_type == "Not"), node.inputs[0]
    if node is None or node.domain or node.op_type not in _COMPARISONS:
        return None
    sides = [found.values.get(n) for n in node.inputs]
    if any(side is None or side.size != 1 for side in sides):
        return None
    left, right = (side.reshape(-1)[0] for side in sides if side is not None)
    if not all(isinstance(d, int | np.integer | Expr) for d in (left, right)):
        return None
    plain = [d if isinstance(d, Expr) else int(d) for d in (left, right)]
    return SizeCondition(name, _COMPARISONS[node.op_type], plain[0], plain[1], negated)
