"""Kernels of ONNX's node cases are launched on imitated machines, and compiled for real GPUs without one.

An eighth of the cases, each for one architecture of one vendor; all for all where INTARSIA_OFFLINE_KERNELS is "all" (an hour).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from offline_kernels import COMPILERS, PROVIDERS, compile_all, imitated, joined, skip_where_missing

import intarsia
from intarsia.device import cuda, hip, nvrtc
from intarsia.testing.cases import cases, run_case

ALL = os.environ.get("INTARSIA_OFFLINE_KERNELS") == "all"
CHUNKS = 48 if ALL else 6


def chunk(i: int) -> list[str]:
    names = sorted(n for n, c in cases().items() if c.kind == "node")
    return (names if ALL else names[7::8])[i::CHUNKS]


def combinations() -> list[tuple[int, str, tuple[object, ...]]]:
    """Chunk, kind of device, architectures."""
    if ALL:
        return [(i, kind, compiler[2]) for i in range(CHUNKS) for kind, compiler in COMPILERS.items()]
    kinds = sorted(COMPILERS)
    return [(i, kinds[i % 2], (COMPILERS[kinds[i % 2]][2][i // 2],)) for i in range(CHUNKS)]


@pytest.mark.parametrize(("i", "kind", "architectures"), combinations())
def test_kernels_of_cases(i: int, kind: str, architectures: tuple[object, ...]) -> None:
    """On memory that is theirs; what they would compute is not looked at."""
    skip_where_missing(kind)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    ran, refused = 0, 0
    with imitated(kind) as texts:
        for name in chunk(i):
            try:
                run_case(cases()[name], [PROVIDERS[kind]], options)
                ran += 1
            except intarsia.NotImplemented:
                refused += 1
        for device in (cuda if kind == "cuda" else hip)._opened.values():
            log = device._driver._cu.log if kind == "cuda" else device._driver._hip.log  # type: ignore[attr-defined]
            assert log.count("launch") == device.counters.launches > 0
    assert ran > 2 * refused
    compile_all(kind, texts, architectures)


@pytest.mark.parametrize("kind", sorted(COMPILERS))
def test_kernels_of_what_is_written_for_devices(kind: str) -> None:
    skip_where_missing(kind)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with imitated(kind) as texts:
        for name in ("test_ai_onnx_ml_tree_ensemble_set_membership", "test_dft", "test_roialign_aligned_true"):
            run_case(cases()[name], [PROVIDERS[kind]], options)
    compile_all(kind, texts, COMPILERS[kind][2][-1:])


def golden(suffix: str) -> list[str]:
    """Kernels of all schedules, as tests/codegen/clike compares them."""
    files = sorted((Path(__file__).parents[2] / "codegen" / "clike" / "golden").glob(f"*.{suffix}"))
    texts = [
        text for file in files for text in re.split(r"\n\n(?=typedef|extern|__device__)", file.read_text(encoding="utf-8"))
    ]
    assert len(texts) > 20
    return texts


def test_no_schedule_spills_registers() -> None:
    """By what the assembler says of each: a value that is not in a register costs a way to memory and back."""
    skip_where_missing("cuda")
    _, log = nvrtc.reported(joined(golden("c")), 90)
    found = re.findall(r"properties for main_kernel_(\d+)\s.*?(\d+) bytes stack frame, (\d+) bytes spill stores", log)
    assert len(found) == len(golden("c"))
    assert [numbers for numbers in found if numbers[1:] != ("0", "0")] == []


@pytest.mark.parametrize(("kind", "suffix"), [("cuda", "c"), ("rocm", "hip")])
def test_every_schedule_compiles(kind: str, suffix: str) -> None:
    """For all architectures."""
    skip_where_missing(kind)
    compile_all(kind, dict.fromkeys(golden(suffix)), COMPILERS[kind][2])
