"""ONNX's node cases given to NVIDIA's own parser and builder, which need no GPU."""

from __future__ import annotations

from typing import Any

from intarsia.conversion.convert import _split
from intarsia.graph.load import load
from intarsia.passes import GraphOptimizationLevel, optimize
from intarsia.providers.tensorrt.conversion import TensorrtTarget, TensorrtTargetOptions
from intarsia.providers.vendor.conversion import translated
from intarsia.providers.vendor.program import Interface
from intarsia.providers.vendor.shape_profile import ShapeProfile, bind, is_open, probe_shapes
from intarsia.testing.cases import model_and_data

REST = "the rest"


def outcome(case: Any, chips: str = "SM80") -> tuple[str, str]:
    """What becomes of a case: ("built", ""), ("refused", the first node's reason), ("nothing", "") where no node is left to
    compute, or ("failed", why the builder makes nothing of nodes that were taken)."""
    from intarsia.errors import Fail

    target = TensorrtTarget(TensorrtTargetOptions(chips=chips))
    model, _ = model_and_data(case)
    graph = optimize(load(model.SerializeToString()), GraphOptimizationLevel.ORT_ENABLE_BASIC).graph
    if is_open(graph) and (shapes := probe_shapes(graph)) is not None:
        graph = bind(graph, shapes)
    split = _split(graph, target.surveyor())
    for row in split.placements:
        if row.provider == REST:
            reason = next(iter(row.refusals.values())).reason
            assert reason
            return "refused", f"{row.node.qualified_op}: {reason}"
    built = 0
    for part in split.parts:
        interface, graph = Interface.of(part.graph)
        if not interface.outputs:
            continue
        try:
            target.engine_of(translated(graph, target._translator(), ShapeProfile()), ShapeProfile())
        except Fail as error:
            return "failed", str(error)
        built += 1
    return ("built", "") if built else ("nothing", "")
