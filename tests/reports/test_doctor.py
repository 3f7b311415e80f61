"""`intarsia.doctor()`: what it reports, and every problem it finds."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import numpy as np
import pytest

import intarsia as ort
from intarsia.cache.disk_cache import get_cache
from intarsia.codegen.llvm.target import Target
from intarsia.machine.resources import memory_limit
from intarsia.reports import doctor as diagnosis
from intarsia.reports.doctor import Diagnosis, Problem, doctor

CPU = "CPUExecutionProvider"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Target.host()  # what LLVM says of this machine is looked up once, and kept in the user's cache
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def problems(found: Diagnosis) -> dict[str, Problem]:
    return {problem.code: problem for problem in found.problems}


def test_it_reports_this_machine(own_cache: Path) -> None:
    found = ort.doctor()
    assert isinstance(found, ort.Diagnosis)
    assert found.ok
    assert found.packages["numpy"] == np.__version__
    (cpu,) = (p for p in found.providers if p.name == CPU)
    assert (cpu.works, cpu.missing) == (True, "")
    assert found.cache["directory"] == str(own_cache)
    assert not own_cache.exists()  # it only looks
    assert found.limits["threads of a run"] >= 1
    assert json.loads(found.to_json())["ok"] is True
    text = str(found)
    assert f"numpy: {np.__version__}" in text
    assert CPU in text


@pytest.mark.parametrize(
    ("features", "refused", "said"),
    [
        ("+avx2", "", "not on this CPU"), ("+avx512f,+avx512vl,+amx-tile,+amx-bf16,+amx-int8", "", "used: the system gives"),
        ("+avx512f,+avx512vl,+amx-tile,+amx-bf16,+amx-int8", "no leave (errno 1)", "not used: no leave"),
        ("+avx512f,+avx512vl,+amx-tile", "", "not used: INTARSIA_CPU_FEATURES leaves it out, or"),
    ],
)  # fmt: skip
def test_it_says_whether_amx_is_used(monkeypatch: pytest.MonkeyPatch, features: str, refused: str, said: str) -> None:
    from intarsia.codegen.llvm import target as targets
    from intarsia.machine import amx_permission

    facts = ("x86_64-unknown-linux-gnu", "sapphirerapids", features, "22.1.0")
    monkeypatch.setattr(targets, "host_facts", lambda: facts)
    for module in (targets, amx_permission):
        monkeypatch.setattr(module, "refusal", lambda: refused)
    monkeypatch.setattr(targets.Target, "host", lambda: targets._permitted(targets.Target.create(*facts[:3])))
    found: list[Problem] = []
    assert diagnosis._cpu(found)["AMX"].startswith(said)
    amx = {p.code: p for p in found}.get("no-amx")
    assert (amx is not None) is bool(refused)
    assert amx is None or amx.message == f"the CPU has AMX, which this process cannot use: {refused}"


def test_a_missing_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [d for d in importlib.metadata.distributions() if d.metadata["Name"] != "llvmlite"]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: kept)
    found = doctor()
    assert not found.ok
    problem = problems(found)["missing-package"]
    assert problem == Problem("missing-package", "error", "llvmlite is not installed", "pip install 'llvmlite>=0.45'")
    assert found.packages["llvmlite"] == "not installed"
    assert "error: llvmlite is not installed [missing-package]" in str(found)


def test_old_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(diagnosis._REQUIRED, "numpy", "99.0")
    found = doctor()
    assert found.ok
    assert "is older than 99.0" in problems(found)["old-package"].message


@pytest.mark.parametrize(
    ("installed", "code", "message"),
    [
        (
            {"onnxruntime": [("1.20", "/a")], "onnxruntime-gpu": [("1.19", "/a")]}, "conflicting-packages",
            "onnxruntime 1.20, onnxruntime-gpu 1.19 are installed together and share the folder 'onnxruntime'",
        ),
        (
            {"openvino": [("2025.1", "/a")], "openvino-nightly": [("2025.2", "/a")]}, "conflicting-packages",
            "share the folder 'openvino'",
        ),
        (
            {"openvino": [("2025.1", "/a"), ("2024.6", "/b")]}, "several-copies",
            "openvino is installed more than once: 2025.1 in /a; 2024.6 in /b. The first is imported",
        ),
    ],
)  # fmt: skip
def test_packages_in_each_others_way(installed: dict, code: str, message: str) -> None:
    (problem,) = diagnosis._conflicts(installed)
    assert (problem.code, problem.severity) == (code, "warning")
    assert message in problem.message


def test_packages_that_get_along() -> None:
    fine = {"onnxruntime": [("1.20", "/a")], "onnxruntime-extensions": [("0.13", "/a")], "openvino": [("2025.1", "/a")],
            "openvino-telemetry": [("1", "/a")], "onnx": [("1.18", "/a")]}  # fmt: skip
    assert diagnosis._conflicts(fine) == []


def test_a_damaged_cache(own_cache: Path) -> None:
    assert get_cache().put("whole", b"x" * 100)
    assert get_cache().put("broken", b"x" * 100)
    broken = next(own_cache.rglob("broken"))
    broken.chmod(0o600)
    broken.write_bytes(b"damaged")
    found = doctor()
    assert (found.cache["entries"], found.cache["damaged"]) == (2, 1)
    assert problems(found)["damaged-cache"].suggestion == "intarsia cache verify"
    assert next(own_cache.rglob("broken")).exists()
    assert get_cache().damaged(0) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_cache_that_others_may_write_to(own_cache: Path) -> None:
    own_cache.mkdir()
    own_cache.chmod(0o777)
    assert problems(doctor())["open-cache"].suggestion == f"chmod go-w {own_cache}"
    own_cache.chmod(0o755)
    assert "open-cache" not in problems(doctor())


def test_a_cache_that_cannot_be_written(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_cache.write_text("a file where the folder should be")
    found = doctor()
    assert found.cache["state"] == "cannot be written"
    assert "is not a folder" in problems(found)["read-only-cache"].message
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert doctor().cache["state"] == "off: INTARSIA_CACHE says so"


def test_variables_in_force_and_misspelt() -> None:
    found: list[Problem] = []
    variables = {"INTARSIA_CPU_FEATURES": "x86-64-v3", "INTARSIA_CACHE_DIRECTORY": "/nowhere", "OTHER": "1"}
    shown = diagnosis._environment(variables, found)
    assert shown["INTARSIA_CPU_FEATURES"] == "x86-64-v3"
    (problem,) = found
    assert problem.code == "unknown-variable"
    assert "INTARSIA_CACHE_DIRECTORY has no effect" in problem.message
    assert "INTARSIA_CACHE_DIR" in problem.message


def test_a_cpu_without_wide_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the levels are x86-64's")
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "x86-64-v2")
    found: list[Problem] = []
    assert diagnosis._cpu(found)["vectors"] == "128 bits"
    assert [problem.code for problem in found] == ["old-cpu"]


def test_a_quota_of_less_than_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "cpu_quota", lambda: 0.5)
    found: list[Problem] = []
    assert diagnosis._limits(found)["cgroup cpu quota"] == 0.5
    assert "quota is 0.5 cores" in found[0].message


def test_a_provider_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ort.ExecutionProvider):
        name = "BrokenExecutionProvider"

        @classmethod
        def unavailable(cls) -> str:
            return "libbroken.so was not found"

    ort.register_execution_provider(Broken)
    try:
        found = doctor()
    finally:
        ort.unregister_execution_provider(Broken.name)
    (state,) = (p for p in found.providers if p.name == Broken.name)
    assert (state.works, state.missing) == (False, "libbroken.so was not found")
    assert "BrokenExecutionProvider is installed and does not work: libbroken.so" in problems(found)["provider"].message


@pytest.mark.parametrize(
    ("files", "line", "expected"),
    [
        ({"a/memory.max": "1000\n", "memory.max": "max\n"}, "0::/a", 1000),
        ({"a/memory.max": "max\n"}, "0::/a", None),
        ({"memory/a/memory.limit_in_bytes": "2000\n"}, "3:memory:/a", 2000),
        ({"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, "3:memory:/a", None),
        ({}, "0::/a", None),
    ],
)
def test_memory_of_the_cgroup(tmp_path: Path, files: dict[str, str], line: str, expected: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "groups").write_text(f"{line}\n")
    assert memory_limit(tmp_path, tmp_path / "groups") == expected
