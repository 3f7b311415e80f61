"""Tapes that native code runs give what the functions on them give for the same sizes."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="tapes are run by compiled code")

import template_kernels as t

from intarsia.graph import axes, broadcasting, dims
from intarsia.graph.dims import symbol
from intarsia.graph.guards import ELSEWHERE, MISSED, MOST_WAYS
from intarsia.graph.tape import Elsewhere, Tape
from intarsia.graph.trace import Traced, Untraceable, cached, least, most
from intarsia.plan.argument_tables import Inside, Spread, Table
from intarsia.plan.native.abi import BINDING, FAILED, FIELDS, NO_ROOM, OK
from intarsia.plan.native.bind_kernel import bind_text

N, M = symbol("n"), symbol("m")
Env = dict[str, int]
Size = Callable[[Any], Any]


class Native:
    """Functions of sizes on one tape. `asked`: how often Python was asked, after the first time."""

    def __init__(self, functions: Sequence[Callable[[Size], Sequence[Any]]], env: Env) -> None:
        self.tape, self.asked = Tape(env), 0
        self.sections = [self.tape.add(lambda f=f: ((), f(self.tape.size))) for f in functions]
        self.tape.finish()
        self.words = np.zeros(1 << 12, np.int64)
        self.layout = np.zeros((1, 4), np.int64)
        self.io = (ctypes.c_int64 * len(FIELDS))()
        self.set(
            layouts=self.layout.ctypes.data, nlayouts=1, words=self.words.ctypes.data, capacity=len(self.words), most=1 << 40
        )
        address = t.get_engine(t.host()).load([bind_text(t.host())])[bind_text(t.host()).symbol]
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.io[FIELDS.index(name)] = value

    def status(self, env: Env) -> int:
        for name, place in self.tape.symbols.items():
            self.tape.registers[place] = env[name]
        self.set(code=self.tape.code.buffer_info()[0], registers=self.tape.registers.buffer_info()[0])
        self.call(ctypes.addressof(self.io), BINDING, 1)
        return self.io[FIELDS.index("status")]

    def run(self, env: Env) -> list[list[Any]] | None:
        """What the functions give; None where native code fails."""
        while (status := self.status(env)) != OK:
            if status == FAILED:
                return None
            assert self.tape.extend(MISSED - status, env)
            self.asked += 1
        return [[self.tape.registers[p] for p in s.places] for s in self.sections]


def check(function: Callable[[Size], Sequence[Any]], envs: Sequence[Env]) -> Native:
    """Compare with Python for all these sizes."""
    native = Native([function], envs[0])
    assert native.sections[0].noted
    for env in envs:
        try:
            expected = [bits(x) for x in function(lambda d, env=env: dims.evaluate(d, env))]
        except (ZeroDivisionError, ValueError):
            expected = None  # type: ignore[assignment]
        found = native.run(env)
        assert (found and found[0]) == expected
    return native


def bits(x: Any) -> int:
    return struct.unpack("<q", struct.pack("<d", x))[0] if isinstance(x, float) else int(x)


def both(ns: Sequence[int], ms: Sequence[int] = (7,)) -> list[Env]:
    return [{"n": n, "m": m} for n in ns for m in ms]


def arithmetic(size: Size) -> list[Any]:
    n, m = size(N), size(M)
    return [
        n + m,
        n - m,
        n * m,
        3 * n - 1,
        n // 4,
        -(-n // 16),
        n % 16,
        100 // m,
        m % -5,
        -n // m,
        n << 3,
        n >> 2,
        abs(n - m),
        -n,
    ]


def floats(size: Size) -> list[Any]:
    n, m = size(N), size(M)
    return [
        n / m, (n + 0.5) * m, math.floor(n / 7), math.ceil(n / 7), round(n / 4), 1e6 / most(1, n), least(n / 3, m / 2),
        most(0.25, n / 9), abs(n / 3 - m),
    ]  # fmt: skip


def choices(size: Size) -> list[Any]:
    n, m = size(N), size(M)
    if n * 2 < m:
        return [1, n, m]
    if n == m:
        return [2, n, 0]
    return [3, max(1, min(8, n // 4)), n if n / 3 > 2.5 else m]


def pinned(size: Size) -> list[Any]:
    return [len(range(size(N))), [5, 6, 7][min(2, size(M))]]


@pytest.mark.parametrize("function", [arithmetic, floats, choices])
def test_numbers_are_those_of_python(function: Callable[[Size], Sequence[Any]]) -> None:
    native = check(function, both((40, 1, 2, 3, 7, 8, 15, 16, 17, 1000, 12345, 0), (7, 1, 16, 100)))
    assert native.asked < 8


def test_a_way_is_asked_for_once() -> None:
    native = Native([choices], {"n": 9, "m": 7})
    for n in range(1, 200):
        native.run({"n": n, "m": 7})
    known = native.asked
    assert 2 <= known <= 8
    for n in range(1, 200):
        native.run({"n": n, "m": 7})
    assert native.asked == known


def test_numbers_that_python_needs_are_ways_of_their_own() -> None:
    native = check(pinned, both((4, 5, 4, 9, 5), (1, 5)))
    assert native.asked == 5


def test_too_many_ways_are_not_added() -> None:
    native = Native([pinned], {"n": 1, "m": 1})
    for n in range(1, MOST_WAYS + 1):
        assert native.run({"n": n, "m": 1}) == [[n, 6]]
    status = native.status({"n": 1000, "m": 1})
    assert not native.tape.extend(MISSED - status, {"n": 1000, "m": 1})
    native.tape.leave(native.sections[0])
    native.tape.registers[native.sections[0].places[0]] = 77
    assert native.run({"n": 1000, "m": 1})[0][0] == 77  # type: ignore[index]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_drawn_functions(data: st.DataObject) -> None:
    """Straight lines of drawn operations, with drawn comparisons between them."""
    steps = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["add", "sub", "mul", "div", "mod", "least", "most", "if", "max", "half"]),
                st.integers(0, 30), st.integers(0, 30),
            ),
            min_size=1, max_size=12,
        )
    )  # fmt: skip

    def function(size: Size) -> list[Any]:
        values: list[Any] = [size(N), size(M), 3, size(dims.floordiv(N + 5, M + 1))]
        for name, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if name == "if":
                values.append(a - b if a < b else a + 2 * b)
            elif name == "half":
                values.append(round(a / 2))
            else:
                operations = {
                    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x % 1000 * (y % 1000),
                    "div": lambda x, y: x // (abs(y) + 1), "mod": lambda x, y: x % (abs(y) + 3), "least": least, "most": most,
                    "max": max,
                }  # fmt: skip
                values.append(operations[name](a, b))
        return values

    sizes = data.draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=1, max_size=6))
    check(function, [{"n": n, "m": m} for n, m in sizes])


SIZES = [
    dims.floordiv(N + 3, 4), dims.mod(N, M), dims.dim_max(N, M), dims.dim_min(N - 3, M), dims.truncdiv(N - 20, M),
    dims.quotient(N * M, M - 7), axes.slice_bounds(0, symbol("k[0]"), 1, N)[1], dims.scaled(N, 0.7), N * N * M - 2 * N + 1,
    *axes.reshape_dims((N, M), (symbol("k[0]"), -1)), broadcasting.broadcast_dim(N, M),
]  # fmt: skip


@pytest.mark.parametrize("d", SIZES, ids=str)
def test_sizes(d: Any) -> None:
    envs = [{"n": n, "m": m, "k[0]": k} for n in (1, 7, 8, 33, 1000) for m in (1, 7, 8, 100) for k in (-1, 0, 1, 7)]
    valid = next(e for e in envs if _has_value(d, e))
    check(lambda size: [size(d)], [valid, *envs])


def _has_value(d: Any, env: Env) -> bool:
    try:
        dims.evaluate(d, env)
    except (ValueError, ZeroDivisionError):
        return False
    return True


@pytest.mark.parametrize(
    ("function", "env"),
    [
        (lambda size: [size(N) * size(N)], {"n": 1 << 40, "m": 1}),
        (lambda size: [size(N) + size(N)], {"n": (1 << 63) - 1, "m": 1}),
        (lambda size: [size(N) // size(M)], {"n": 5, "m": 0}),
        (lambda size: [size(N) / size(M)], {"n": 5, "m": 0}),
        (lambda size: [size(N) / 3], {"n": (1 << 53) + 1, "m": 0}),
        (lambda size: [math.floor(size(N) * 1e12)], {"n": 1 << 20, "m": 0}),
        (lambda size: [size(broadcasting.broadcast_dim(N, M))], {"n": 5, "m": 4}),
    ],
)
def test_what_does_not_fit_fails(function: Callable[[Size], Sequence[Any]], env: Env) -> None:
    native = Native([function], {"n": 3, "m": 3})
    assert native.run({"n": 4, "m": 4}) is not None
    assert native.run(env) is None


def test_sections_share_what_all_ways_compute() -> None:
    """A value that only some ways of an earlier function compute is computed again."""

    def first(size: Size) -> list[Any]:
        return [size(N) * 5 if size(N) < 10 else 0]

    def second(size: Size) -> list[Any]:
        return [size(N) * 5 + 1]

    native = Native([first, second, second], {"n": 3, "m": 3})
    assert native.sections[1].end > native.sections[1].start
    assert native.sections[2].end == native.sections[2].start
    for n in (3, 50, 4, 60):
        assert native.run({"n": n, "m": 3}) == [[n * 5 if n < 10 else 0], [n * 5 + 1], [n * 5 + 1]]


@pytest.mark.parametrize(
    "function",
    [
        lambda size: [{size(N): 1}[3]], lambda size: [float(size(N))], lambda size: [2 ** size(N)], lambda size: [1 << size(N)],
        lambda size: [size(N) ** 0.5], lambda size: [most(0.5, size(N))], lambda size: [int(size(N) / 2)],
        lambda size: list(np.arange(3) * size(N)),
    ],
)  # fmt: skip
def test_what_cannot_be_noted_is_the_callers(function: Callable[[Size], Sequence[Any]]) -> None:
    native = Native([lambda size: [size(N) + 1], function, lambda size: [size(N) + 2]], {"n": 3, "m": 3})
    assert [s.noted for s in native.sections] == [True, False, True]
    assert native.run({"n": 8, "m": 3}) == [[9], [], [10]]


def test_other_addresses_lead_elsewhere() -> None:
    tape = Tape({"n": 3})
    section = tape.add(lambda: ("few" if tape.size(N) < 10 else "many", [tape.size(N)]))
    tape.finish()
    assert section.fixed == "few"
    assert not tape.extend(0, {"n": 20})
    assert tape.elsewhere
    assert ELSEWHERE in tape.code
    assert issubclass(Elsewhere, Exception)


def test_an_error_of_a_function_leaves_the_tape_as_it_was() -> None:
    def function(size: Size) -> list[Any]:
        if size(N) > 5:
            raise ValueError("more than five")
        return [size(N)]

    native = Native([function], {"n": 3, "m": 3})
    before = native.tape.code[:]
    for _ in range(2):
        with pytest.raises(ValueError, match="more than five"):
            native.run({"n": 9, "m": 3})
        assert native.tape.code == before
    assert native.run({"n": 4, "m": 3}) == [[4]]


def test_cached_functions_do_not_keep_numbers_of_a_tape() -> None:
    kinds: list[type] = []

    @cached(8)
    def function(n: int) -> int:
        kinds.append(type(n))
        return n + 1

    native = Native([lambda size: [function(size(N))]], {"n": 3, "m": 3})
    assert native.run({"n": 4, "m": 3}) == [[5]]
    assert function(4) == function(4) == 5
    assert kinds == [Traced, int]


def test_a_number_of_a_tape_is_no_key() -> None:
    found: list[Any] = []
    tape = Tape({"n": 1})
    tape.add(lambda: ((), [found.append(tape.size(N)) or 0]))
    with pytest.raises(Untraceable, match="a number is needed where there is one for each of many sizes"):
        hash(found[0])


TABLES = [
    lambda n, m: Table((Spread(n, ((n, m), (3, 8))), np.arange(4), Spread(m, ()))),
    lambda n, m: Table((Inside(n, 2, 3, n + m, 1, 5), Spread(0, ((n, 0), (2, 1))))),
    lambda n, m: Table((Inside(n, 1, m, n, 2, 3), Spread(5, ((m, 1), (n, 2), (2, 3), (2, 4))))),
]


@pytest.mark.parametrize("make", TABLES)
def test_tables(make: Callable[[Any, Any], Table]) -> None:
    kept: list[np.ndarray] = []
    tape = Tape({"n": 3, "m": 2})
    native = Native([], {"n": 3, "m": 2})
    native.tape = tape
    sections = [tape.add(lambda: ((), [make(tape.size(N), tape.size(M)).note(tape, kept)])) for _ in range(2)]
    tape.finish()
    for env in both((3, 1, 0, 17), (2, 1, 5)):
        assert native.status(env) == OK
        expected = make(env["n"], env["m"])
        assert expected.length == len(expected.array)
        for section in sections:
            at = tape.registers[section.places[0]] // 8
            np.testing.assert_array_equal(native.words[at : at + expected.length], expected.array)
        used = native.io[FIELDS.index("used")]
        assert used == 2 * expected.length
        if used:
            native.set(capacity=used - 1)
            native.words[:] = -7
            assert native.status(env) == NO_ROOM
            assert native.io[FIELDS.index("used")] == used
            assert (native.words[used - 1 :] == -7).all()
            native.set(capacity=len(native.words))


def test_what_windows_see_inside_an_image() -> None:
    for count, stride, pad, size, dilation, kernel in [
        (9, 1, 2, 9, 1, 5),
        (5, 2, 3, 9, 3, 3),
        (4, 3, 0, 10, 1, 1),
        (6, 1, 9, 2, 4, 5),
    ]:
        found = Inside(count, stride, pad, size, dilation, kernel).array().reshape(-1, 2)
        for window, (low, high) in enumerate(found):
            seen = [k for k in range(kernel) if 0 <= window * stride - pad + k * dilation < size]
            assert list(range(low, high)) == seen
