"""Einsum: the equation is compiled into transposes, sums and matrix products, one operand after the other."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.broadcasting import broadcast_dim
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor


@dataclass(frozen=True)
class _Labelled:
    """A tensor with a label per axis (a letter, or "0", "1", ... counted from the end for the axes of an ellipsis)."""

    tensor: Tensor
    labels: tuple[str, ...]

    def ordered(self, labels: Sequence[str]) -> Tensor:
        return k.transpose(self.tensor, [self.labels.index(label) for label in labels])


@op("Einsum", (12, 28))
def einsum(*Inputs: Tensor, equation: str) -> Tensor:
    """NumPy's einsum: implicit or explicit output, repeated labels (diagonals), ellipses that broadcast."""
    terms, output = _parse(equation, Inputs)
    parts = [_diagonal(x, labels, equation) for x, labels in zip(Inputs, terms, strict=True)]
    sizes = _sizes(parts, equation)
    unknown = [label for label in output if label not in sizes]
    if unknown:
        raise k.DefinitionError(f"output label {unknown[0]!r} of the equation {equation!r} is in no input")
    total = _summed(parts[0], {*output, *(label for p in parts[1:] for label in p.labels)})
    for i, part in enumerate(parts[1:], 1):
        needed = {*output, *(label for p in parts[i + 1 :] for label in p.labels)}
        total = _contract(total, _summed(part, {*needed, *total.labels}), needed, sizes)
    return total.ordered(output)


def _parse(equation: str, inputs: Sequence[Tensor]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(inputs):
        raise k.DefinitionError(f"the equation {equation!r} has {len(terms)} terms for {len(inputs)} inputs")
    labelled = [_labels(term, x.rank, equation) for term, x in zip(terms, inputs, strict=True)]
    hidden = max((sum(label.isdigit() for label in labels) for labels in labelled), default=0)
    ellipsis = tuple(str(i) for i in reversed(range(hidden)))
    if not arrow:
        flat = [label for labels in labelled for label in labels]
        return labelled, (*ellipsis, *sorted(x for x in set(flat) if flat.count(x) == 1 and not x.isdigit()))
    before, dots, after = right.partition("...")
    return labelled, (*before, *(ellipsis if dots else ()), *after)


def _labels(term: str, rank: int, equation: str) -> tuple[str, ...]:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots) or not (before + after).isalpha() and before + after:
        raise k.DefinitionError(f"the term {term!r} of the equation {equation!r} does not fit an input of rank {rank}")
    return (*before, *(str(i) for i in reversed(range(hidden))), *after)


def _diagonal(x: Tensor, labels: tuple[str, ...], equation: str) -> _Labelled:
    """The elements whose indices agree where a label is repeated."""
    distinct = tuple(dict.fromkeys(labels))
    if len(distinct) == len(labels):
        return _Labelled(x, labels)
    shape = [x.shape[labels.index(label)] for label in distinct]
    for label, d in zip(labels, x.shape, strict=True):
        k.require_equal(d, shape[distinct.index(label)], f"label {label!r} of the equation {equation!r}, twice in one input")
    return _Labelled(k.index(x, [k.iota(shape, distinct.index(label)) for label in labels]), distinct)


def _sizes(parts: Sequence[_Labelled], equation: str) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for part in parts:
        for label, size in zip(part.labels, part.tensor.shape, strict=True):
            try:
                sizes[label] = broadcast_dim(sizes.get(label, 1), size)
            except ValueError as error:
                raise k.DefinitionError(f"label {label!r} of the equation {equation!r}: {error}") from None
    return sizes


def _summed(x: _Labelled, needed: set[str]) -> _Labelled:
    drop = [i for i, label in enumerate(x.labels) if label not in needed]
    if not drop:
        return x
    return _Labelled(k.reduce_sum(x.tensor, drop), tuple(label for label in x.labels if label in needed))


def _contract(a: _Labelled, b: _Labelled, needed: set[str], sizes: dict[str, Dim]) -> _Labelled:
    """Product of two tensors, summed over the labels that both have and nothing later needs."""
    shared = [label for label in a.labels if label in b.labels]
    inner = [label for label in shared if label not in needed]
    batch = [label for label in shared if label in needed]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    labels = (*batch, *rows, *columns)
    if not inner:
        left = k.expand_dims(a.ordered([*batch, *rows]), range(len(batch) + len(rows), len(labels)))
        right = k.expand_dims(b.ordered([*batch, *columns]), range(len(batch), len(batch) + len(rows)))
        return _Labelled(left * right, labels)
    if not columns and a.labels[-1] not in inner and (rows or b.labels[-1] in inner):
        return _contract(b, a, needed, sizes)  # a vector by a matrix as it lies in memory
    if not (rows or columns) and a.labels[-1] not in inner and a.tensor.dtype not in (DType.FLOAT16, DType.BFLOAT16):
        terms = a.tensor * b.ordered(a.labels)  # sums along outer axes go over memory as it lies
        return _Labelled(k.reduce_sum(terms, [a.labels.index(label) for label in inner]), labels)
    in_rows = (b if columns else a).labels[-1] in inner
    if not (rows and columns) and in_rows and a.tensor.dtype in (DType.FLOAT, DType.DOUBLE):
        many, few = (b, a) if columns else (a, b)
        outer = [*batch, *rows, *columns]
        weights = k.expand_dims(few.ordered([*batch, *inner]), range(len(batch), len(outer)))
        terms = many.ordered([*outer, *inner]) * weights
        return _Labelled(k.reduce_sum(terms, range(len(outer), terms.rank)), labels)
    left = _grouped(a, batch, rows, inner, sizes)
    right = _grouped(b, batch, inner, columns, sizes)
    out = k.dot(left, right)
    shape = [*out.shape[: len(batch)], *(sizes[label] for label in (*rows, *columns))]
    return _Labelled(k.reshape(out, shape), labels)


def _grouped(x: _Labelled, batch: Sequence[str], first: Sequence[str], second: Sequence[str], sizes: dict[str, Dim]) -> Tensor:
    """x as matrices: axes `batch`, then those of `first` as one and those of `second` as one."""
    ordered = x.ordered([*batch, *first, *second])
    outer = ordered.shape[: len(batch)]
    full = k.broadcast(ordered, (*outer, *(sizes[label] for label in (*first, *second))))
    return k.reshape(full, (*outer, product(sizes[label] for label in first), product(sizes[label] for label in second)))
