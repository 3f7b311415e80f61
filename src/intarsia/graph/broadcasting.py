"""Broadcasting of shapes whose sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from intarsia.graph.dims import Atom, Dim, Expr, Shape, broadcast_sizes, format_shape, opaque


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The size of one dimension of `a` and `b` after multidirectional broadcasting.

    A symbolic size facing a known one other than 1 must be 1 or that size, so the result is the known one.

    Raises:
        ValueError: two known sizes differ and neither is 1.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return broadcast_sizes(a, b)
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return _broadcast_symbolic(a, b)


def _broadcast_symbolic(a: Dim, b: Dim) -> Dim:
    """Nested broadcasts made flat. Where d faces min(d, c) and they broadcast, the result is d: both are d, or both 1."""
    parts = dict.fromkeys((*_broadcast_parts(a), *_broadcast_parts(b)))
    needed = [p for p in parts if not _is_bounded(p, parts)]
    return needed[0] if len(needed) == 1 else opaque("broadcast", *needed)


def _single_atom(d: Dim) -> Atom | None:
    if isinstance(d, Expr) and len(d.terms) == 1:
        ((mono, coeff),) = d.terms.items()
        if coeff == 1 and len(mono) == 1 and mono[0][1] == 1:
            return mono[0][0]
    return None


def _broadcast_parts(d: Dim) -> tuple[Dim, ...]:
    atom = _single_atom(d)
    return atom.args if atom is not None and atom.name == "broadcast" else (d,)


def _is_bounded(d: Dim, others: Collection[Dim]) -> bool:
    """Whether `d` is min(other, c) for another one of `others` and a number c of at least 1."""
    atom = _single_atom(d)
    if atom is None or atom.name != "min":
        return False
    return any(
        other != d and other in others and all(a == other or isinstance(a, int) and a >= 1 for a in atom.args)
        for other in atom.args
    )


def broadcast_shapes(*shapes: Iterable[Dim]) -> Shape:
    """NumPy-style broadcasting of shapes whose dimensions may be symbolic.

    Raises:
        ValueError: the shapes cannot be broadcast together.
    """
    lists = [tuple(s) for s in shapes]
    rank = max((len(s) for s in lists), default=0)
    out: list[Dim] = []
    for i in range(rank):
        d: Dim = 1
        for s in lists:
            j = i - (rank - len(s))
            if j >= 0:
                try:
                    d = broadcast_dim(d, s[j])
                except ValueError:
                    raise ValueError(f"shapes {', '.join(format_shape(s) for s in lists)} do not broadcast") from None
        out.append(d)
    return tuple(out)
