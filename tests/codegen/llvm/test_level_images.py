"""Native code for levels of CPUs: which of them a CPU has, and that a start with an empty cache takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="kernels are compiled with llvmlite")

from intarsia.codegen.llvm import cached_image, level_images
from intarsia.codegen.llvm.target import LEVELS, Target

V3 = "fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt xsave avx f16c lahf_lm abm bmi1 avx2 bmi2"
V4 = f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl"
on_linux = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="levels are of Linux on x86-64 (`level_images`)"
)


def cpuinfo(vendor: str, family: int, flags: str) -> str:
    one = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: some: CPU\nflags\t\t: {flags}\nbugs\t\t:\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (cpuinfo("AuthenticAMD", 25, V4), ["zen4", "x86-64-v4", "x86-64-v3"]),
        (cpuinfo("AuthenticAMD", 26, V4), ["x86-64-v4", "x86-64-v3"]),  # Zen 5
        (cpuinfo("AuthenticAMD", 25, V3), ["x86-64-v3"]),  # Zen 3
        (cpuinfo("GenuineIntel", 6, V4), ["x86-64-v4", "x86-64-v3"]),
        (cpuinfo("GenuineIntel", 6, V4.replace(" avx512dq", "")), ["x86-64-v3"]),  # Knights Landing
        (cpuinfo("GenuineIntel", 6, V3.replace(" bmi2", "")), []),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n", []),
        ("", []),
    ],
)
def test_levels_of_a_cpu(told: str, expected: list[str]) -> None:
    assert level_images.levels_of(told) == expected


def test_targets_have_the_features_of_their_levels() -> None:
    for name, (cpu, level) in level_images.MADE_FOR.items():
        target = level_images.target_of(name)
        assert (target.cpu, target.enabled) == (cpu, frozenset(LEVELS[level][1]))
    assert [level_images.target_of(name).halves_vectors for name in level_images.MADE_FOR] == [True, False, False]
    assert [level_images.target_of(name).vector_bytes for name in level_images.MADE_FOR] == [64, 64, 32]


def test_a_file_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    level_images.write("x86-64-v3", {"image": ({"f": "symbol"}, b"code")}, str(tmp_path))
    found = level_images.read("x86-64-v3", str(tmp_path))
    assert found is not None
    assert found.images == {"image": ({"f": "symbol"}, b"code")}
    assert found.target == level_images.target_of("x86-64-v3")
    assert level_images.read("zen4", str(tmp_path)) is None
    monkeypatch.setattr(level_images, "__version__", "0.0.0")
    assert level_images.read("x86-64-v3", str(tmp_path)) is None
    assert "it is not of version 0.0.0" in caplog.text


@on_linux
def test_the_best_level_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels, info = tmp_path / "levels", tmp_path / "cpuinfo"
    info.write_text(cpuinfo("AuthenticAMD", 25, V4))
    assert level_images._found(str(levels), str(info)) is None
    for name in ("x86-64-v3", "x86-64-v4"):
        level_images.write(name, {}, str(levels))
    monkeypatch.setattr(level_images, "FOLDER", str(levels))
    monkeypatch.setattr(level_images, "CPUINFO", str(info))
    monkeypatch.delenv("INTARSIA_CPU_FEATURES", raising=False)
    level_images._found.cache_clear()
    found = level_images.of_this_cpu()
    assert found is not None
    assert found.target.cpu == "x86-64-v4"
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx2")
    assert level_images.of_this_cpu() is None
    monkeypatch.delenv("INTARSIA_CPU_FEATURES")
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert level_images.of_this_cpu() is None


@on_linux
def test_a_start_with_an_empty_cache_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are compiled for this machine's level; then a process whose cache is empty asks no compiler for a first
    result."""
    if not level_images.levels_of(Path(level_images.CPUINFO).read_text(encoding="utf-8")):
        pytest.skip("this CPU has no AVX2")
    monkeypatch.delenv("INTARSIA_CPU_FEATURES", raising=False)  # programs with features of their own take no level's
    levels = tmp_path / "levels"
    made = subprocess.run(
        [sys.executable, "-m", "intarsia.cli.prebuild", "--levels", str(levels)],
        check=True, capture_output=True, text=True, env={**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path / "making")},
    )  # fmt: skip
    sizes = {file.name: file.stat().st_size for file in levels.iterdir()}
    assert sizes.keys() == level_images.MADE_FOR.keys()
    assert made.stdout == f"{sum(sizes.values()):,} bytes\n"
    assert sum(sizes.values()) < 1 << 20
    program = f"""
import sys
import numpy as np, onnx.parser
from intarsia.cache import disk_cache
from intarsia.codegen.llvm import level_images
disk_cache.PREBUILT, level_images.FOLDER = {str(tmp_path / "none")!r}, {str(levels)!r}
import intarsia as ort
from intarsia.providers.cpu.first_tier import kernel_image
text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 2] y) '
text += '<float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ a = MatMul(x, w)  b = Sigmoid(a)  y = Softmax(b) }}'
options = ort.SessionOptions()
options.add_session_config_entry("session.compile_in_background", "1")
session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options, providers=["CPUExecutionProvider"])
x = np.float32([[1, 2, 3], [0.5, -1, 0]])
y = session.run(None, {{"x": x}})[0]
early = "intarsia.codegen.llvm.compile_workers" not in sys.modules
s = 1 / (1 + np.exp(-(x.astype(np.float64) @ np.arange(1, 7).reshape(3, 2))))
np.testing.assert_allclose(y, np.exp(s) / np.exp(s).sum(1, keepdims=True), rtol=1e-6)
print(early, kernel_image.target() == level_images.of_this_cpu().target, len(kernel_image.load()))
session.wait_until_compiled(120)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True,
        env={**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path / "empty")},
    )  # fmt: skip
    early, of_level, count = done.stdout.split()
    assert (early, of_level) == ("True", "True")
    assert int(count) > 40


def test_what_cannot_be_linked_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.cpu.first_tier.kernel_set import kernels

    name, write = next(iter(kernels()))
    image = cached_image.CachedImage("test", lambda target: {name: write(target)})
    assert image.compiled_for(Target.create("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")) is None
