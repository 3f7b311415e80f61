"""Windows of convolutions and pools: borders that `auto_pad` asks for are written as `pads` where no size decides them.

SAME with steps of 1 is a border of the kernel's span less one, whatever the image's size, and VALID is none: what computes
windows needs to know only `pads` then.
"""

from __future__ import annotations

from intarsia.graph.model import Node
from intarsia.kernel.lang import DefinitionError
from intarsia.ops.spatial import place_windows
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Op, Rule, RuleSet

_FILTERS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}  # which input has the kernel's shape
_POOLS = ("MaxPool", "AveragePool", "LpPool")


def _explicit(m: Match) -> Patch | None:
    node, rewriter = m.root, m.rewriter
    mode, shape = node.attributes.get("auto_pad", "NOTSET"), rewriter.shape(node.inputs[0])
    kernel = _kernel(node, rewriter)
    if mode == "NOTSET" or shape is None or kernel is None:
        return None
    strides, dilations = node.attributes.get("strides"), node.attributes.get("dilations")
    try:
        windows = place_windows(shape[2:], kernel, strides, None, dilations, mode)
    except DefinitionError:
        return None  # told by the operator's own definition
    pads = [p for p in (*windows.low, *windows.high) if isinstance(p, int)]
    if len(pads) != 2 * len(kernel):
        return None
    patch = m.patch()
    outputs = [rewriter.fresh(f"{patch.stem}.{i}", patch.types) if name else "" for i, name in enumerate(node.outputs)]
    dropped = ("auto_pad",) if mode == "VALID" else ("auto_pad", "ceil_mode")  # SAME rounds up as it is
    attributes = {key: value for key, value in node.attributes.items() if key not in dropped} | {"pads": pads}
    patch.node(node.copy(outputs=outputs, attributes=attributes, origin=patch.origin))
    for new, old in zip(outputs, node.outputs, strict=True):
        if old:
            patch.result(new, old)
    return patch


def _kernel(node: Node, rewriter: Rewriter) -> tuple[int, ...] | None:
    given = node.attributes.get("kernel_shape")
    if given or node.op_type in _POOLS:
        return tuple(given) if given else None
    shape = rewriter.shape(node.inputs[_FILTERS[node.op_type]])
    sizes = tuple(d for d in (shape or ())[2:] if isinstance(d, int))
    return sizes if shape is not None and len(sizes) == len(shape) - 2 else None


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # windows with auto_pad = windows with pads
        Rule("write_pads", Op((*_FILTERS, *_POOLS)), _explicit, shared=True),
    ),
)
