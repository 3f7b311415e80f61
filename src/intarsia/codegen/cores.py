"""How many cores this process may use: the least of CPU affinity, cgroup CPU quota and the machine's cores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from os.path import join
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path  # which takes milliseconds to import: a session's start works with texts

    AnyPath = str | Path

CGROUP_ROOT = "/sys/fs/cgroup"
PROCESS_CGROUPS = "/proc/self/cgroup"
_NO_LIMIT = 1 << 62


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

    A limit holds for a group and all below it, so every group from the process's own up to the root is asked.
    """
    quotas = [quota for folder in _groups(cgroup_root, process_cgroups) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


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


def _text(path: AnyPath) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
