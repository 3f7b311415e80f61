"""Einsum of two operands as a matrix product, with transposes and reshapes that other rules fold or take into products."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.broadcasting import broadcast_dim
from intarsia.graph.dims import Dim, Shape, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op
from intarsia.passes.rules.simplify_shapes import is_default_perm, reshape_target

_FLOATS = (DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class _Term:
    """An operand, a letter for each axis."""

    value: str
    labels: str
    shape: Shape

    def sizes(self, labels: str) -> tuple[Dim, ...]:
        return tuple(self.shape[self.labels.index(x)] for x in labels)


@dataclass(frozen=True)
class _Product:
    """left [batch, rows, inner] times right [batch, inner, columns]."""

    left: _Term
    right: _Term
    batch: str
    inner: str

    @property
    def rows(self) -> str:
        return "".join(x for x in self.left.labels if x not in self.right.labels)

    @property
    def columns(self) -> str:
        return "".join(x for x in self.right.labels if x not in self.left.labels)

    @property
    def labels(self) -> str:
        """Of the result."""
        return self.batch + self.rows + self.columns

    @property
    def is_narrow(self) -> bool:
        """Whether there are fewer columns than rows, or their number is open and the rows' is not: kernels go along columns."""
        rows, columns = product(self.left.sizes(self.rows)), product(self.right.sizes(self.columns))
        return isinstance(rows, int) and (not isinstance(columns, int) or columns < rows)

    def turned(self) -> _Product:
        return _Product(self.right, self.left, self.batch, self.inner)


def _to_product(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    terms, output = _parsed(str(node.attributes["equation"]), node.inputs, [rewriter.shape(name) for name in node.inputs])
    if len(terms) != 2 or rewriter.dtype(node.inputs[0]) not in _FLOATS:
        return None
    a, b = terms
    shared = [x for x in a.labels if x in b.labels]
    found = _Product(a, b, "".join(x for x in output if x in shared), "".join(x for x in shared if x not in output))
    if sorted(found.labels) != sorted(output) or not (found.inner and found.rows and found.columns):
        return None  # sums over one operand's axis, outer products, products of vectors
    if a.sizes(found.inner) != b.sizes(found.inner):
        return None  # one may be 1 and the other not
    first_constant, second_constant = (rewriter.constant(t.value) is not None for t in terms)
    if first_constant != second_constant:
        wanted = first_constant
    elif output in (found.labels, found.turned().labels):
        wanted = output != found.labels
    else:
        wanted = found.is_narrow
    ways = (found.turned(), found) if wanted else (found, found.turned())
    return _patch(m, ways[0], output) or _patch(m, ways[1], output)


def _parsed(equation: str, inputs: Sequence[str], shapes: Sequence[Shape | None]) -> tuple[list[_Term], str]:
    """Terms of letters, each once, and what is behind an arrow; no terms where it is anything else."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    labels = left.split(",")
    if not arrow or len(labels) != len(inputs) or not all(t.isalpha() and len(set(t)) == len(t) for t in (*labels, output)):
        return [], ""
    terms = [_Term(n, t, s) for n, t, s in zip(inputs, labels, shapes, strict=True) if s is not None and len(s) == len(t)]
    return terms, output


def _patch(m: Match, found: _Product, output: str) -> Patch | None:
    batch, rows, inner, columns = found.batch, found.rows, found.inner, found.columns
    left, right = found.left, found.right
    height = left.sizes(rows) if not batch else (product(left.sizes(rows)),)  # without a batch the rows' axes take its place
    width, depth = product(right.sizes(columns)), product(left.sizes(inner))
    shared = tuple(map(broadcast_dim, left.sizes(batch), right.sizes(batch)))
    plan = [
        (left.sizes(batch + rows + inner), (*left.sizes(batch), *height, depth)),
        (right.sizes(batch + inner + columns), (*right.sizes(batch), depth, width)),
        ((*shared, *height, width), (*shared, *left.sizes(rows), *right.sizes(columns))),
    ]
    targets = [None if before == after else reshape_target(before, after) for before, after in plan]
    if any(target is None and before != after for target, (before, after) in zip(targets, plan, strict=True)):
        return None
    patch = m.patch()

    def seen(value: str, have: str, want: str, target: list[int] | None) -> str:
        perm = [have.index(x) for x in want]
        turned = value if is_default_perm(perm) else patch.op("Transpose", [value], perm=perm)
        return turned if target is None else patch.op("Reshape", [turned, patch.ints(*target)])

    a = seen(left.value, left.labels, batch + rows + inner, targets[0])
    b = seen(right.value, right.labels, batch + inner + columns, targets[1])
    made = patch.op("MatMul", [a, b])
    if targets[2] is not None:
        made = patch.op("Reshape", [made, patch.ints(*targets[2])])
    perm = [found.labels.index(x) for x in output]
    if not is_default_perm(perm):
        made = patch.op("Transpose", [made], perm=perm)
    return patch.result(made, m.root.outputs[0])


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # einsum(ibh,hnd->ibnd) = reshape(x reshape(w, [h, n d]), [i, b, n, d])
        Rule("einsum_to_matmul", op("Einsum"), _to_product),
    ),
)
