"""What this process may use of the machine: cores and memory, the least of what there is and what its control groups grant.

No request for memory goes beyond what the machine has: the system may promise more, and ends the process when it is written.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from os.path import join
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path  # which takes milliseconds to import: a session's start works with texts
    from typing import Any, Protocol

    AnyPath = str | Path

    class Account(Protocol):
        """`intarsia.runtime.counted_memory.Account`."""

        @property
        def held(self) -> int: ...
        def set_arena(self, nbytes: int) -> None: ...
        def counting(self) -> AbstractContextManager[None]: ...
        def uncounted(self) -> AbstractContextManager[None]: ...
        def check_texts(self, values: Sequence[Any]) -> None: ...


CGROUP_ROOT = "/sys/fs/cgroup"
PROCESS_CGROUPS = "/proc/self/cgroup"
LARGE_NBYTES = 1 << 30  # smaller requests are not compared with what the machine has
_NO_LIMIT = 1 << 62
_ADDRESSABLE = 1 << 47  # bytes of a process


# What counts the memory of arrays that this context makes, where a limit is set.
ACCOUNT: ContextVar[Account | None] = ContextVar("intarsia account of memory", default=None)


def available_cores(cgroup_root: AnyPath = CGROUP_ROOT, process_cgroups: AnyPath = PROCESS_CGROUPS) -> int:
    """The number of threads that can run at once here, at least 1; a fractional CPU quota is rounded up."""
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    quota = cpu_quota(cgroup_root, process_cgroups)
    if quota is not None:
        counts.append(math.ceil(quota))
    return max(1, min(counts))


def cpu_quota(cgroup_root: AnyPath = CGROUP_ROOT, process_cgroups: AnyPath = PROCESS_CGROUPS) -> float | None:
    """Cores' worth of CPU time that cgroup v1 or v2 grants this process, None where nothing limits it.

    A limit holds for a group and all below it, so every group from the process's own up to the root is read.
    """
    quotas = [quota for folder in _groups(cgroup_root, process_cgroups) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota(folder: str) -> float | None:
    try:
        if os.path.exists(join(folder, "cpu.max")):
            limit, period = _text(join(folder, "cpu.max")).split()
        else:
            limit = _text(join(folder, "cpu.cfs_quota_us")).strip()
            period = _text(join(folder, "cpu.cfs_period_us")).strip()
        if limit == "max" or int(limit) <= 0 or int(period) <= 0:
            return None
        return int(limit) / int(period)
    except (OSError, ValueError):
        return None


@functools.cache
def memory_nbytes() -> int:
    """Bytes of memory that this process can have at most: the machine's, or what its control groups grant."""
    found = [n for n in (physical_memory(), memory_limit()) if n is not None]
    return min(found, default=_ADDRESSABLE)


def fits(nbytes: int) -> bool:
    """Whether so much memory may be requested."""
    return nbytes < LARGE_NBYTES or nbytes <= memory_nbytes()


def in_mib(nbytes: int) -> str:
    """Bytes for people."""
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes < 1 << 60 else f"2^{nbytes.bit_length() - 1} bytes or more"


def refused(nbytes: int) -> str:
    """The end of a sentence about so much memory, for people."""
    has = "" if fits(nbytes) else f"it has {in_mib(memory_nbytes())}; "
    which = "the limit does not allow" if fits(nbytes) and ACCOUNT.get() is not None else "the system does not give"
    return f"which {which}: {has}use a smaller batch or a shorter input, or free memory"


def memory_limit(cgroup_root: AnyPath = CGROUP_ROOT, process_cgroups: AnyPath = PROCESS_CGROUPS) -> int | None:
    """Bytes of memory that cgroup v1 or v2 grants this process, None where nothing limits it."""
    found = [limit for folder in _groups(cgroup_root, process_cgroups, "memory") if (limit := _memory(folder)) is not None]
    return min(found, default=None)


def _memory(folder: str) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = _text(join(folder, name)).strip()
        except OSError:
            continue
        # Version 1 says "no limit" by the largest multiple of a page (cgroups(7)).
        return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None
    return None


def physical_memory() -> int | None:
    """Bytes of memory of the machine, None where it does not say."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _windows_memory() -> int | None:
    """By GlobalMemoryStatusEx (sysinfoapi.h): two 32-bit words, then 64-bit ones, of which the first is what there is."""
    import ctypes

    status = (ctypes.c_uint64 * 8)()
    ctypes.c_uint32.from_buffer(status).value = ctypes.sizeof(status)
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 # only Windows has it
    return int(status[1]) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _groups(cgroup_root: AnyPath, process_cgroups: AnyPath, controller: str = "cpu") -> Iterator[str]:
    """Folders of the process's own group and of all above it."""
    try:
        lines = _text(process_cgroups).splitlines()
    except OSError:
        return
    top = os.fspath(cgroup_root)
    # Each line is hierarchy:controllers:path; version 2 has no controllers (cgroups(7)).
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            roots = [top, join(top, "unified")]
        elif controller in controllers.split(","):
            roots = [join(top, controllers), join(top, "cpu")]
        else:
            continue
        names = [name for name in path.split("/") if name]
        for root in roots:
            for count in range(len(names), -1, -1):
                yield join(root, *names[:count])


def _text(path: AnyPath) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
