"""Work on large arrays in shares that fit a core's cache, and on several arrays at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from intarsia.runtime.threads import available_cores

T = TypeVar("T")
_SHARE_BYTES = 1 << 18
_MOST_THREADS = 8
_BYTES_AT_ONCE = 128 << 20


def shares(count: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Ranges (first, last) that make up 0 to `count`; `nbytes`: of the memory that one of the `count` takes."""
    each = max(1, _SHARE_BYTES // max(1, nbytes))
    return ((first, min(first + each, count)) for first in range(0, count, each))


def computed_ahead(jobs: Iterable[tuple[int, Callable[[], T]]]) -> Iterator[T]:
    """The jobs' results in their order: as many at once as there are cores, and as their memory allows.

    Args:
        jobs: bytes of the memory that a job takes, and the job.

    Raises:
        What a job raises, when its turn comes.
    """
    threads = min(available_cores(), _MOST_THREADS)
    if threads < 2:
        yield from (job() for _, job in jobs)
        return
    waiting: deque[tuple[int, Future[T]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="intarsia-quantization") as pool:
        try:
            for nbytes, job in jobs:
                while waiting and (len(waiting) > threads or sum(n for n, _ in waiting) + nbytes > _BYTES_AT_ONCE):
                    yield waiting.popleft()[1].result()
                waiting.append((nbytes, pool.submit(job)))
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            for _, left in waiting:
                left.cancel()
