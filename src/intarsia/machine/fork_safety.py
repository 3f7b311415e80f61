"""Forks while other threads work: a child has none of them, but the locks that they held, and modules half imported.

A lock that is made by `lock()` is free in a forked child. What it guards is never half changed in a way that matters: such code
looks things up, and adds what was missing. What may not be left in the middle (native code being loaded) has a `held_lock`,
which the forking thread takes first. Imports are waited for before a fork, too: a module that another thread has half imported
would be waited for by the child for ever.

A fork that the package's own code is in the middle of (by a program's callback) leaves the locks of that thread as they are.
"""

from __future__ import annotations

import _imp
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from importlib import _bootstrap
from types import FrameType
from typing import Any

_PATIENCE_SECONDS = 30.0  # for what takes a moment, or the compilation of a model's kernels
_PACKAGE = __name__.partition(".")[0]
_FINDS = "_find_and_load"  # what is on a thread's stack while it imports a module, whose name is its first argument
# Modules of the standard library that take a lock before a fork and release it after, and the lock's name.
_LOCKED_AT_FORKS = {"logging": "_lock", "concurrent.futures.thread": "_global_shutdown_lock"}
_LOCK_IN_PROPERTIES = sys.version_info < (3, 12)

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held: list[tuple[int, Any]] = []


def lock() -> threading.Lock:
    """A lock that is free in forked children."""
    made = threading.Lock()
    _locks.add(made)
    return made


def recursive_lock() -> Any:
    """An RLock that is free in forked children."""
    made = threading.RLock()
    _locks.add(made)
    return made


def held_lock(rank: int) -> Any:
    """An RLock that a thread has while it forks. A thread that takes several takes those of lower `rank` first."""
    made = threading.RLock()
    _held.append((rank, made))
    _held.sort(key=lambda entry: entry[0])
    return made


_turn = threading.Lock()  # one thread forks at a time


class _Fork:
    """The one that is going on."""

    thread = 0  # that forks; 0: none does
    alone = True  # whether no other thread is there
    inside = False  # whether the forking thread is in the middle of the package's code
    holds_imports = False
    taken: tuple[Any, ...] = ()


def is_inside() -> bool:
    """Whether the thread that forked last, called in its child, was in the middle of the package's code."""
    return _Fork.inside


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE


def _imports_for_us(frame: FrameType | None, name: str) -> bool:
    """Whether a thread that imports the module `name` does so for the package."""
    if name.partition(".")[0] == _PACKAGE:
        return True
    stack = _frames(frame)
    for found in stack:
        if found.f_code.co_name == _FINDS and found.f_locals.get("name") == name:
            return any(map(_is_ours, stack))
    return False


def _others_import() -> bool:
    """Whether another thread is importing a module that the package requested. The import lock is held."""
    me, threads = threading.get_ident(), sys._current_frames()
    for name, ref in list(vars(_bootstrap)["_module_locks"].items()):
        found = ref()
        owner = getattr(found, "owner", None)
        if owner is not None and owner != me and _imports_for_us(threads.get(owner), name):
            return True
    return False


def _before() -> None:
    """Take what is held meanwhile; wait for imports, and keep others from beginning."""
    if _Fork.thread == threading.get_ident():
        return
    _turn.acquire()
    _Fork.thread = threading.get_ident()
    unknown = [name for name in _LOCKED_AT_FORKS if name not in sys.modules]
    end = time.monotonic() + _PATIENCE_SECONDS
    _Fork.taken = tuple(each for _, each in _held if each.acquire(timeout=max(0.0, end - time.monotonic())))
    _Fork.alone = len(sys._current_frames()) == 1
    _Fork.inside = False
    if not _Fork.alone:
        _wait_for_imports(end)
    for name in unknown:  # what it does before a fork is not done any more where it was imported meanwhile; what after, is
        theirs = getattr(sys.modules.get(name), _LOCKED_AT_FORKS[name], None)
        if theirs is not None:
            theirs.acquire()


def _wait_for_imports(end: float) -> None:
    """The import lock is held then. What others still import at `end` is not waited for any more."""
    _Fork.inside = any(_is_ours(frame) and frame.f_globals is not globals() for frame in _frames(sys._getframe()))
    _imp.acquire_lock()
    while _others_import() and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(0.001)
        _imp.acquire_lock()
    _Fork.holds_imports = True


def _after() -> None:
    if _Fork.thread != threading.get_ident():
        return
    if _Fork.holds_imports:
        _Fork.holds_imports = False
        with suppress(RuntimeError):  # a child may not hold it any more
            _imp.release_lock()
    for each in reversed(_Fork.taken):
        each.release()
    _Fork.taken = ()
    _Fork.thread = 0
    _turn.release()


def _after_in_child() -> None:
    if _Fork.thread != threading.get_ident():
        return
    taken = _Fork.taken
    _after()
    if _Fork.alone or _Fork.inside:
        return
    for each in (*_locks, *(each for _, each in _held if each not in taken)):
        each._at_fork_reinit()
    if _LOCK_IN_PROPERTIES:
        _free_properties()


def _free_properties() -> None:
    """Before Python 3.12 all objects of a class compute a cached property under one lock."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    for member in list(vars(value).values()):
                        if isinstance(member, functools.cached_property):
                            vars(member)["lock"] = threading.RLock()


def go_first() -> None:
    """Let what is done here before a fork be done before what others, who said so earlier, do: the last to say so is the first.

    A thread pool's module takes a lock of its own before a fork, for which a thread would wait that compiles under a held lock.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


go_first()
