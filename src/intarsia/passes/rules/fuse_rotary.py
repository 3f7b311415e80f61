"""Rules that recognise rotary position embedding."""

from __future__ import annotations

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import Match, Rule, RuleSet, Var, op

_ELEMENTWISE = ("Cos", "Sin", "Cast", "Mul", "Identity")


def _halves_repeat(rewriter: Rewriter, name: str, depth: int = 0) -> bool:
    """Whether the last axis of `name` is some tensor twice in a row: an element-wise function of Concat(f, f)."""
    if depth > 12:
        return False
    node = rewriter.producer.get(name)
    if node is None or node.domain:
        array = rewriter.array(name)
        half = array.shape[-1] // 2 if array is not None and array.ndim else 0
        return (
            array is not None
            and half > 0
            and array.shape[-1] == 2 * half
            and bool((array[..., :half] == array[..., half:]).all())
        )
    if node.op_type == "Concat":
        rank = rewriter.rank(name)
        return (
            node.attributes["axis"] in (-1, None if rank is None else rank - 1)
            and len(node.inputs) == 2
            and node.inputs[0] == node.inputs[1]
        )
    if node.op_type in ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Gather", "Slice"):
        before, after = rewriter.shape(node.inputs[0]), rewriter.shape(name)
        return (
            before is not None
            and after is not None
            and before[-1:] == after[-1:]
            and _halves_repeat(rewriter, node.inputs[0], depth + 1)
        )
    if node.op_type == "Mul":
        others = [n for n in node.inputs if rewriter.scalar(n) is None]
        return len(others) == 1 and _halves_repeat(rewriter, others[0], depth + 1)
    return node.op_type in _ELEMENTWISE and _halves_repeat(rewriter, node.inputs[0], depth + 1)


def _bounds(rewriter: Rewriter, m: Match, name: str) -> tuple[int, int] | None:
    """Start and end of a captured Slice along the last axis alone (steps 1)."""
    node = m.node(name)
    rank, shape = rewriter.rank(node.inputs[0]), rewriter.shape(node.inputs[0])
    if len(node.inputs) < 4 or rank is None or shape is None or not isinstance(shape[-1], int):
        return None
    starts, ends, axes = (rewriter.ints(n) for n in node.inputs[1:4])
    steps = rewriter.ints(node.inputs[4]) if len(node.inputs) > 4 else [1]
    if starts is None or ends is None or axes not in ([-1], [rank - 1]) or steps != [1]:
        return None
    size = shape[-1]
    begin, end = (max(0, min(size, v + size if v < 0 else v)) for v in (starts[0], ends[0]))
    return begin, end


def _fuse_rotary(m: Match) -> Patch | None:
    rewriter = m.rewriter
    shape = m.shape("x")
    if shape is None or len(shape) != 4 or not isinstance(shape[3], int) or shape[3] % 2:
        return None
    size = shape[3]
    if "low" in m.captured:
        if _bounds(rewriter, m, "low") != (0, size // 2) or _bounds(rewriter, m, "high") != (size // 2, size):
            return None
    if m.node("turned").attributes["axis"] not in (-1, 3):
        return None
    if "split" in m.captured:
        axis = m.node("split").attributes.get("axis", 0)
        if axis not in (-1, 3) or rewriter.shape(m.node("split").outputs[0]) != (*shape[:3], size // 2):
            return None
    patch = m.patch()
    caches = []
    for name in ("cos", "sin"):
        table = rewriter.shape(m[name])
        if table is None or len(table) != 4 or table[1] != 1 or table[2:] != shape[2:] or table[0] not in (1, shape[0]):
            return None
        if not _halves_repeat(rewriter, m[name]):
            return None
        half = patch.op("Slice", [m[name], patch.ints(0), patch.ints(size // 2), patch.ints(3)])
        narrow = patch.op("Squeeze", [half, patch.ints(1)])
        if table[0] != shape[0]:
            source, axis = rewriter.axis_of_size(shape[0]) or (m["x"], 0)
            batch = patch.op("Shape", [source], start=axis, end=axis + 1)
            wide = patch.op("Concat", [batch, patch.ints(1, 1)], axis=0)
            narrow = patch.op("Expand", [narrow, wide])
        caches.append(narrow)
    return patch.result(patch.op("RotaryEmbedding", [m["x"], *caches]), m.root.outputs[0])


_X = Var("x")
_HALVES = op("Concat", op("Neg", op("Slice", _X, name="high")), op("Slice", _X, name="low"), name="turned")
_SPLIT = op(
    "Concat", op("Neg", op("Split", _X, name="split", output=1)), op("Split", _X, name="split", output=0), name="turned"
)

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    (
        # rotary(x) = x cos + [-x2, x1] sin for x = [x1, x2], where cos and sin repeat in both halves
        Rule(
            "fuse_rotary",
            (
                op("Add", op("Mul", _X, Var("cos")), op("Mul", _HALVES, Var("sin"))),
                op("Add", op("Mul", _X, Var("cos")), op("Mul", _SPLIT, Var("sin"))),
            ),
            _fuse_rotary,
        ),
    ),
)
