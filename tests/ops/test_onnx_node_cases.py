"""ONNX's own node cases: every one whose operators are in the registry, by value and traced on symbolic shapes."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

from intarsia.graph.dims import evaluate, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.kernel import lang as k
from intarsia.kernel.interpret import interpret
from intarsia.ops import registry
from intarsia.ops.evaluate import evaluate_node
from intarsia.ops.infer import trace

RANDOM = ("bernoulli",)  # drawn values: only type, shape and range are compared
TOLERANCE = {DType.FLOAT16: 2.0**-9, DType.BFLOAT16: 2.0**-6}  # two units in the last place
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


@functools.cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def runnable() -> list[str]:
    return [name for name, case in cases().items() if graph_of(case) is not None]


def traceable() -> list[str]:
    """Cases of one operator that is defined in primitives, whose inputs are tensors."""
    found = []
    for name in runnable():
        case = cases()[name]
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


def plain(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def run(graph: Graph, inputs: list[Any]) -> list[Any]:
    values = {name: constant.numpy() for name, constant in graph.constants.items()}
    values |= dict(zip(graph.input_names(), inputs, strict=True))
    for node in graph.nodes:
        resolved = node.copy(version=graph.opset_imports.get(node.domain, 1))
        outputs = evaluate_node(resolved, [values[name] if name else None for name in node.inputs], registry())
        values |= {name: value for name, value in zip(node.outputs, outputs, strict=True) if name}
    return [values[name] for name in graph.output_names()]


def check(case: Any, actual: Any, expected: Any) -> None:
    if expected is None or isinstance(expected, list):
        assert type(actual) is type(expected)
        for a, e in zip(actual or [], expected or [], strict=True):
            check(case, a, e)
        return
    expected = np.asarray(expected)
    dtype = DType.of(expected.dtype)
    assert DType.of(actual.dtype) is dtype
    assert actual.shape == expected.shape
    if any(word in case.name for word in RANDOM):
        assert np.isin(actual.astype(np.float32), (0, 1)).all()
    elif dtype is DType.STRING:
        assert actual.astype(str).tolist() == expected.astype(str).tolist()
    elif dtype.is_integer or dtype is DType.BOOL:
        np.testing.assert_array_equal(actual, expected)
    else:
        wide = np.complex128 if dtype.is_complex else np.float64
        rtol = max(case.rtol, TOLERANCE.get(dtype, 0.0))
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol)


@pytest.mark.parametrize("name", runnable())
def test_case(name: str) -> None:
    case = cases()[name]
    graph = graph_of(case)
    assert graph is not None
    for inputs, outputs in case.data_sets:
        found = run(graph, [plain(v) for v in inputs])
        for actual, expected in zip(found, outputs, strict=True):
            check(case, actual, plain(expected))


@pytest.mark.parametrize("name", traceable())
def test_traced_on_symbolic_shapes(name: str) -> None:
    """Each dimension of each input (but those of 1) is a symbol of its own; the trace then runs with the case's sizes."""
    case = cases()[name]
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
