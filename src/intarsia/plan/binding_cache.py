"""Bindings and frames that are cached for later processes: how a segment was laid out, and what other sizes take.

To bind a segment takes its steps, and these the code that made them: a hundred modules, for a run that takes a millisecond.
What comes of it is data (`plan.relocations`). A process that has to bind a segment for the first time keeps that, and the next
one begins with it: its first run, on these sizes, needs neither steps nor what they are made by. One binding of a segment
is cached by each process at most, and none where there is a frame for all sizes (`plan.symbolic_binding`), which is cached
when a process has made one, and again after it has learned.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.plan.parallel_branches import Window
from intarsia.plan.relocations import Words

if TYPE_CHECKING:
    from intarsia.plan.bound_segment import BoundSegment
    from intarsia.plan.symbolic_binding import CachedFrame, Frame

_MOST_NBYTES = 1 << 20  # of arrays and words that are cached of a binding


class Binding(NamedTuple):
    """A segment bound for given sizes.

    Attributes:
        shapes: of the outputs.
        sliced: by step: slices, bytes of scratch memory, and what `BoundSegment.sliced_as` tells.
        whole: whether it was looked at, and is not worth parts.
        others: see `BoundSegment`.
    """

    shapes: tuple[tuple[int, ...], ...]
    serial: np.ndarray
    arena_nbytes: int
    workspace_nbytes: int
    long: bool
    checked: bool
    windows: tuple[Window, ...]
    sliced: dict[int, tuple[int, int, int, int | None, int]]
    words: Words
    whole: bool
    sized_nbytes: tuple[int, ...]


class BindingCache:
    """Bindings and frames of one segment in the cache, as this package's files and the CPU make them. `key`: changes with the
    segment."""

    def __init__(self, key: str) -> None:
        self._key = key

    def find(self, env: Mapping[str, int], threads: int, form: tuple[object, ...]) -> Binding | None:
        """The binding for these sizes; None where none is cached. `form`: what bindings depend on besides."""
        found: Binding | None = get_cache().load(self._name(env, threads, form))
        return found

    def keep(self, bound: BoundSegment, env: Mapping[str, int], threads: int, form: tuple[object, ...]) -> None:
        """Keep a binding that was made exactly, if it is data alone."""
        words, _ = bound.words()
        arrays = [array for _, array in words.own]
        if not all(type(a) is np.ndarray and a.flags.c_contiguous and not a.dtype.hasobject for a in arrays):
            return  # an array of another type is one that all runs of this process share, and change
        if sum(a.nbytes for a in (*arrays, words.numbers)) > _MOST_NBYTES:
            return
        made = Binding(
            tuple(shape for shape, _ in bound.outputs), np.array(bound.serial, bool), bound.arena_nbytes,
            bound.workspace_nbytes, bound.long, bound.checked, bound.windows,
            {i: (*sliced, *bound.sliced_as(i)) for i, sliced in bound.sliced.items()}, words, bound.whole,
            bound.sized_nbytes,
        )  # fmt: skip
        get_cache().store(self._name(env, threads, form), made)

    def find_frame(self, number: int, threads: int, form: tuple[object, ...]) -> CachedFrame | None:
        """A frame; segments whose kernels are chosen by size have several."""
        found: CachedFrame | None = get_cache().load(self._frame_name(number, threads, form))
        return found

    def keep_frame(self, number: int, threads: int, form: tuple[object, ...], frame: Frame) -> None:
        """Keep a frame as it is now, if it is data alone."""
        made = frame.cached() if get_cache().writable else None
        data = b"" if made is None else pickle.dumps(made, 5)
        if 0 < len(data) <= _MOST_NBYTES:
            get_cache().put(self._frame_name(number, threads, form), data)

    def _frame_name(self, number: int, threads: int, form: tuple[object, ...]) -> str:
        return f"frame-{content_key(fingerprint(), self._key, repr((number, threads, form)))}"

    def _name(self, env: Mapping[str, int], threads: int, form: tuple[object, ...]) -> str:
        return f"bound-{content_key(fingerprint(), self._key, repr((threads, form, sorted(env.items()))))}"
