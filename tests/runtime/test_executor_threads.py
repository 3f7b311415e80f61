"""The number of cores that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from intarsia.runtime.threads import available_cores, cpu_quota


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("limit", "expected"), [("max 100000", 12), ("400000 100000", 4), ("150000 100000", 2), ("1000 100000", 1), ("rubbish", 12)]
)
def test_cgroup_version_2(tmp_path: Path, limit: str, expected: int) -> None:
    write(tmp_path / "fs/pod/container/cpu.max", limit + "\n")
    write(tmp_path / "self", "0::/pod/container\n")
    assert available_cores(tmp_path / "fs", tmp_path / "self") == expected


def test_a_limit_holds_for_all_groups_below(tmp_path: Path) -> None:
    write(tmp_path / "fs/pod/container/cpu.max", "800000 100000")
    write(tmp_path / "fs/pod/cpu.max", "300000 100000")
    write(tmp_path / "self", "0::/pod/container/inner\n")
    assert cpu_quota(tmp_path / "fs", tmp_path / "self") == 3.0


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(("quota", "expected"), [("-1", 12), ("250000", 3)])
@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_cgroup_version_1(tmp_path: Path, quota: str, expected: int, folder: str) -> None:
    write(tmp_path / "fs" / folder / "box/cpu.cfs_quota_us", quota)
    write(tmp_path / "fs" / folder / "box/cpu.cfs_period_us", "100000")
    write(tmp_path / "self", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n")
    assert available_cores(tmp_path / "fs", tmp_path / "self") == expected


@pytest.mark.usefixtures("cores")
def test_namespaced_group_falls_back_to_the_mount(tmp_path: Path) -> None:
    write(tmp_path / "fs/cpu.max", "200000 100000")
    write(tmp_path / "self", "0::/not/mounted/here\n")
    assert available_cores(tmp_path / "fs", tmp_path / "self") == 2


def test_no_cgroups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "absent") is None
    assert available_cores(tmp_path, tmp_path / "absent") >= 1
