"""Equal weights of different programs of a process are one array: models that differ elsewhere share what they have in common.

An array is looked for among those of the same type and shape that other programs have, by a sample of its bytes first and
by all of them then. A process without such arrays looks at no bytes at all; one that has some reads those it will share.
Weights that lie in a model's own file are left alone: what somebody writes into that file must not reach other models. Those
that are pages of the cache's file, which processes share, give way only to such pages.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety

if TYPE_CHECKING:
    from intarsia.providers.cpu.executable import Executable

LEAST_NBYTES = 1 << 20
_SAMPLED = 64  # words of an array by which it is looked for
_COMPARED = 1 << 19  # words that are compared at a time: what differs is seen after the first

_Key = TypeVar("_Key")
_Ref = weakref.ref[np.ndarray]


@dataclass
class _Alike:
    """The living arrays of one type and shape."""

    fresh: list[_Ref] = field(default_factory=list)  # whose sample nobody needed yet
    sampled: dict[bytes, list[_Ref]] = field(default_factory=dict)

    def equal_to(self, array: np.ndarray) -> np.ndarray | None:
        mapped = not is_in_own_memory(array)
        for ref in self.fresh:
            known = ref()
            if known is not None:
                self.sampled.setdefault(_sample(known), []).append(ref)
        self.fresh = []
        for ref in self.sampled.get(_sample(array), ()):
            known = ref()
            if known is not None and not (mapped and is_in_own_memory(known)) and _equal(known, array):
                return known
        return None

    def living(self) -> bool:
        self.fresh = [ref for ref in self.fresh if ref() is not None]
        self.sampled = {key: left for key, refs in self.sampled.items() if (left := [ref for ref in refs if ref() is not None])}
        return bool(self.fresh or self.sampled)


_known: dict[tuple[str, tuple[int, ...]], _Alike] = {}
_lock = fork_safety.lock()


def share(arrays: Mapping[_Key, np.ndarray]) -> dict[_Key, np.ndarray]:
    """The weights of a new program, those that another program has too replaced by its arrays."""
    large = {name: array for name, array in arrays.items() if array.nbytes >= LEAST_NBYTES and array.flags.c_contiguous}
    found = dict(arrays)
    if not large:
        return found
    with _lock:
        for name, array in large.items():
            alike = _known.get(_kind(array))
            known = alike.equal_to(array) if alike is not None else None
            if known is not None:
                found[name] = known
        _forget_dead()
        for name, array in large.items():
            if found[name] is array:
                _known.setdefault(_kind(array), _Alike()).fresh.append(weakref.ref(array))
    return found


def share_constants(executable: Executable) -> None:
    """`share` for a program that was just compiled."""
    every = executable.nested()
    own = {(i, n): a for i, e in enumerate(every) for n, a in e.constants.items() if is_in_own_memory(a)}
    found = share(own)
    for i, inner in enumerate(every):
        changed = {n: array for (j, n), array in found.items() if j == i and array is not inner.constants[n]}
        if changed:
            inner.constants = {**inner.constants, **changed}
            for segment in inner.segments():
                segment.constants = {name: changed.get(name, array) for name, array in segment.constants.items()}


def _kind(array: np.ndarray) -> tuple[str, tuple[int, ...]]:
    return array.dtype.str + array.dtype.name, array.shape


def is_in_own_memory(array: np.ndarray) -> bool:
    """Whether an array's memory is the process's: neither a file's nor another library's."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def _words(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1).view(np.uint8)
    return flat[: flat.size // 8 * 8].view(np.uint64)


def _sample(array: np.ndarray) -> bytes:
    words = _words(array)
    return words[:: max(words.size // _SAMPLED, 1)].tobytes()


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.ctypes.data == b.ctypes.data:
        return True
    x, y = _words(a), _words(b)
    tails = (array.reshape(-1).view(np.uint8)[8 * x.size :].tobytes() for array in (a, b))
    starts: Iterable[int] = range(0, x.size, _COMPARED)
    return len(set(tails)) == 1 and all(np.array_equal(x[i : i + _COMPARED], y[i : i + _COMPARED]) for i in starts)


def _forget_dead() -> None:
    for kind in [kind for kind, alike in _known.items() if not alike.living()]:
        del _known[kind]
