"""Rules that put what stands behind a concatenation of convolutions in front of it, where the convolutions take it in."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.model import Constant
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Const, Match, Rule, RuleSet, Var, op

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_AXIS = 1  # of the channels


def _parts(m: Match) -> list[tuple[str, int, int]] | None:
    """What is concatenated, with its first channel and the one behind its last; None where not all of it is computed by
    convolutions by constants, for the concatenation alone."""
    rewriter, concat = m.rewriter, m.node("concat")
    names, rank = concat.inputs, rewriter.rank(concat.outputs[0])
    if rank is None or rank < _AXIS + 2 or int(concat.attributes.get("axis", _AXIS)) not in (_AXIS, _AXIS - rank):
        return None
    if len(set(names)) < len(names):
        return None
    found: list[tuple[str, int, int]] = []
    for name in names:
        maker, shape = rewriter.producer_of(name, *_CONVOLUTIONS), rewriter.shape(name)
        if maker is None or rewriter.constant(maker.inputs[1]) is None or rewriter.reader_count(name) != 1:
            return None
        channels = shape[_AXIS] if shape is not None else None
        if not isinstance(channels, int):
            return None
        first = found[-1][2] if found else 0
        found.append((name, first, first + channels))
    return found


def _axis_of_channels(constant: Constant, channels: int, rank: int) -> int | None:
    """The axis of an operand that has a number for each channel; -1: it is one number for all; None: neither."""
    if len(constant.shape) > rank:  # the result has more axes
        return None
    if constant.size == 1:
        return -1
    padded = (1,) * (rank - len(constant.shape)) + constant.shape
    if padded != (1, channels, *(1,) * (rank - 2)):
        return None
    return _AXIS - (rank - len(constant.shape))


def _some(patch: Patch, rewriter: Rewriter, name: str, axis: int, first: int, last: int) -> str:
    """The part of a constant operand that belongs to channels first to last - 1."""
    if axis < 0:
        return name
    constant = rewriter.constant(name)
    assert constant is not None
    shape = (*constant.shape[:axis], last - first, *constant.shape[axis + 1 :])
    place = (*(slice(None),) * axis, slice(first, last))
    return patch.lazy_constant(constant.dtype, shape, lambda: constant.numpy()[place], "part")


def _in_front(m: Match, axes: Sequence[int]) -> Patch | None:
    """The root for each part; `axes`: those of its operands that have numbers for each channel, -1 for others."""
    parts = _parts(m)
    if parts is None:
        return None
    root, concat, patch = m.root, m.node("concat"), m.patch()
    made = []
    for name, first, last in parts:
        inputs = [
            name if n == concat.outputs[0] else _some(patch, m.rewriter, n, axis, first, last)
            for n, axis in zip(root.inputs, axes, strict=True)
        ]
        made.append(patch.op(root.op_type, inputs, version=root.version, **root.attributes))
    return patch.result(patch.op("Concat", made, version=concat.version, axis=_AXIS), root.outputs[0])


def _norm(m: Match) -> Patch | None:
    root = m.root
    if root.attributes.get("training_mode", 0) or len([o for o in root.outputs if o]) > 1 or len(root.inputs) != 5:
        return None
    if any(m.rewriter.constant(n) is None for n in root.inputs[1:]):
        return None
    return _in_front(m, (-1, 0, 0, 0, 0))


def _with_constants(m: Match) -> Patch | None:
    """Operands beside the concatenation are numbers, or have one for each channel."""
    rewriter, joined = m.rewriter, m.node("concat").outputs[0]
    shape = rewriter.shape(joined)
    channels = shape[_AXIS] if shape is not None and len(shape) > _AXIS else None
    if shape is None or not isinstance(channels, int) or m.root.inputs.count(joined) != 1:
        return None
    axes: list[int] = []
    for name in m.root.inputs:
        constant = rewriter.constant(name)
        if name in (joined, ""):
            axes.append(-1)
            continue
        axis = _axis_of_channels(constant, channels, len(shape)) if constant is not None else None
        if axis is None:
            return None
        axes.append(axis)
    return _in_front(m, axes)


_CONCAT = op("Concat", name="concat")
_ACTIVATIONS = "|".join(
    "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Softsign Swish Tanh ThresholdedRelu".split()
)

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # norm([conv(x), conv(y)]) = [norm(conv(x)), norm(conv(y))]
        Rule("norm_in_front_of_concat", op("BatchNormalization", _CONCAT, *[Var(n) for n in "abcd"]), _norm),
        # [conv(x), conv(y)] c = [conv(x) c, conv(y) c]
        Rule("affine_in_front_of_concat", op("Add|Sub|Mul|Div", _CONCAT, Const(scalar=False)), _with_constants),
    ),
)

EXTENDED_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # f([conv(x), conv(y)]) = [f(conv(x)), f(conv(y))]
        Rule(
            "activation_in_front_of_concat",
            (op(_ACTIVATIONS, _CONCAT), op("Clip", _CONCAT), op("PRelu", _CONCAT, Const(scalar=False))),
            _with_constants,
        ),
    ),
)
