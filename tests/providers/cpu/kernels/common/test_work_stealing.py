from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the kernels are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.builder.kernel_body import Module, Value
from intarsia.codegen.llvm.jit import get_engine
from intarsia.providers.cpu.kernels.common.pieces import tail
from intarsia.providers.cpu.kernels.common.work_stealing import emit_shares

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def counting_kernel() -> object:
    """Arguments: units, claims, tail, piece, and int64 [units, 2]: how often a unit was computed, and its last thread."""
    module = Module(t.host())
    body = module.kernel()
    args, tid, _ = body.args
    place = body.load_pointer(args, 4)

    def work(unit: Value, last: Value, taken: Value) -> Value:
        count = body.min(body.sub(last, unit), 3)
        with body.loop(unit, body.add(unit, count)) as i:
            at = body.at(place, body.mul(i, 16))
            body.b.atomic_rmw("add", at, body.i(1), "monotonic")
            body.b.store(body.add(body.mul(tid, 2), taken), body.at(at, 8), align=8)
        return count

    given = {"claims": body.load_pointer(args, 1), "tail": body.load_i64(args, 2), "piece": body.load_i64(args, 3)}
    emit_shares(body, body.load_i64(args, 0), given, work)
    body.b.ret_void()
    text = module.text("counting")
    return SIGNATURE(get_engine(t.host()).load([text])[text.symbol])


def computed(units: int, claimed: int, piece: int, threads: int, order: list[int] | None = None) -> np.ndarray:
    """What the kernel did of each unit; the callers one after the other in `order`, or all at once."""
    claims, found = np.zeros(1, np.int64), np.zeros((units + 1, 2), np.int64)
    args = np.array([units, claims.ctypes.data, claimed, piece, found.ctypes.data], np.int64)
    kernel = counting_kernel()
    for _ in range(2):  # the word is left as it was found
        found[:] = 0
        if order is None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda tid: kernel(args.ctypes.data, tid, threads), range(threads)))  # type: ignore[operator]
        else:
            for tid in order:
                kernel(args.ctypes.data, tid, threads)  # type: ignore[operator]
        assert claims[0] == 0
    assert (found[:units, 0] == 1).all()
    assert found[units, 0] == 0
    return found[:units, 1]


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    ("units", "claimed", "piece"), [(0, 0, 1), (1, 0, 1), (40, 16, 4), (101, 37, 5), (64, 64, 64), (3, 3, 1)]
)
def test_every_unit_once(units: int, claimed: int, piece: int, threads: int) -> None:
    for order in (list(range(threads)), list(reversed(range(threads))), None):
        computed(units, claimed, piece, threads, order)


def test_who_comes_first_takes_over_from_the_end() -> None:
    """Thread 0 alone does its half and the other's tail, in pieces of the other half; thread 1 what is left."""
    of = computed(40, 16, 4, 2, [0, 1])
    assert of.tolist() == [0] * 20 + [2] * 12 + [1] * 8


def test_the_other_half_takes_over_too() -> None:
    of = computed(40, 16, 4, 2, [1, 0])
    assert of.tolist() == [0] * 12 + [3] * 8 + [2] * 20


def test_sizes_of_pieces() -> None:
    assert tail(1000, 100_000, 1, (10,)) == (0, 1)
    assert tail(10, 1000, 2, (10,)) == (0, 1), "too little work to be cut"
    units, products = 280, 221_184  # 28 lines of 10 tiles by one panel
    claimed, piece = tail(units, products, 2, (10, 280))
    assert piece == 10
    assert 0 < claimed <= units * 3 // 8 and claimed % (2 * piece) == 0
    assert tail(1 << 30, 1 << 20, 2, ()) == (0, 1), "slices of such a step would be too many"
