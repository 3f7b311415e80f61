"""Functions of sizes that are asked for many sizes at once answer what they answer for each."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from intarsia.graph.dims import symbol
from intarsia.plan.step import Sizes
from intarsia.plan.together import ManySizes, Numbers

N, M = symbol("n"), symbol("m")
ENVS = [{"n": n, "m": m} for n, m in ((1, 7), (2, 7), (15, 7), (16, 7), (17, 7), (64, 7), (1000, 7))]
OTHER = [{"n": n, "m": 50 - n} for n in range(40)]


def tiles(size: Sizes) -> list[int]:
    n = size(N)
    held = max(1, min(8, n // 4)) if n > 15 else 1
    return [-(-n // 16), held, n % 16 * 4 + (n << 2), 3 * n - 1, 2**n if n < 20 else 0]


def branches(size: Sizes) -> list[int]:
    n, m = size(N + 2), size(M)
    if n * 2 < m:
        return [1, n, m]
    return [2, abs(n - m), -n] if n != m else [3, n, m]


def division(size: Sizes) -> list[int]:
    return [math.ceil(size(N) / 7), int(size(M)), 100 // (size(N) + 1)]


def index(size: Sizes) -> list[int]:
    return [len(range(size(N))), [5, 6, 7][min(2, size(N))]]


@functools.cache
def cached(n: int) -> int:
    return n + 1


def key(size: Sizes) -> list[int]:
    return [cached(size(N)), cached(size(M))]


@pytest.mark.parametrize("ask", [tiles, branches, division, index, key])
@pytest.mark.parametrize("envs", [ENVS, OTHER], ids=["one symbol", "two"])
def test_answers_are_those_for_each(ask: Any, envs: list[dict[str, int]]) -> None:
    columns = {name: np.array([env[name] for env in envs], object) for name in ("n", "m")}
    found: dict[int, list[Any]] = {}
    for which, answer in ManySizes(columns, len(envs)).each(ask):
        for place, i in enumerate(which):
            found[int(i)] = [x.values[place] if isinstance(x, Numbers) else x for x in answer]
    for i, env in enumerate(envs):
        expected = ask(lambda d, env=env: d if isinstance(d, int) else d.evaluate(env))
        assert found[i] == expected
        assert all(isinstance(x, (int, np.int64)) for x in found[i])


def test_a_function_is_asked_once_for_all_that_agree() -> None:
    calls = []

    def ask(size: Sizes) -> int:
        calls.append(size(N))
        return size(N) * 3 if size(N) < 100 else 0

    columns = {"n": np.array(list(range(50)) + list(range(200, 220)), object)}
    values = ManySizes(columns, 70).values(ask)
    assert values.tolist() == [3 * n for n in range(50)] + [0] * 20
    assert len(calls) == 3  # all, then each side of the comparison


def test_nothing_that_is_kept_by_value_sees_them() -> None:
    cached.cache_clear()
    columns = {"n": np.arange(4).astype(object), "m": np.array([7] * 4, object)}
    list(ManySizes(columns, 4).each(key))
    assert all(type(cached(n)) is int and cached(n) == n + 1 for n in (0, 1, 2, 3, 7))


def test_what_a_size_alone_makes_of_it_is_raised() -> None:
    def ask(size: Sizes) -> int:
        if size(N) == 3:
            raise ValueError("three")
        return 1 // size(N)

    with pytest.raises(ZeroDivisionError, match="division"):
        ManySizes({"n": np.arange(3).astype(object)}, 3).values(ask)
    with pytest.raises(ValueError, match="three"):
        ManySizes({"n": np.arange(1, 5).astype(object)}, 4).values(ask)
