"""Rules that several vendors share: operators and forms that few libraries have, in terms of those that all have.

Each replaces a node by nodes that compute the same numbers. Sizes are known where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule, RuleSet

_ROWS_OF_SOFTMAX = 13  # in older versions all axes from `axis` on are one


def fixed_shape(m: Match, name: str) -> tuple[int, ...] | None:
    """The shape of a value, where all its sizes are numbers."""
    shape = m.rewriter.shape(name)
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(d for d in shape if isinstance(d, int))


def _root(*op_types: str) -> Op:
    return Op(op_types)


def scalar(m: Match, patch: Patch, value: float, like: str) -> str:
    """A constant of rank 0 in the element type of the value `like`."""
    dtype = m.rewriter.dtype(like)
    assert dtype is not None, like
    return patch.constant(np.array(value, dtype.numpy), "scalar")


def typed(m: Match, name: str, shape: Sequence[int] | None = None, dtype: DType | None = None) -> TensorType:
    """The type of a value, with another shape or element type."""
    kind = m.rewriter.types[name]
    assert isinstance(kind, TensorType), name
    return TensorType(dtype or kind.dtype, kind.shape if shape is None else tuple(shape))


def _softmax_of_rows(m: Match) -> Patch | None:
    """Softmax(x, axis) before 13 = Reshape(Softmax([rows, columns], axis 1)), columns being all axes from `axis` on."""
    node, shape = m.root, fixed_shape(m, m.root.inputs[0])
    if shape is None or node.version >= _ROWS_OF_SOFTMAX:
        return None
    axis = int(node.attributes.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis < len(shape):
        return None
    rows, columns = int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))
    patch = m.patch()
    x = node.inputs[0]
    flat = patch.op("Reshape", [x, patch.ints(rows, columns)], type=typed(m, x, (rows, columns)))
    soft = patch.op(node.op_type, [flat], version=_ROWS_OF_SOFTMAX, type=typed(m, x, (rows, columns)), axis=1)
    back = patch.op("Reshape", [soft, patch.ints(*shape)], type=typed(m, x))
    return patch.result(back, node.outputs[0])


def reduced_axes(m: Match) -> list[int] | None:
    """The axes of a reduction, not negative and in order; [] where it reduces nothing (`noop_with_empty_axes`), None where they
    are not known."""
    node, rewriter = m.root, m.rewriter
    rank = rewriter.rank(node.inputs[0])
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        axes = rewriter.ints(node.inputs[1])
        if axes is None:
            return None
    if rank is None:
        return None
    if not axes:
        return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({a + rank if a < 0 else a for a in axes})


_OF_ONE_ELEMENT: dict[str, Callable[[Match, Patch, str], str]] = {
    "ReduceL1": lambda m, p, x: p.op("Abs", [x], version=13),
    "ReduceL2": lambda m, p, x: p.op("Abs", [x], version=13),
    "ReduceLogSum": lambda m, p, x: p.op("Log", [x], version=13),
    "ReduceSumSquare": lambda m, p, x: p.op("Mul", [x, x]),
}


def _reduces_nothing(m: Match) -> Patch | None:
    """A reduction over no axes is what it computes of one element."""
    if reduced_axes(m) != []:
        return None
    patch, x = m.patch(), m.root.inputs[0]
    write = _OF_ONE_ELEMENT.get(m.root.op_type)
    made = write(m, patch, x) if write is not None else patch.op("Identity", [x])
    return patch.result(made, m.root.outputs[0])


def _chain(m: Match) -> Patch | None:
    """Of three operands or more: two at a time. Mean: their sum, divided."""
    node = m.root
    binary = {"Sum": ("Add", 14), "Mean": ("Add", 14), "Max": ("Max", 13), "Min": ("Min", 13)}[node.op_type]
    if len(node.inputs) == 2 and node.op_type in ("Max", "Min"):
        return None
    patch = m.patch()
    value = node.inputs[0]
    for other in node.inputs[1:]:
        value = patch.op(binary[0], [value, other], version=binary[1])
    if node.op_type == "Mean" and len(node.inputs) > 1:
        value = patch.op("Div", [value, scalar(m, patch, len(node.inputs), node.inputs[0])])
    if len(node.inputs) == 1:
        value = patch.op("Identity", [value])
    return patch.result(value, node.outputs[0])


def _gemm(m: Match) -> Patch | None:
    """alpha A' B' + beta C."""
    node, attributes = m.root, m.root.attributes
    patch = m.patch()
    a, b = node.inputs[:2]
    if attributes.get("transA", 0):
        a = patch.op("Transpose", [a], perm=[1, 0])
    if attributes.get("transB", 0):
        constant = m.rewriter.constant(b)
        if constant is not None:
            b = patch.lazy_constant(constant.dtype, constant.shape[::-1], lambda: np.ascontiguousarray(constant.numpy().T))
        else:
            b = patch.op("Transpose", [b], perm=[1, 0])
    value = patch.op("MatMul", [a, b])
    if (alpha := float(attributes.get("alpha", 1.0))) != 1.0:
        value = patch.op("Mul", [value, scalar(m, patch, alpha, node.inputs[0])])
    c = node.inputs[2] if len(node.inputs) > 2 else ""
    beta = float(attributes.get("beta", 1.0))
    if c and beta:
        scaled = patch.op("Mul", [c, scalar(m, patch, beta, c)]) if beta != 1.0 else c
        value = patch.op("Add", [value, scaled])
    return patch.result(value, node.outputs[0])


def _global_pool(op_type: str) -> Callable[[Match], Patch | None]:
    """Over all spatial axes."""

    def rewrite(m: Match) -> Patch | None:
        rank = m.rewriter.rank(m.root.inputs[0])
        if rank is None or rank < 3:
            return None
        patch, axes = m.patch(), list(range(2, rank))
        made = patch.op(op_type, [m.root.inputs[0], patch.ints(*axes)], version=18, keepdims=1)
        return patch.result(made, m.root.outputs[0])

    return rewrite


def _explicit_padding(m: Match) -> Patch | None:
    """auto_pad becomes pads, so that one form is left."""
    node = m.root
    mode = node.attributes.get("auto_pad", "NOTSET")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    x = fixed_shape(m, node.inputs[0])
    if mode == "NOTSET" or x is None:
        return None
    kernel = node.attributes.get("kernel_shape")
    if kernel is None:
        weight = fixed_shape(m, node.inputs[1])
        if weight is None:
            return None
        kernel = list(weight[2:])
    spatial = len(kernel)
    strides = node.attributes.get("strides") or [1] * spatial
    dilations = node.attributes.get("dilations") or [1] * spatial
    low, high = [0] * spatial, [0] * spatial
    if mode != "VALID":
        for i in range(spatial):
            extent = (kernel[i] - 1) * dilations[i] + 1
            total = max((-(-x[2 + i] // strides[i]) - 1) * strides[i] + extent - x[2 + i], 0)
            less, more = total // 2, total - total // 2
            low[i], high[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
    dropped = ("auto_pad",) if mode == "VALID" else ("auto_pad", "ceil_mode")  # SAME rounds up as it is
    remaining = {k: v for k, v in node.attributes.items() if k not in dropped}
    patch = m.patch()
    outputs = [m.rewriter.fresh(f"{patch.stem}.{i}", patch.types) if name else "" for i, name in enumerate(node.outputs)]
    patch.types.update((name, m.rewriter.types[old]) for name, old in zip(outputs, node.outputs, strict=True) if name)
    patch.node(node.copy(outputs=outputs, attributes={**remaining, "pads": [*low, *high]}, origin=patch.origin, traced=None))
    for new, old in zip(outputs, node.outputs, strict=True):
        if old:
            patch.result(new, old)
    return patch


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        Rule("softmax_of_rows", _root("Softmax", "LogSoftmax", "Hardmax"), _softmax_of_rows),
        Rule(
            "reduce_nothing",
            _root(
                "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
                "ReduceProd", "ReduceSum", "ReduceSumSquare",
            ),
            _reduces_nothing,
        ),
        Rule("chain_of_two", _root("Sum", "Mean", "Max", "Min"), _chain),
        Rule("explicit_padding", _root("Conv", "MaxPool", "AveragePool", "LpPool"), _explicit_padding),
    ),
)  # fmt: skip
"""For all vendors."""

GEMM_TO_MATMUL = Rule("gemm_to_matmul", _root("Gemm"), _gemm)
GLOBAL_POOLS_TO_REDUCTIONS = (
    Rule("global_average_to_mean", _root("GlobalAveragePool"), _global_pool("ReduceMean")),
    Rule("global_max_to_max", _root("GlobalMaxPool"), _global_pool("ReduceMax")),
)
"""For vendors that have the reductions and not the operator."""
