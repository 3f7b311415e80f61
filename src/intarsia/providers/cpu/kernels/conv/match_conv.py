"""Which convolutions of floats by channels-last tensors kernels take: by constant filters, and by those that a run computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.graph.model import Node
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.kernels.conv.conv import Convolution
from intarsia.providers.cpu.kernels.conv.dynamic_filters import ComputedConvolution, suits
from intarsia.providers.cpu.kernels.conv.window_geometry import windowed

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference


def convolution(node: Node, inference: Inference) -> Template | None:
    """Convolution; None where its types are not known, filters have no elements, or computed ones do not suit."""
    filters = inference.graph.constants.get(node.inputs[1])
    if filters is not None and 0 in filters.shape:
        return None
    if filters is not None:
        return windowed(node, inference, Convolution)
    return windowed(node, inference, ComputedConvolution) if suits(node, inference) else None
