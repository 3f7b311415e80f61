"""Division and texts of symbolic sizes."""

from __future__ import annotations

import itertools

import pytest

from intarsia.graph.axes import reshape_dims
from intarsia.graph.dims import (
    Dim,
    Expr,
    dim_max,
    evaluate,
    floordiv,
    is_nonnegative,
    one_of,
    product,
    quotient,
    symbol,
    truncdiv,
)

H, W = symbol("h"), symbol("w")


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("offset", range(-7, 8))
def test_floor_division_takes_multiples_out(stride: int, offset: int) -> None:
    for expression in (H + offset, 2 * H + offset, stride * W + H + offset, offset - H):
        divided = floordiv(expression, stride)
        for h, w in itertools.product((0, 1, 5, 8), (1, 6)):
            env = {"h": h, "w": w}
            assert evaluate(divided, env) == evaluate(expression, env) // stride


@pytest.mark.parametrize("divisor", [-3, -2, 2, 4, W, W - 4, -W])
@pytest.mark.parametrize("offset", range(-7, 8))
def test_integer_division_goes_towards_zero(offset: int, divisor: Dim) -> None:
    for expression in (H + offset, offset - 2 * H, offset, 6 * (H + offset)):
        divided = truncdiv(expression, divisor)
        for h, w in itertools.product((0, 1, 5, 8), (1, 6)):
            env = {"h": h, "w": w}
            assert evaluate(divided, env) == int(evaluate(expression, env) / evaluate(divisor, env))
    assert truncdiv(6 * (H - 3), -2) == 9 - 3 * H


def test_window_counts_are_sizes_and_read_the_same() -> None:
    count = floordiv(H - 1, 4) + 1
    assert count == floordiv(H + 3, 4)
    assert is_nonnegative(count)
    tokens = count * (floordiv(W - 1, 4) + 1)
    assert reshape_dims((symbol("b"), tokens, 16), [symbol("b"), tokens, -1, 16]) == (symbol("b"), tokens, 1, 16)


def test_quotients_of_polynomials_are_exact_where_they_are_polynomials() -> None:
    tokens = H * W + 1
    assert quotient(product((symbol("b"), 4, tokens, 16)), tokens * 16) == symbol("b") * 4
    assert quotient((H + 2) * (W - 3), W - 3) == H + 2
    left_over = quotient(H * H + W, H + 1)
    assert isinstance(left_over, Expr)
    assert left_over.evaluate({"h": 5, "w": 3}) == 28 // 6


def test_expressions_that_share_parts_stay_small() -> None:
    size = H
    for _ in range(60):
        size = dim_max(size * size + W, W * 3 - size)  # doubles its tree, not its graph
        size = floordiv(size, 7) + 1
    assert len(str(size)) < 1000
    small = {"h": 1, "w": 1}
    value = 1
    for _ in range(60):
        value = max(value * value + 1, 3 - value) // 7 + 1
    assert evaluate(size, small) == value


def test_a_size_that_is_one_of_several() -> None:
    batch, size = symbol("batch"), symbol("size")
    assert one_of(batch * 2, [batch, batch * 2]) == batch * 2
    assert one_of(4, [2, 4]) == 4
    open_size = one_of(size, [batch, batch * 2])
    assert [evaluate(open_size, {"batch": 3, "size": n}) for n in (3, 6)] == [3, 6]
    with pytest.raises(ValueError, match="a size is 4; expected one of 3, 6"):
        evaluate(open_size, {"batch": 3, "size": 4})
    with pytest.raises(ValueError, match="a size is 5; expected one of 2, 4"):
        one_of(5, [2, 4])
