"""Graphs with control flow as the specification has it: bodies are walked node by node, each of which onnx's
ReferenceEvaluator computes alone. (Its own Loop and Scan do not know zero trips, other axes or captured names.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

Values = Mapping[str, Any]


def walked(model: onnx.ModelProto, feeds: Values) -> list[Any]:
    """The model's outputs."""
    opset = next(o.version for o in model.opset_import if not o.domain)
    return _graph(model.graph, feeds, {}, opset)


def _graph(graph: onnx.GraphProto, given: Values, outer: Values, opset: int) -> list[Any]:
    values: dict[str, Any] = {**outer, **given}
    for node in graph.node:
        inputs = [values[n] if n else None for n in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        run = {"If": _if, "Loop": _loop, "Scan": _scan}.get(node.op_type)
        if run is None:
            outputs = _one(node, values, opset)
        else:
            outputs = run(inputs, attributes, values, opset)
        values.update((n, x) for n, x in zip(node.output, outputs, strict=True) if n)
    return [values[v.name] for v in graph.output]


def _one(node: onnx.NodeProto, values: Values, opset: int) -> list[Any]:
    inputs = [helper.make_empty_tensor_value_info(n) for n in dict.fromkeys(node.input) if n]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
    graph = helper.make_graph([node], "one", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return ReferenceEvaluator(made).run(None, {v.name: values[v.name] for v in inputs})


def _body(graph: onnx.GraphProto, given: list[Any], values: Values, opset: int) -> list[Any]:
    return _graph(graph, {v.name: x for v, x in zip(graph.input, given, strict=True)}, values, opset)


def _if(inputs: list[Any], attributes: Values, values: Values, opset: int) -> list[Any]:
    return _body(attributes["then_branch" if np.asarray(inputs[0]).item() else "else_branch"], [], values, opset)


def _loop(inputs: list[Any], attributes: Values, values: Values, opset: int) -> list[Any]:
    body, states = attributes["body"], list(inputs[2:])
    trips = None if inputs[0] is None else np.asarray(inputs[0]).item()
    condition = inputs[1] if len(inputs) > 1 else None
    going = condition is None or bool(np.asarray(condition).item())
    rows: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    trip = 0
    while going and (trips is None or trip < trips):
        out = _body(body, [np.array(trip), np.array(True), *states], values, opset)
        going = bool(np.asarray(out[0]).item())
        states = out[1 : 1 + len(states)]
        for row, x in zip(rows, out[1 + len(states) :], strict=True):
            row.append(x)
        trip += 1
    return [*states, *(np.stack(r) if r else None for r in rows)]


def _scan(inputs: list[Any], attributes: Values, values: Values, opset: int) -> list[Any]:
    body, count = attributes["body"], attributes["num_scan_inputs"]
    states, sources = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    outputs = len(body.output) - len(states)

    def each(name: str, length: int) -> list[int]:
        return list(attributes.get(name) or [0] * length)

    moved = [np.moveaxis(x, a, 0) for x, a in zip(sources, each("scan_input_axes", count), strict=True)]
    moved = [x[::-1] if back else x for x, back in zip(moved, each("scan_input_directions", count), strict=True)]
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for trip in range(len(moved[0])):
        out = _body(body, [*states, *(np.asarray(x[trip]) for x in moved)], values, opset)
        states = out[: len(states)]
        for row, x in zip(rows, out[len(states) :], strict=True):
            row.append(x)
    made = []
    for row, axis, back in zip(rows, each("scan_output_axes", outputs), each("scan_output_directions", outputs), strict=True):
        made.append(np.stack(row[::-1] if back else row, axis) if row else None)
    return [*states, *made]
