"""How many cores this process may use: the least of CPU affinity, cgroup CPU quota and the machine's cores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 62


def available_cores(cgroup_root: Path = CGROUP_ROOT, process_cgroups: Path = PROCESS_CGROUPS) -> int:
    """The number of threads that can run at once here, at least 1; a fractional CPU quota is rounded up."""
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    quota = cpu_quota(cgroup_root, process_cgroups)
    if quota is not None:
        counts.append(math.ceil(quota))
    return max(1, min(counts))


def cpu_quota(cgroup_root: Path = CGROUP_ROOT, process_cgroups: Path = PROCESS_CGROUPS) -> float | None:
    """Cores' worth of CPU time that cgroup v1 or v2 grants this process, None where nothing limits it.

    A limit holds for a group and all below it, so every group from the process's own up to the root is asked.
    """
    quotas = [quota for folder in _groups(cgroup_root, process_cgroups) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def memory_limit(cgroup_root: Path = CGROUP_ROOT, process_cgroups: Path = PROCESS_CGROUPS) -> int | None:
    """Bytes of memory that cgroup v1 or v2 grants this process, None where nothing limits it."""
    found = [limit for folder in _groups(cgroup_root, process_cgroups, "memory") if (limit := _memory(folder)) is not None]
    return min(found, default=None)


def _memory(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        # Version 1 says "no limit" by the largest multiple of a page (cgroups(7)).
        return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None
    return None


def _groups(cgroup_root: Path, process_cgroups: Path, controller: str = "cpu") -> Iterator[Path]:
    try:
        lines = process_cgroups.read_text().splitlines()
    except OSError:
        return
    # Each line is hierarchy:controllers:path; version 2 has no controllers (cgroups(7)).
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            roots = [cgroup_root, cgroup_root / "unified"]
        elif controller in controllers.split(","):
            roots = [cgroup_root / controllers, cgroup_root / "cpu"]
        else:
            continue
        relative = Path(path.lstrip("/"))
        for root in roots:
            for group in (relative, *relative.parents):
                yield root / group


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            limit, period = (folder / "cpu.max").read_text().split()
        else:
            limit = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        if limit == "max" or int(limit) <= 0 or int(period) <= 0:
            return None
        return int(limit) / int(period)
    except (OSError, ValueError):
        return None
