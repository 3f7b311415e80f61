"""Small models in code, and their comparison before and after the optimise stage with onnx's reference evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.graph.save import to_model_proto
from intarsia.passes import GraphOptimizationLevel, OptimizeResult, optimize, standardize

Spec = Sequence[Any]  # (op_type, inputs, outputs[, attributes])
BASIC = GraphOptimizationLevel.ORT_ENABLE_BASIC
EXTENDED = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
ALL = GraphOptimizationLevel.ORT_ENABLE_ALL


def build(
    nodes: Sequence[Spec],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 20,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model. `inputs` gives shapes (float32), or (dtype, shape); `constants` gives arrays, Python floats as float32."""
    made = []
    for i, (op_type, ins, outs, *rest) in enumerate(nodes):
        attributes = dict(rest[0]) if rest else {}
        domain = attributes.pop("domain", "")
        made.append(
            helper.make_node(
                op_type,
                ins.split() if isinstance(ins, str) else ins,
                outs.split(),
                name=f"{op_type}_{i}",
                domain=domain,
                **attributes,
            )
        )
    values = []
    for name, spec in inputs.items():
        dtype, shape = spec if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], list) else (np.float32, spec)
        values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape))
    tensors = []
    for name, value in (constants or {}).items():
        tensors.append(numpy_helper.from_array(value if isinstance(value, np.ndarray) else _array(value), name))
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(made, "test", values, results, tensors)
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(f.domain, 1) for f in functions]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def _array(value: Any) -> np.ndarray:
    array = np.array(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def counts(graph: Graph) -> Counter[str]:
    return Counter(n.op_type for n in graph.nodes)


def random_feeds(model: onnx.ModelProto, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    feeds = {}
    known = {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        if value.name in known:
            continue
        kind = value.type.tensor_type
        shape = [(sizes or {})[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            feeds[value.name] = rng.normal(size=shape).astype(dtype)
        elif dtype.kind == "b":
            feeds[value.name] = rng.random(shape) < 0.7
        else:
            feeds[value.name] = rng.integers(0, 4, shape).astype(dtype)
    return feeds


def optimized(
    model: onnx.ModelProto,
    level: GraphOptimizationLevel = ALL,
    *,
    sizes: Mapping[str, int] | None = None,
    feeds: Mapping[str, np.ndarray] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **options: Any,
) -> OptimizeResult:
    """Optimise, check that the saved result computes the same and that a second pass changes nothing, and return it."""
    result = optimize(load(model), level, **options)
    given = dict(feeds) if feeds is not None else random_feeds(model, sizes)
    expected = _reference(model, given)
    proto = to_model_proto(standardize(result.graph))
    onnx.checker.check_model(proto)
    found = _reference(proto, given)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)
    if not options:
        again = optimize(result.graph, level)
        assert again.log == (), f"a second pass changed the graph:\n{again}"
    return result


def _reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        found: list[np.ndarray] = ReferenceEvaluator(model).run(None, dict(feeds))
    return found


def fired(result: OptimizeResult) -> dict[str, int]:
    return {entry.rule: entry.times for entry in result.log}
