"""Weights that are read by threads of their own while a program is made: half of the time of a large model's first start goes
into memory that is new, and copies out of the model's file."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from intarsia.graph.model import Constant

_LEAST_NBYTES = 1 << 20  # of a weight
_WORTH_NBYTES = 16 << 20  # of all, for threads to begin
_AHEAD_NBYTES = 64 << 20  # that are read and not taken yet
_MOST_THREADS = 4


class WeightsAhead(Mapping[str, np.ndarray]):
    """The arrays of constants. Each is computed, or read, when it is requested; large ones of files may be read by then."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self._constants = constants
        self._lock = threading.Condition()
        self._waiting: dict[str, None] = {}  # names of what is to be read, in order
        self._begun: set[str] = set()
        self._read: dict[str, np.ndarray] = {}
        self._left = _AHEAD_NBYTES

    def __getitem__(self, name: str) -> np.ndarray:
        constant = self._constants[name]
        if self._waiting or self._begun or self._read:
            with self._lock:
                self._waiting.pop(name, None)
                while name in self._begun:
                    self._lock.wait()
                found = self._read.pop(name, None)
                if found is not None:
                    self._left += constant.nbytes
                    self._lock.notify_all()
                    return found
        return constant.numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)

    def stored(self, name: str) -> Constant | None:
        """The constant itself."""
        return self._constants.get(name)

    @contextmanager
    def read_by(self, threads: int, names: Sequence[str]) -> Iterator[None]:
        """Within the block threads read these constants, in order, as far as they are large and lie in files."""
        large = [name for name in dict.fromkeys(names) if self._is_large(name)]
        if threads < 2 or sum(self._constants[name].nbytes for name in large) < _WORTH_NBYTES:
            yield
            return
        self._waiting = dict.fromkeys(large)
        workers = []
        with suppress(RuntimeError):  # the system has no more of them
            for _ in range(min(threads, _MOST_THREADS)):
                context = contextvars.copy_context()  # whose memory is counted
                worker = threading.Thread(target=context.run, args=(self._work,), name="intarsia-weights", daemon=True)
                worker.start()
                workers.append(worker)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.clear()
                self._lock.notify_all()
            for worker in workers:
                worker.join()
            self._read.clear()

    def _is_large(self, name: str) -> bool:
        constant = self._constants.get(name)
        return constant is not None and not constant.retained and constant.nbytes >= _LEAST_NBYTES

    def _work(self) -> None:
        while True:
            with self._lock:
                while self._waiting and self._left <= 0:
                    self._lock.wait()
                if not self._waiting:
                    return
                name = next(iter(self._waiting))
                del self._waiting[name]
                self._begun.add(name)
                self._left -= self._constants[name].nbytes
            array = None
            with suppress(Exception):  # who needs it reads it again, and is told
                array = self._constants[name].numpy()
            with self._lock:
                self._begun.discard(name)
                if array is not None:
                    self._read[name] = array
                else:
                    self._left += self._constants[name].nbytes
                self._lock.notify_all()
            del array  # else it would stay in memory until the next one is read
