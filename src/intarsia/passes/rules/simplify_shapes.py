"""Rules over shapes: computed targets become constants, operators that only rename axes merge or vanish."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Shape, is_static, product
from intarsia.graph.dtypes import DType
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Const, Match, Rule, RuleSet, Var, op

_COMPARED_ELEMENTS = 1 << 18  # larger constants are not read to find out that they are all zeros or ones
_FIRST_CAST_LIKE = 15  # the operator's first version, when Cast was at version 13
VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def reshape_target(before: Shape, after: Shape) -> list[int] | None:
    """A constant Reshape target (0: same as the input's axis, -1: the rest) that turns `before` into `after`, or None."""
    target: list[int] = []
    for i, d in enumerate(after):
        if isinstance(d, int):
            if d == 0:
                return None
            target.append(d)
        else:
            target.append(0 if i < len(before) and before[i] == d else -1)
    return target if target.count(-1) <= 1 else None


def same_shape(a: Shape | None, b: Shape | None) -> bool:
    return a is not None and a == b


def keeps_shape(m: Match, name: str = "x") -> bool:
    """Whether the root's output has the shape of a captured value."""
    return same_shape(m.rewriter.shape(m.root.outputs[0]), m.shape(name))


def is_default_perm(perm: Sequence[int]) -> bool:
    return list(perm) == list(range(len(perm)))


def perm_of(m: Match, name: str) -> list[int] | None:
    """The permutation of a captured Transpose (default: axes reversed)."""
    node = m.node(name)
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm)
    rank = m.rewriter.rank(node.inputs[0])
    return None if rank is None else list(range(rank))[::-1]


def _constant_reshape(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    if len(node.inputs) < 2 or rewriter.constant(node.inputs[1]) is not None:
        return None
    before, after = rewriter.shape(node.inputs[0]), rewriter.shape(node.outputs[0])
    if before is None or after is None or not _surely_fits(m, before):
        return None
    target = reshape_target(before, after)
    return None if target is None else _reshape(m, node.inputs[0], target)


def _surely_fits(m: Match, before: Shape) -> bool:
    """Whether a Reshape's computed target is known to have as many elements as its input: a run has to check others."""
    value = m.rewriter.values.get(m.root.inputs[1])
    if value is None:
        return False
    target, copies = list(value.reshape(-1)), not m.root.attributes.get("allowzero", 0)
    if any(isinstance(v, (int, np.integer)) and v == -1 for v in target):
        return True
    sizes = [before[i] if copies and v == 0 and i < len(before) else v for i, v in enumerate(target)]
    return bool(product(sizes) == product(before))


def _reshape(m: Match, x: str, target: list[int]) -> Patch:
    patch = m.patch()
    shape = patch.constant(np.array(target, np.int64), "shape")
    return patch.result(patch.op("Reshape", [x, shape]), m.root.outputs[0])


def _constant_expand(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    shape = rewriter.shape(node.outputs[0])
    if shape is None or not is_static(shape) or rewriter.constant(node.inputs[1]) is not None or rewriter.limits_sizes(node):
        return None
    patch = m.patch()
    target = patch.constant(np.array(shape, np.int64), "shape")
    return patch.result(patch.op("Expand", [node.inputs[0], target]), node.outputs[0])


def _keep_shape(m: Match) -> bool:
    return keeps_shape(m) and not any(m.rewriter.limits_sizes(node) for node in m.nodes)


def _merge_views(m: Match) -> Patch | None:
    before, after = m.shape("x"), m.rewriter.shape(m.root.outputs[0])
    if before is None or after is None or before == after:  # equal ones are left to `remove_views`
        return None
    target = reshape_target(before, after)
    return None if target is None else _reshape(m, m["x"], target)


def _merge_transposes(m: Match) -> Patch | None:
    first, second = perm_of(m, "first"), perm_of(m, "second")
    if first is None or second is None:
        return None
    perm = [first[p] for p in second]
    return m.keep("x") if is_default_perm(perm) else m.replace("Transpose", [m["x"]], perm=perm)


def _batched_transpose(m: Match) -> Patch | None:
    perm = perm_of(m, "turn")
    before, inner = m.shape("x"), m.rewriter.shape(m.node("turn").inputs[0])
    after = m.rewriter.shape(m.root.outputs[0])
    if perm != [0, 2, 1] or before is None or inner is None or after is None or len(before) < 4:
        return None
    if before[-2:] != inner[-2:] or after != (*before[:-2], before[-1], before[-2]):
        return None
    axes = list(range(len(before)))
    return m.replace("Transpose", [m["x"]], perm=[*axes[:-2], axes[-1], axes[-2]])


def _is_view_of_unit_axes(before: Shape, perm: Sequence[int]) -> bool:
    moved = [p for p in perm if before[p] != 1]
    return moved == sorted(moved)


def _transpose_of_unit_axes(m: Match) -> Patch | None:
    before, after, perm = m.shape("x"), m.rewriter.shape(m.root.outputs[0]), perm_of(m, "second")
    if before is None or after is None or perm is None or not _is_view_of_unit_axes(before, perm):
        return None
    target = reshape_target(before, after)
    return None if target is None else _reshape(m, m["x"], target)


def _turns_nothing(m: Match) -> bool:
    perm = perm_of(m, "second")
    return perm is not None and is_default_perm(perm)


def _lossless_cast(m: Match) -> bool:
    """Whether the inner of two casts loses nothing, so that the outer one alone gives the same."""
    before, between = m.rewriter.dtype(m["x"]), m.rewriter.dtype(m.node("inner").outputs[0])
    if before is None or between is None or "string" in (before.onnx_name, between.onnx_name):
        return False
    try:
        return bool(np.can_cast(before.numpy, between.numpy, "safe"))
    except TypeError:
        return False


def _cast_changes_nothing(m: Match) -> bool:
    dtype = m.rewriter.dtype(m["x"])
    return dtype is not None and dtype == m.rewriter.dtype(m.root.outputs[0])


def _whole_slice(m: Match) -> bool:
    node = m.root
    if not keeps_shape(m):
        return False
    if len(node.inputs) < 5 or not node.inputs[4]:
        return True
    steps = m.rewriter.ints(node.inputs[4])
    return steps is not None and all(s == 1 for s in steps)


def _pads_nothing(m: Match) -> bool:
    node = m.root
    pads = node.attributes.get("pads") or (m.rewriter.ints(node.inputs[1]) if len(node.inputs) > 1 else None)
    return pads is not None and not any(pads)


def _dropout_keeps(m: Match) -> bool:
    """Dropout outside of training: before version 12 always (attribute is_test in version 1 and 6), later by an input."""
    node = m.root
    if any(m.rewriter.reader_count(o) for o in node.outputs[1:] if o):
        return False
    if node.attributes.get("is_test") == 0 or "is_test" not in node.attributes and 0 < node.version < 7:
        return False
    return len(node.inputs) < 3 or not node.inputs[2] or m.rewriter.scalar(node.inputs[2]) == 0.0


def _one_output(m: Match) -> bool:
    return len(m.root.outputs) == 1 and len(m.root.inputs) == 1


def _gives_first(m: Match) -> Patch | None:
    return m.patch().result(m.root.inputs[0], m.root.outputs[0]) if m.root.inputs else None


def _all_equal(m: Match, value: float) -> bool:
    """Whether the captured constant consists of `value` alone, and combining with it keeps x's shape."""
    if not keeps_shape(m):
        return False
    array = m.rewriter.array(m["c"], _COMPARED_ELEMENTS)
    if array is None or array.dtype.kind not in "fiub" or not array.size:
        return False
    return bool(array.flat[0] == value) and bool((array == value).all())


def _cast_like(m: Match) -> Patch | None:
    """CastLike needs the other value's type alone, which is known: Cast does not keep that value alive."""
    node, dtype = m.root, m.rewriter.dtype(m.root.outputs[0])
    if dtype is None or dtype is DType.UNDEFINED:
        return None
    version = 13 if node.version == _FIRST_CAST_LIKE else node.version
    return m.replace("Cast", [node.inputs[0]], version=version, to=int(dtype), **node.attributes)


def _neutral(value: float, dtypes: str, only_one: bool) -> Callable[[Match], bool]:
    def check(m: Match) -> bool:
        dtype, shape = m.rewriter.dtype(m["x"]), m.shape("c")
        if only_one and (shape is None or product(shape) != 1):
            return False
        return dtype is not None and dtype.numpy.kind in dtypes and _all_equal(m, value)

    return check


def _hoist_expand(m: Match) -> Patch | None:
    """Compute on the small tensor, then repeat it."""
    node, rewriter = m.root, m.rewriter
    expand = next((n for n in m.nodes if n.op_type == "Expand"), None)
    if expand is None:
        return None
    small = expand.inputs[0]
    rest = [n for n in node.inputs if n != expand.outputs[0]]
    if rewriter.rank(small) != rewriter.rank(expand.outputs[0]) or any(rewriter.scalar(n) is None for n in rest):
        return None
    if any((rewriter.rank(n) or 0) > (rewriter.rank(small) or 0) for n in rest):
        return None
    patch = m.patch()
    inner = patch.rewriter.fresh(f"{patch.stem}.small", patch.types)
    patch.node(
        node.copy(
            inputs=[small if n == expand.outputs[0] else n for n in node.inputs], outputs=[inner], name="", origin=patch.origin
        )
    )
    return patch.result(patch.op("Expand", [inner, expand.inputs[1]]), node.outputs[0])


def _keeps_first_shape(m: Match) -> bool:
    if not m.root.inputs or m.rewriter.limits_sizes(m.root):
        return False
    return same_shape(m.rewriter.shape(m.root.inputs[0]), m.rewriter.shape(m.root.outputs[0]))


def _keeps_known_shape(m: Match) -> bool:
    """Whether the result has the first input's shape, all of whose sizes are numbers."""
    shape = m.rewriter.shape(m.root.outputs[0])
    return shape is not None and is_static(shape) and _keeps_first_shape(m)


_X = Var("x")
_C = Const(name="c", scalar=False)


def _neutral_operands(only_one: bool) -> list[Rule]:
    """Rules for operands that change nothing. `only_one`: for those of one element."""
    return [
        Rule(name, op(op_type, _X, _C), lambda m: m.keep("x"), _neutral(value, dtypes, only_one), shared=True)
        for name, op_type, value, dtypes in (
            ("remove_add_zero", "Add", 0.0, "fiu"), ("remove_sub_zero", "Sub", 0.0, "fiu"),
            ("remove_mul_one", "Mul", 1.0, "fiu"), ("remove_div_one", "Div", 1.0, "fiu"),
            ("remove_pow_one", "Pow", 1.0, "fiu"), ("remove_and_true", "And", 1, "b"), ("remove_or_false", "Or", 0, "b"),
        )
    ]  # fmt: skip


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # identity(x) = x
        Rule("remove_identity", op("Identity"), _gives_first, shared=True),
        # dropout(x) = x outside of training
        Rule("remove_dropout", op("Dropout"), _gives_first, _dropout_keeps, shared=True),
        # cast(x, type of x) = x
        Rule("remove_cast", op("Cast|CastLike", _X), _gives_first, _cast_changes_nothing, shared=True),
        Rule("cast_like_to_cast", op("CastLike"), _cast_like),
        # cast(cast(x, a), b) = cast(x, b) where a holds every value of x
        Rule(
            "merge_casts",
            op("Cast", op("Cast", _X, name="inner")),
            lambda m: m.replace("Cast", [m["x"]], version=m.root.version, **m.root.attributes),
            _lossless_cast,
            shared=True,
        ),
        # views, slices, expansions, pads and sums of one operand that give x's own shape = x
        Rule("remove_view", op("Reshape|Squeeze|Unsqueeze|Flatten"), _gives_first, _keeps_first_shape, shared=True),
        Rule("remove_expand", op("Expand"), _gives_first, _keeps_known_shape, shared=True),
        Rule("remove_views", op("|".join(VIEWS), op("|".join(VIEWS), _X)), lambda m: m.keep("x"), _keep_shape, shared=True),
        Rule("remove_slice", op("Slice", _X), _gives_first, _whole_slice, shared=True),
        Rule("remove_pad", op("Pad", _X), _gives_first, _pads_nothing, shared=True),
        Rule("remove_transpose", op("Transpose", _X, name="second"), _gives_first, _turns_nothing, shared=True),
        Rule("remove_concat_of_one", op("Concat|Split|Sum|Max|Min|Mean"), _gives_first, _one_output, shared=True),
        # x + 0 = x - 0 = x * 1 = x / 1 = x ^ 1 = x for one number
        *_neutral_operands(only_one=True),
        # transpose(transpose(x, p), q) = transpose(x, p[q])
        Rule(
            "merge_transposes",
            op("Transpose", op("Transpose", _X, name="first"), name="second"),
            _merge_transposes,
            shared=True,
        ),
        # reshape(transpose(reshape(x, [B*H, S, D]), [0, 2, 1]), [B, H, D, S]) = transpose(x, [0, 1, 3, 2])
        Rule(
            "batched_transpose", op("Reshape", op("Transpose", op("Reshape", _X), name="turn")), _batched_transpose, shared=True
        ),
        # reshape(x, shape(...)) = reshape(x, [0, -1, 12, 64])
        Rule("constant_reshape_target", op("Reshape"), _constant_reshape, shared=True),
        Rule("constant_expand_target", op("Expand"), _constant_expand, shared=True),
    ),
)

# What onnxruntime leaves as it is at ORT_ENABLE_BASIC, where its tools look for it in saved models.
EXTENDED_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # x + 0 = x * 1 = x and true = x, ... for tensors: scales and biases of norms that were not trained
        *_neutral_operands(only_one=False),
        Rule("remove_expand", op("Expand"), _gives_first, _keeps_first_shape, shared=True),
        # reshape(reshape(x, a), b) = reshape(x, b), with squeeze, unsqueeze and flatten as reshapes
        Rule("merge_views", op("|".join(VIEWS), op("|".join(VIEWS), _X)), _merge_views, shared=True),
        # f(expand(x), scalars) = expand(f(x, scalars))
        Rule("hoist_expand", (op("Not|Cast|Neg", op("Expand")), op("Where", op("Expand"), Var("a"), Var("b"))), _hoist_expand),
    ),
)

LATE_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # a transpose that moves only axes of size 1 = reshape
        Rule("transpose_to_reshape", op("Transpose", _X, name="second"), _transpose_of_unit_axes, shared=True),
    ),
)
