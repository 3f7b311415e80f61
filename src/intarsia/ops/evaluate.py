"""Run one node with NumPy by its definition: the reference provider, constant folding, host steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import Fail, IntarsiaError, InvalidArgument, InvalidGraph, NotImplemented, OutOfMemory
from intarsia.graph.dims import evaluate
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node
from intarsia.kernel import lang as k
from intarsia.kernel.interpret import DivisionByZero, interpret
from intarsia.ops.infer import MALFORMED, call, trace
from intarsia.ops.registry import OpRecord, Registry

RunGraph = Callable[[Graph, Sequence[Any]], list[Any]]


def evaluate_node(node: Node, inputs: Sequence[Any], registry: Registry, run_graph: RunGraph | None = None) -> list[Any]:
    """Outputs of `node` (one per name in `node.outputs`, None where the name is empty).

    Args:
        node: with its version resolved (`ops.infer`), or any version that the newest record covers.
        inputs: arrays (lists for sequences, None for omitted inputs), in the node's order.
        run_graph: runs a subgraph body on inputs; needed by control flow.

    Raises:
        NotImplemented: the operator has no record.
        InvalidGraph: the inputs do not fit the operator's definition.
        InvalidArgument: an integer is divided by 0.
        Fail: the definition failed on these values.
    """
    record = registry.find(node.domain, node.op_type, node.version or 10_000)
    if record is None:
        raise NotImplemented(f"operator {node.qualified_op} version {node.version} of node {node.name!r} is not implemented")
    return evaluate_record(record, node, inputs, run_graph)


def evaluate_record(
    record: OpRecord,
    node: Node,
    inputs: Sequence[Any],
    run_graph: RunGraph | None = None,
    checked: Mapping[str, Any] | None = None,
) -> list[Any]:
    """`evaluate_node` by a record; `checked`: the node's attributes as `ops.infer.keywords` gave them, for a host operator."""
    try:
        if record.host:
            out = call(record, node, inputs, checked=checked, run_graph=run_graph)
            results = list(out) if isinstance(out, (tuple, list)) and not _single_sequence(record, node, out) else [out]
            return (results + [None] * len(node.outputs))[: len(node.outputs)]
        return _evaluate_definition(record, node, inputs)
    except k.DefinitionError as error:
        raise InvalidGraph(f"node {node.name!r} ({node.qualified_op}): {error}") from error
    except DivisionByZero as error:
        raise InvalidArgument(f"node {node.name!r} ({node.qualified_op}): {error}") from error
    except IntarsiaError:  # of a node in a body
        raise
    except MemoryError as error:
        raise OutOfMemory(
            f"node {node.name!r} ({node.qualified_op}): {error}: use a smaller batch or a shorter input, or free memory"
        ) from error
    except MALFORMED as error:
        shapes = ", ".join("-" if x is None else str(getattr(x, "shape", type(x).__name__)) for x in inputs)
        raise Fail(f"node {node.name!r} ({node.qualified_op}) failed on inputs of shapes {shapes}: {error}") from error


def _single_sequence(record: OpRecord, node: Node, out: Any) -> bool:
    """A list returned by an operator is one sequence value; several outputs come as a tuple."""
    return isinstance(out, list)


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


def traced_once(record: OpRecord, node: Node) -> Callable[[Sequence[Any]], list[Any] | None] | None:
    """A definition for inputs of the same shapes in every call, traced in the first one; None where values decide what it is.

    The function answers None where something is no array, or is wrong: `evaluate_node` says what.
    """
    if record.host or record.value_indices or not record.deterministic:
        return None
    kept: list[list[k.Tensor]] = []

    def evaluated(inputs: Sequence[Any]) -> list[Any] | None:
        if any(type(x) is not np.ndarray for x in inputs):
            return None
        try:
            if not kept:
                roots = trace(record, node, [k.input(i, DType.of(x.dtype), x.shape) for i, x in enumerate(inputs)], {})
                if any(not isinstance(r, k.Tensor) for r in roots):
                    return None
                kept.append(roots)  # type: ignore[arg-type]
            results = interpret(kept[0], inputs)
        except (k.DefinitionError, DivisionByZero, IntarsiaError, MemoryError, *MALFORMED):
            return None
        return [np.ascontiguousarray(y).reshape(_static(r)) for r, y in zip(kept[0], results, strict=True)]

    return evaluated


def _static(root: k.Tensor) -> list[int]:
    return [evaluate(d, {}) for d in root.shape]
