"""Run one node with NumPy by its definition: the reference provider, constant folding, host steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from intarsia.errors import Fail, IntarsiaError, NodeFailed, NotImplemented, OutOfMemory
from intarsia.graph.dims import evaluate
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, ValueType
from intarsia.machine.resources import ACCOUNT
from intarsia.ops.framework.infer import MALFORMED, call, check_inputs, keywords, trace
from intarsia.ops.framework.registry import OpRecord, Registry
from intarsia.ops.framework.schema_check import check_given
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import DivisionByZero, Recipe, interpret

RunGraph = Callable[[Graph, Sequence[Any]], list[Any]]
Evaluate = Callable[[Sequence[Any]], list[Any]]  # a node's outputs from its inputs

_TOO_BIG = (  # what it says then, as of versions 1.26 to 2.4
    "array is too big", "Maximum allowed size exceeded", "Maximum allowed dimension exceeded", "iterator is too large",
    "maximum supported dimension", "broadcast dimensions too large",
)  # fmt: skip
_TRACES = 16  # combinations of shapes for which a prepared call keeps what it has traced


def evaluate_node(
    node: Node, inputs: Sequence[Any], registry: Registry, run_graph: RunGraph | None = None,
    around: Mapping[str, Any] | None = None,
) -> list[Any]:  # fmt: skip
    """Outputs of `node` (one per name in `node.outputs`, None where the name is empty).

    Args:
        node: with its version resolved (`ops.framework.infer`), or any version that the newest record covers.
        inputs: arrays (lists for sequences, None for omitted inputs), in the node's order.
        run_graph: runs a subgraph body on inputs; needed by control flow.
        around: arrays, lists and constants that subgraphs capture, by name.

    Raises:
        NotImplemented: the operator has no record.
        NodeFailed: the inputs do not fit the operator's definition, or an integer is divided by 0.
        Fail: the definition failed on these values.
    """
    record = registry.find(node.domain, node.op_type, node.version or 10_000)
    if record is None:
        raise NotImplemented(f"operator {node.qualified_op} version {node.version} of node {node.name!r} is not implemented")
    if run_graph is None:
        return evaluate_record(record, node, inputs)
    return evaluate_record(record, node, inputs, run_graph, partial(_body_types, around or {}, registry))


def _body_types(around: Mapping[str, Any], registry: Registry, graph: Graph, given: Sequence[Any]) -> list[ValueType | None]:
    from intarsia.ops.body_types import body_types

    return body_types(graph, given, around, registry)


def evaluate_record(
    record: OpRecord, node: Node, inputs: Sequence[Any], run_graph: RunGraph | None = None,
    body_types: RunGraph | None = None, *, typed: bool = False,
) -> list[Any]:  # fmt: skip
    """`evaluate_node` by a record. `typed`: the inputs are of the types that inference found and compared with the schema."""
    try:
        if not typed:
            check_given(record, node, inputs)
        if record.host:
            return _outputs(call(record, node, inputs, run_graph=run_graph, body_types=body_types), len(node.outputs))
        return _evaluate_definition(record, node, inputs)
    except Exception as error:
        told = _told(node, inputs, error)
        if told is error:
            raise
        raise told from error


def _outputs(out: Any, count: int) -> list[Any]:
    """One value for each output: an operator gives several as a tuple; a list is one sequence."""
    results = list(out) if type(out) is tuple else [out]
    if (account := ACCOUNT.get()) is not None:
        account.check_texts(results)
    return results if len(results) == count else (results + [None] * count)[:count]


def _told(node: Node, inputs: Sequence[Any], error: Exception) -> Exception:
    """What callers are told of an error of a definition."""
    where = f"node {node.name!r} ({node.qualified_op})"
    if isinstance(error, k.DefinitionError):
        return NodeFailed(f"{where}: {error}")
    if isinstance(error, DivisionByZero):
        return NodeFailed(f"{where}: {error}")
    if isinstance(error, IntarsiaError):  # of a node in a body
        return error
    if isinstance(error, MemoryError) or is_too_big(error):
        return OutOfMemory(f"{where}: {error}: use a smaller batch or a shorter input, or free memory")
    if isinstance(error, MALFORMED):
        shapes = ", ".join("-" if x is None else str(getattr(x, "shape", type(x).__name__)) for x in inputs)
        return Fail(f"{where} failed on inputs of shapes {shapes}: {error}")
    return error


def is_too_big(error: Exception) -> bool:
    """Whether NumPy says that an array would have more elements than it can count."""
    return isinstance(error, (ValueError, OverflowError)) and str(error).startswith(_TOO_BIG)


def prepared_call(record: OpRecord, node: Node, typed: bool = False) -> Evaluate:
    """`evaluate_record` of a node without bodies as a function of its inputs: what is the same in every call is looked up once.

    Definitions in primitives are traced once for each combination of input shapes, where no values decide what they are.
    """
    if not record.host:
        by_values = record.value_indices or not record.deterministic
        return partial(evaluate_record, record, node, typed=typed) if by_values else _Traced(record, node, typed)
    try:
        check_inputs(record, node.inputs)
        attributes = keywords(record, node, run_graph=None)
        function = record.bind(**attributes) if record.bind else partial(record.function, **attributes)
    except k.DefinitionError:
        return partial(evaluate_record, record, node)  # says what is wrong when it runs
    count = len(node.outputs)

    def evaluated(inputs: Sequence[Any]) -> list[Any]:
        for x in inputs:
            if x is None:
                return evaluate_record(record, node, inputs, typed=typed)
        try:
            if not typed:
                check_given(record, node, inputs)
            return _outputs(function(*inputs), count)
        except Exception as error:
            told = _told(node, inputs, error)
            if told is error:
                raise
            raise told from error

    return evaluated


def _evaluate_definition(record: OpRecord, node: Node, inputs: Sequence[Any]) -> list[Any]:
    arrays: list[Any] = [x if x is None or isinstance(x, list) else np.asarray(x) for x in inputs]
    operands = [k.input(i, DType.of(x.dtype), x.shape) if isinstance(x, np.ndarray) else x for i, x in enumerate(arrays)]
    values: dict[int, np.ndarray | None] = {}
    for i in record.value_indices:
        array = arrays[i] if i < len(arrays) else None
        values[i] = None if array is None else array.astype(object)
    try:
        roots = trace(record, node, operands, values)
    except k.SymbolicValueError:
        if record.fallback is None:
            raise
        out = call(record, node, arrays, record.fallback)
        return [*(out if isinstance(out, tuple) else (out,)), *[None] * len(node.outputs)][: len(node.outputs)]
    if any(isinstance(r, list) for r in roots):  # Identity of a sequence
        return list(roots)
    wanted = [r for r in roots if r is not None]
    found = iter(interpret(wanted, arrays))
    return [None if r is None else np.ascontiguousarray(next(found)).reshape(_static(r)) for r in roots]


class _Traced:
    """A definition that is traced in the first call with inputs of these shapes."""

    def __init__(self, record: OpRecord, node: Node, typed: bool) -> None:
        self.record, self.node, self.typed = record, node, typed
        self.known: dict[object, Recipe | None] = {}

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        key = tuple([(x.shape, x.dtype) if type(x) is np.ndarray else None for x in inputs])
        recipe = self.known.get(key)
        if recipe is None and None not in key and key not in self.known:
            if len(self.known) >= _TRACES:
                self.known.clear()
            recipe = self.known[key] = self._traced(inputs)
        if recipe is None:
            return evaluate_record(self.record, self.node, inputs, typed=self.typed)
        try:
            return recipe.run(inputs)
        except (IntarsiaError, MemoryError, *MALFORMED):
            return evaluate_record(self.record, self.node, inputs)

    def _traced(self, inputs: Sequence[np.ndarray]) -> Recipe | None:
        """None where something is wrong with the inputs, or other than usual: `evaluate_record` finds what."""
        try:
            operands = [k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate(inputs)]
            if not self.typed:
                check_given(self.record, self.node, inputs)
            roots = [r for r in trace(self.record, self.node, operands, {}) if isinstance(r, k.Tensor)]
            return Recipe(roots) if len(roots) == len(self.node.outputs) else None
        except (IntarsiaError, MemoryError, *MALFORMED):
            return None


def _static(root: k.Tensor) -> list[int]:
    return [evaluate(d, {}) for d in root.shape]
