"""Rules that make the border of a convolution attributes of it: zeros by Pad before it, and what is cut off behind it."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.nn.sliding_windows import WindowAttributes, place_windows
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Op, Rule, RuleSet, Var, op
from intarsia.passes.rules.simplify_shapes import perm_of
from intarsia.primitives.lang import DefinitionError

_FILTERS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}  # which input has the kernel's shape
_POOLS = ("MaxPool", "AveragePool", "LpPool")


def _pad_into_conv(m: Match) -> Patch | None:
    """A border of zeros is the convolution's; a Transpose between them turns what is without the border, and what is rounded
    to steps is that, too: 0 lies on one."""
    rewriter, pad, conv = m.rewriter, m.node("pad"), m.root
    mode = pad.attributes.get("mode", "constant")
    pads = pad.attributes.get("pads") or (rewriter.ints(pad.inputs[1]) if len(pad.inputs) > 1 else None)
    value = pad.attributes.get("value", 0.0)
    if len(pad.inputs) > 2 and pad.inputs[2]:
        value = rewriter.scalar(pad.inputs[2])
    if mode != "constant" or value != 0.0 or pads is None or min(pads) < 0 or len(pad.inputs) > 3 and pad.inputs[3]:
        return None
    if conv.attributes.get("auto_pad", "NOTSET") != "NOTSET" or "quantizer" in m.captured and not _same_steps(m):
        return None
    rank = len(pads) // 2
    low, high = pads[:rank], pads[rank:]
    perm = perm_of(m, "turn") if "turn" in m.captured else None
    if perm is not None:
        low, high = [low[axis] for axis in perm], [high[axis] for axis in perm]
    if any(low[:2]) or any(high[:2]):
        return None
    old = list(conv.attributes.get("pads") or [0] * (2 * (rank - 2)))
    total = [a + b for a, b in zip(old, [*low[2:], *high[2:]], strict=True)]
    patch = m.patch()
    data = pad.inputs[0] if perm is None else patch.op("Transpose", [pad.inputs[0]], perm=perm)
    for step in [m.node(name) for name in ("quantizer", "dequantizer") if name in m.captured]:
        moved = rewriter.fresh(f"{patch.stem}.{step.op_type.lower()}", patch.types)
        patch.types[moved] = TensorType(DType.UNDEFINED)
        patch.node(step.copy(inputs=[data, *step.inputs[1:]], outputs=[moved], origin=patch.origin))
        data = moved
    out = rewriter.fresh(f"{patch.stem}.conv", patch.types)
    patch.node(
        conv.copy(
            inputs=[data, *conv.inputs[1:]],
            outputs=[out],
            attributes={**conv.attributes, "pads": total},
            origin=patch.origin,
        )
    )
    return patch.result(out, conv.outputs[0])


def _same_steps(m: Match) -> bool:
    """Whether what is quantised is dequantised by the same numbers."""
    there, back = m.node("quantizer").inputs[1:], m.node("dequantizer").inputs[1:]
    if len(there) != 2 or len(back) != 2:
        return False
    for a, b in ((m.rewriter.constant(x), m.rewriter.constant(y)) for x, y in zip(there, back, strict=True)):
        if a is None or b is None or a.size != 1 or b.size != 1:
            return False
        if a.dtype is not b.dtype or a.numpy().item() != b.numpy().item():
            return False
    return True


def _explicit_borders(m: Match) -> Patch | None:
    """What auto_pad or output_shape cuts off of a transposed convolution, where it is known (SAME_*: whatever the sizes)."""
    rewriter, node = m.rewriter, m.root
    mode, wanted = node.attributes.get("auto_pad", "NOTSET"), node.attributes.get("output_shape")
    extents, weights = rewriter.shape(node.inputs[0]), rewriter.shape(node.inputs[1])
    if (mode == "NOTSET" and not wanted) or extents is None or weights is None or len(extents) < 3:
        return None
    rank = len(extents) - 2
    ones = [1] * rank
    strides, spread = node.attributes.get("strides") or ones, node.attributes.get("dilations") or ones
    extra = node.attributes.get("output_padding") or [0] * rank
    begins, ends = [], []
    for i, extent in enumerate(extents[2:]):
        total = extra[i] + (weights[2 + i] - 1) * spread[i] + 1 - strides[i]  # SAME_*: strides times x are left
        if wanted:
            total += extent * strides[i] - wanted[len(wanted) - rank + i]
        elif mode == "VALID":
            total = 0
        if not isinstance(total, int) or total < 0:
            return None
        begins.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        ends.append(total - begins[-1])
    patch = m.patch()
    out = rewriter.fresh(f"{patch.stem}.conv", patch.types)
    attributes = {k: v for k, v in node.attributes.items() if k not in ("auto_pad", "output_shape")}
    patch.node(node.copy(outputs=[out], attributes=attributes | {"pads": begins + ends}, origin=patch.origin))
    return patch.result(out, node.outputs[0])


def _explicit_windows(m: Match) -> Patch | None:
    """auto_pad of a convolution or pool as pads, where no open size decides them: steps of 1, or VALID."""
    node, rewriter = m.root, m.rewriter
    mode, shape = node.attributes.get("auto_pad", "NOTSET"), rewriter.shape(node.inputs[0])
    kernel = _kernel(node, rewriter)
    if mode == "NOTSET" or shape is None or kernel is None:
        return None
    strides, dilations = node.attributes.get("strides"), node.attributes.get("dilations")
    try:
        windows = place_windows(shape[2:], kernel, WindowAttributes(mode, dilations, strides=strides))
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


_ROUNDED_PADS = [
    op(
        "DequantizeLinear",
        op("QuantizeLinear", op("Pad", name="pad"), Var("s"), Var("z"), name="quantizer", domain=domain),
        Var("scale"),
        Var("zero"),
        name="dequantizer",
        domain=domain,
    )
    for domain in ("", "com.microsoft")
]
_TURNED_PAD = op("Transpose", op("Pad", name="pad"), name="turn")

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # conv(pad(x, p), pads q) = conv(x, pads p + q)
        Rule("merge_pad_into_conv", op("Conv", op("Pad", name="pad"), Var("w")), _pad_into_conv),
        Rule("merge_pad_into_conv", op("Conv", op("Pad", name="pad"), Var("w"), Var("b")), _pad_into_conv),
        # conv(turn(pad(x, p))) = conv(turn(x), pads p')
        Rule("merge_pad_into_conv", op("Conv", _TURNED_PAD, Var("w")), _pad_into_conv),
        Rule("merge_pad_into_conv", op("Conv", _TURNED_PAD, Var("w"), Var("b")), _pad_into_conv),
        # conv(round(pad(x, p))) = conv(round(x), pads p)
        *(Rule("merge_pad_into_conv", op("Conv", pad, Var("w")), _pad_into_conv) for pad in _ROUNDED_PADS),
        *(Rule("merge_pad_into_conv", op("Conv", pad, Var("w"), Var("b")), _pad_into_conv) for pad in _ROUNDED_PADS),
        # windows with auto_pad = windows with pads
        Rule("explicit_pads", Op((*_FILTERS, *_POOLS)), _explicit_windows, shared=True),
        # what is cut off is the same for all sizes, or the sizes are known
        Rule("explicit_borders", op("ConvTranspose"), _explicit_borders),
    ),
)
