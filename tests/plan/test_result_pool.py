"""Memory of results: what is dropped serves the next one, and nothing that is alive is given away."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from intarsia.plan.native import abi
from intarsia.plan.result_pool import LEAST, MANY, MOST_RETAINED, MOST_ROOMY, ResultMemory
from intarsia.runtime import interpreter, spmd_state
from intarsia.runtime.feed_call import lend

if interpreter.functions() is None:
    pytest.skip("native code does not know this interpreter", allow_module_level=True)


@pytest.fixture
def memory() -> ResultMemory:
    return ResultMemory(most_retained=8 * LEAST)


def test_a_dropped_result_serves_the_next_one_of_about_its_size(memory: ResultMemory) -> None:
    first = memory.empty((LEAST,), np.dtype(np.float32))
    assert first.shape == (LEAST,)
    assert first.flags.writeable
    assert first.flags.c_contiguous
    address = first.ctypes.data
    assert memory.retained_nbytes == 0
    del first
    assert memory.retained_nbytes == 4 * LEAST
    again = memory.empty((2, LEAST // 2 - 1), np.dtype(np.int32))
    assert again.ctypes.data == address
    assert memory.retained_nbytes == 0


def test_views_keep_a_result_alive(memory: ResultMemory) -> None:
    whole = memory.empty((LEAST,), np.dtype(np.float32))
    whole[:] = 7
    part = whole.reshape(2, -1)[1, 5:9]
    typed = whole.view(np.int32)[::2]
    del whole
    gc.collect()
    assert memory.retained_nbytes == 0
    other = memory.empty((LEAST,), np.dtype(np.float32))
    other[:] = 1
    assert part.tolist() == [7.0] * 4
    assert (typed == np.float32(7).view(np.int32)).all()
    del part, typed
    gc.collect()
    assert memory.retained_nbytes == 4 * LEAST


def test_small_results_are_those_of_numpy(memory: ResultMemory) -> None:
    assert memory.empty((3, 0), np.dtype(np.float32)).shape == (3, 0)
    small = memory.empty((LEAST // 8,), np.dtype(np.float32))
    assert type(small.base) is np.ndarray
    del small
    assert memory.retained_nbytes == 0


def test_what_came_first_goes_first_and_the_largest_are_not_kept(memory: ResultMemory) -> None:
    sizes = [LEAST, 2 * LEAST, 3 * LEAST, 4 * LEAST, 9 * LEAST]
    arrays = [memory.empty((n,), np.dtype(np.uint8)) for n in sizes]
    while arrays:
        del arrays[0]
        assert memory.retained_nbytes <= memory.most_retained
    assert memory.retained_nbytes == 7 * LEAST  # the third and the fourth
    assert memory.clear() == 7 * LEAST
    assert memory.retained_nbytes == 0


def test_what_nobody_wanted_for_long_is_freed(memory: ResultMemory) -> None:
    """A block that a growing result has outgrown; what runs use is kept."""
    outgrown = [memory.empty((LEAST,), np.dtype(np.uint8)) for _ in range(3)]
    del outgrown
    assert memory.retained_nbytes == 3 * LEAST
    addresses = set()
    for i in range(spmd_state.MOST_IDLE + spmd_state.IDLE_LOOK + 1):
        array = memory.empty((LEAST + 1 + i,), np.dtype(np.uint8))
        addresses.add(array.ctypes.data)
        del array
        assert memory.retained_nbytes > 3 * LEAST or i > spmd_state.MOST_IDLE - spmd_state.IDLE_LOOK - 4
    assert len(addresses) == 1
    assert memory.retained_nbytes == LEAST + 1 + i


def test_sizes_of_blocks() -> None:
    """A block serves what is up to twice as large, or an eighth larger where it is large, and no other."""
    memory = ResultMemory()
    sizes = [LEAST, LEAST + 1, 10**6, 10**7 + 1, MOST_ROOMY, MOST_ROOMY + 1, 3 * MOST_ROOMY, MOST_RETAINED - 7, MOST_RETAINED]
    for nbytes in sizes:
        whole = 1 << (nbytes - 1).bit_length()
        block = whole if whole <= MOST_ROOMY else -(-nbytes // (whole // 16)) * (whole // 16)
        first = memory.empty((nbytes,), np.dtype(np.uint8))
        first[-1] = 1
        place = first.ctypes.data
        del first
        for other, serves in ((block, True), (block + 1, False)):
            again = memory.empty((other,), np.dtype(np.uint8))
            again[-1] = 1
            assert (again.ctypes.data == place) is serves
            del again
        memory.clear()


def test_what_is_larger_than_all_that_is_kept_is_given_back() -> None:
    memory = ResultMemory(most_retained=1 << 40)
    large = memory.empty((MOST_RETAINED + 1,), np.dtype(np.uint8))
    large[-1] = 1
    del large
    assert memory.retained_nbytes == 0


def test_numbers_of_the_module_are_those_of_native_code() -> None:
    assert spmd_state.SETTLING == abi.SETTLING
    assert (1 << spmd_state.LEAST_ROOM, 1 << spmd_state.MOST_ROOMY, 1 << spmd_state.MOST_ROOM) == (
        LEAST, MOST_ROOMY, MOST_RETAINED,
    )  # fmt: skip


def test_blocks_begin_with_a_line(memory: ResultMemory) -> None:
    arrays = [memory.empty((LEAST + i,), np.dtype(np.uint8)) for i in range(5)]
    assert all(a.ctypes.data % 64 == 0 for a in arrays)


def test_shapes_that_are_none(memory: ResultMemory) -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        memory.empty((-1, -LEAST), np.dtype(np.float32))
    with pytest.raises((MemoryError, ValueError)):
        memory.empty((1 << 40, 1 << 20), np.dtype(np.float32))


def test_without_native_code_results_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "functions", lambda: None)
    assert lend(MOST_RETAINED) is None
    memory = ResultMemory()
    array = memory.empty((LEAST,), np.dtype(np.float32))
    assert type(array.base) is np.ndarray
    del array
    assert memory.retained_nbytes == memory.clear() == 0


def test_a_result_that_grows_stays_in_its_block(memory: ResultMemory) -> None:
    places = set()
    for nbytes in range(LEAST + 1, 2 * LEAST + 1, 4095):
        result = memory.empty((nbytes,), np.dtype(np.uint8))
        places.add(result.ctypes.data)
        del result
        assert memory.retained_nbytes == nbytes  # what was never written is no memory
    assert len(places) == 1
    smaller = memory.empty((LEAST + 1,), np.dtype(np.uint8))
    del smaller
    assert memory.retained_nbytes == nbytes  # but what was stays


def test_rows_that_are_not_written_take_no_memory_of_others(memory: ResultMemory) -> None:
    arrays = [memory.empty((LEAST + LEAST // 8,), np.dtype(np.uint8)) for _ in range(6)]
    arrays.clear()
    assert memory.retained_nbytes == 6 * (LEAST + LEAST // 8)  # not 12 times `LEAST`, of which 8 are kept


def test_threads_do_not_share_what_is_alive(memory: ResultMemory) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(200):
            x = memory.empty((LEAST // 4 + turn,), np.dtype(np.int32))
            x[:] = number
            y = memory.empty((LEAST // 4,), np.dtype(np.int32))
            y[:] = -1
            if (x != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_first_run_lends_memory_only_to_many_results_that_are_not_large(
    memory: ResultMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_ = np.dtype(np.uint8)
    many = [((LEAST,), bytes_)] * (MANY // LEAST)
    assert not memory.wants_lender(many)  # it has one
    monkeypatch.setattr(ResultMemory, "lender", None)
    assert memory.wants_lender(many)
    assert not memory.wants_lender(many[1:])
    assert not memory.wants_lender([((LEAST - 1,), bytes_)] * 100)
    assert not memory.wants_lender([((MANY,), bytes_)] * 100)
