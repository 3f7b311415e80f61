"""What definitions and primitives ask of sizes: numbers are looked at, symbols noted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.requirements import Requirement, collected

N, M, P = symbol("n"), symbol("m"), symbol("p")
F = DType.FLOAT


def asked(build: Callable[[], object]) -> list[tuple[str, object, object]]:
    with collected() as found:
        build()
    return [(r.kind, r.left, r.right) for r in found]


def t(*shape: object) -> k.Tensor:
    return k.input(0, F, shape)  # type: ignore[arg-type]


def test_numbers_are_looked_at_at_once() -> None:
    with pytest.raises(k.DefinitionError, match="the rows: got 3, expected 4"):
        k.require_equal(3, 4, "the rows")
    with pytest.raises(k.DefinitionError, match="the rows: got 3, expected at least 4"):
        k.require_least(3, 4, "the rows")
    with pytest.raises(k.DefinitionError, match="the rows: got 3, expected a multiple of 2"):
        k.require_multiple(3, 2, "the rows")
    with pytest.raises(k.DefinitionError, match="the rows: got 3, expected 1 or 4"):
        k.require_broadcast(3, 4, "the rows")


def test_symbols_are_noted_where_they_may_not_fit() -> None:
    with collected() as found:
        k.require_equal(N, M, "the rows")
        k.require_equal(N, M, "the rows")
        k.require_equal(N, N, "the rows")
        k.require_least(N, 3, "the columns")
        k.require_least(N + 3, 3, "the columns")
        k.require_multiple(N * 4, 2, "the elements")
        k.require_broadcast(1, N, "the scale")
        k.require_broadcast(M, N, "the scale")
    assert [*found] == [
        Requirement("equal", N, M, "the rows"),
        Requirement("least", N, 3, "the columns"),
        Requirement("broadcast", M, N, "the scale"),
    ]


def test_a_multiple_of_a_symbol() -> None:
    ((kind, left, right),) = asked(lambda: k.require_multiple(N, 3, "the channels"))
    assert (kind, str(left), right) == ("equal", "mod(n, 3)", 0)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: t(N, 4) + t(N, 4), []),
        (lambda: t(N, 4) + t(1, 4), []),
        (lambda: t(N, 4) + t(5, 4), [("broadcast", N, 5)]),
        (lambda: k.broadcast(t(N), (M, N)), []),
        (lambda: k.broadcast(t(N), (M, P)), [("broadcast", N, P)]),
        (lambda: k.dot(t(N, M), t(P, 3)), [("equal", M, P)]),
        (lambda: k.dot(t(4, N, M), t(P, M, 3)), [("broadcast", P, 4)]),
        (lambda: k.reshape(t(N, 6), (N, 2, 3)), []),
        (lambda: k.reshape(t(N, 6), (M, 2)), [("equal", N * 6, M * 2)]),
        (lambda: k.concat([t(N, 3), t(M, 3)], 0), []),
        (lambda: k.concat([t(N, 3), t(M, 3)], 1), [("equal", M, N)]),
        (lambda: k.strided_slice(t(N + 3), (N,), (1,), (3,)), []),
        (lambda: k.strided_slice(t(N), (0,), (1,), (3,)), [("least", N, 3)]),
        (lambda: k.strided_slice(t(N), (0,), (1,), (3,), inside=True), []),
        (lambda: k.strided_slice(t(N), (N - 1,), (-1,), (N,)), []),
        (lambda: k.pad(t(N), (M,), (0,), 0.0), []),
        (lambda: k.pad(t(N), (M - 3,), (0,), 0.0), [("least", M - 3, 0)]),
        (lambda: k.windows(t(N), [0], [3], [1], [1]), [("least", N - 2, 0)]),
        (lambda: k.arg_reduce(t(N, 4), "max", 0), [("least", N, 1)]),
        (lambda: k.arg_reduce(t(N + 1, 4), "max", 0), []),
    ],
)  # fmt: skip
def test_what_primitives_ask(build: Callable[[], object], expected: list[tuple[str, object, object]]) -> None:
    assert asked(build) == expected


def test_definitions_inside_others_keep_theirs() -> None:
    with collected() as outer:
        k.require_equal(N, M, "outside")
        with collected() as inner:
            k.require_equal(N, P, "inside")
    assert [r.what for r in outer] == ["outside"]
    assert [r.what for r in inner] == ["inside"]
    k.require_equal(N, P, "of nothing that is being traced")
