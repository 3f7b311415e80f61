"""ONNX's own node cases of one operator defined in primitives, traced on symbolic shapes. (By value: tests/conformance.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backend_cases import check

from intarsia.graph.dims import evaluate, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.ops.framework.infer import trace
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret
from intarsia.testing.cases import plain, suite

NOT_SYMBOLIC = {  # word in a case's name -> why it is not traced on symbolic shapes
    "padded_kv": "a mask shorter than the keys is padded only where both sizes are known",
    "bernoulli": "random numbers are drawn on the host",
}


def graph_of(case: Any) -> Graph | None:
    """The case's graph where its operators are in the registry and it has no subgraphs (those need a runner)."""
    imported = {entry.domain: entry.version for entry in case.model.opset_import}
    for node in case.model.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if registry().find(domain, node.op_type, imported.get(node.domain, 1)) is None:
            return None
        if any(a.HasField("g") for a in node.attribute):
            return None
    return load(case.model.SerializeToString())


def runnable() -> list[str]:
    return [name for name, case in suite("node").items() if graph_of(case) is not None]


def traceable() -> list[str]:
    """Cases of one operator that is defined in primitives, whose inputs are tensors."""
    found = []
    for name in runnable():
        case = suite("node")[name]
        if (
            len(case.model.graph.node) == 1
            and len(case.model.graph.input)
            and all(v.type.HasField("tensor_type") for v in case.model.graph.input)
        ):
            node = case.model.graph.node[0]
            version = next((e.version for e in case.model.opset_import if e.domain == node.domain), 1)
            record = registry().find(node.domain, node.op_type, version)
            if record is not None and not record.host and not any(word in name for word in NOT_SYMBOLIC):
                found.append(name)
    return found


@pytest.mark.parametrize("name", traceable())
def test_traced_on_symbolic_shapes(name: str) -> None:
    """Each dimension of each input (but those of 1) is a symbol of its own; the trace then runs with the case's sizes."""
    case = suite("node")[name]
    graph = graph_of(case)
    assert graph is not None
    (node,) = graph.nodes
    record = registry().find(node.domain, node.op_type, graph.opset_imports.get(node.domain, 1))
    assert record is not None
    inputs, outputs = case.data_sets[0]
    values = {n: c.numpy() for n, c in graph.constants.items()} | dict(
        zip(graph.input_names(), map(plain, inputs), strict=True)
    )
    arrays = [np.asarray(values[n]) if n else None for n in node.inputs]
    env: dict[str, int] = {}
    operands: list[k.Tensor | None] = []
    integers: dict[int, np.ndarray | None] = {}
    for i, array in enumerate(arrays):
        if array is None or i in record.value_indices:
            operands.append(None if array is None else k.input(i, DType.of(array.dtype), array.shape))
            integers[i] = None if array is None else array.astype(object)
            continue
        env |= {f"s{i}_{axis}": d for axis, d in enumerate(array.shape)}
        sizes = [symbol(f"s{i}_{axis}") if d != 1 else 1 for axis, d in enumerate(array.shape)]
        operands.append(k.input(i, DType.of(array.dtype), sizes))
    try:
        roots = trace(record, node.copy(version=record.since), operands, integers)
    except k.SymbolicValueError as error:
        pytest.skip(f"runs on the host where shapes are unknown: {error}")
    wanted = [i for i, root in enumerate(roots) if root is not None and node.outputs[i]]
    found = interpret([roots[i] for i in wanted], arrays, env)  # type: ignore[misc]
    expected = dict(zip(graph.output_names(), outputs, strict=True))
    for i, actual in zip(wanted, found, strict=True):
        assert actual.shape == tuple(evaluate(d, env) for d in roots[i].shape)  # type: ignore[union-attr]
        if node.outputs[i] in expected:
            check(case, actual, plain(expected[node.outputs[i]]))
