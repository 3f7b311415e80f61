"""What nodes ask of sizes that only a run gives, whichever kernels compute them: looked at when a program is bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from intarsia.graph.dims import Expr, is_nonnegative, product
from intarsia.graph.model import Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.ops.nn.sliding_windows import CLIPPED, may_be_clipped
from intarsia.plan.size_constraints import WINDOWS_ON_HOST, Constraint


def size_requirements(inference: Inference) -> Iterator[Constraint]:
    """Of all nodes of a graph, each once: what other sizes want kernels of their own for comes before what is an error."""
    yield from unlike(_divisors(inference), _windows(inference), _definitions(inference))


def unlike(*several: Iterable[Constraint]) -> Iterator[Constraint]:
    """Constraints without those that ask what one before them does."""
    seen: set[tuple[object, ...]] = set()
    for found in chain(*several):
        key = (found.kind, found.left, found.right, found.variant)
        if key not in seen:
            seen.add(key)
            yield found


def _definitions(inference: Inference) -> Iterator[Constraint]:
    """What definitions ask (`primitives.requirements`); kernels that stand for a definition may rely on all of it."""
    for node in inference.graph.nodes:
        for requirement in inference.requirements.get(node.outputs[0], ()):
            yield Constraint(requirement.kind, requirement.left, requirement.right, place_of(node), what=requirement.what)


def _divisors(inference: Inference) -> Iterator[Constraint]:
    """That the divisors of nodes are not 0, where they are sizes that may be."""
    for node in inference.graph.nodes:
        if node.op_type not in ("Div", "Mod") or node.domain or node.outputs[0] not in inference.values:
            continue
        kind, divisor = inference.types.get(node.outputs[0]), inference.values.get(node.inputs[1])
        if divisor is None or not isinstance(kind, TensorType):
            continue
        for d in dict.fromkeys(v for v in divisor.flat if isinstance(v, Expr) and not is_nonnegative(v - 1)):
            yield Constraint("divisor", d, product(kind.shape or ()), place_of(node))


def _windows(inference: Inference) -> Iterator[Constraint]:
    """That maps are at least as large as the windows of pools over them (`ops.nn.sliding_windows.place_windows`, clipped)."""
    for node in inference.graph.nodes:
        given: Any = node.attributes
        kind = inference.types.get(node.inputs[0]) if node.op_type in CLIPPED else None
        if not isinstance(kind, TensorType) or kind.shape is None or WINDOWS_ON_HOST in given:
            continue
        inner = node.domain == "intarsia.channels_last" or node.op_type.startswith("Nhwc") or given.get("channels_last", 0)
        extents = kind.shape[1:-1] if inner else kind.shape[2:]
        kernel, strides, pads, dilations = (given.get(n) for n in ("kernel_shape", "strides", "pads", "dilations"))
        mode, ceil = given.get("auto_pad") or "NOTSET", given.get("ceil_mode", 0)
        for have, span in may_be_clipped(extents, kernel, strides, pads, dilations, mode, ceil):
            yield Constraint("least", have, span, place_of(node), variant=True)


def place_of(node: Node) -> str:
    """The node, in messages."""
    return f"node {node.name!r} ({node.qualified_op})"
