"""Types of what a Loop's body takes, over all iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, SequenceType, TensorType, Value, ValueType
from intarsia.ops.control import carried_types, trip_type
from intarsia.ops.framework.infer import Inference, infer
from intarsia.passes.rewriter import Rewriter
from intarsia.primitives import lang as k


def taken_types(loop: Node, body: Graph, around: Rewriter) -> list[ValueType | None]:
    """A type for each input of the body: of carried tensors the sizes only where no iteration changes them."""
    head: list[ValueType | None] = [trip_type(body), TensorType(DType.BOOL, ())]
    initial = [_without_elements(around.types.get(name)) for name in loop.inputs[2:]]
    count = len(initial)

    def made(kinds: Sequence[ValueType | None]) -> list[ValueType | None]:
        found = body_inference(body, [*head, *kinds], around).types
        return [found.get(v.name) for v in body.outputs[1:]]

    try:
        carried, _ = carried_types(made, initial, count)
    except (IntarsiaError, k.DefinitionError):
        carried = [v.type for v in body.inputs[2:]]
    known: list[ValueType | None] = []
    for value, before, kind in zip(body.inputs[2:], initial, carried, strict=True):
        if kind is not None and kind == before:
            known.append(kind)
        else:
            known.append(TensorType(kind.dtype) if isinstance(kind, TensorType) else value.type)
    return [*head, *known]


def body_inference(body: Graph, kinds: Sequence[ValueType | None], around: Rewriter) -> Inference:
    """Types of the body's values where it takes such ones."""
    inner = body.clone()
    inner.opset_imports = body.opset_imports or dict(around.graph.opset_imports)
    inner.types = {}
    inner.inputs = [Value(v.name, kind) for v, kind in zip(body.inputs, kinds, strict=True)]
    return infer(inner, around.registry, around.types, around.values, strict=False)


def _without_elements(kind: ValueType | None) -> ValueType | None:
    """A sequence's elements may differ from those that it begins with."""
    return SequenceType(None) if isinstance(kind, SequenceType) else kind


def always_goes_on(loop: Node, body: Graph, rewriter: Rewriter) -> bool:
    """Whether only the number of iterations ends the loop."""
    condition = rewriter.array(loop.inputs[1]) if loop.inputs[1] else None
    if loop.inputs[1] and (condition is None or not condition.all()):
        return False
    made_by, name = body.producers(), body.outputs[0].name
    while name in made_by and made_by[name].op_type in ("Identity", "Cast"):
        name = made_by[name].inputs[0]
    if name == body.inputs[1].name:
        return True
    node = made_by.get(name)
    if node is not None and node.op_type == "Constant":
        return bool(np.asarray(node.attributes.get("value", 0)).all())
    held = body.constants[name].numpy() if name in body.constants else rewriter.array(name)
    return held is not None and bool(held.all())
