"""Types of a template's operands and results: tensors whose element type and shape are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.graph.dims import Shape
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference


@dataclass(frozen=True)
class TensorSpec(TensorType):
    """A tensor type with a shape: its rank is known, its sizes are numbers or symbols."""

    shape: Shape


def spec_of(kind: object) -> TensorSpec | None:
    """A type of a graph as a spec; None where it is no tensor's, or its rank is not known."""
    return TensorSpec(kind.dtype, kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None


def operand_specs(node: Node, inference: Inference) -> tuple[TensorSpec | None, ...]:
    """Specs of the node's inputs; None where one is omitted, is no tensor, or is of unknown rank (`has_unknown_rank`)."""
    return tuple([spec_of(inference.types.get(n)) if n else None for n in node.inputs])


def result_spec(node: Node, inference: Inference, index: int = 0) -> TensorSpec | None:
    """The spec of an output."""
    return spec_of(inference.types.get(node.outputs[index]))


def has_unknown_rank(node: Node, inference: Inference) -> bool:
    """Whether an input is a tensor of which not even the rank is known: no template takes it."""
    kinds = (inference.types.get(n) for n in node.inputs if n)
    return any(isinstance(kind, TensorType) and kind.shape is None for kind in kinds)
