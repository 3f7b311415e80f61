"""Texts that are kept: the same from the cache as written, one for each list of arguments, written anew where damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="writes kernels with llvmlite")

from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import microkernel

IR = "define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) {\n  ret void\n}\n; NUMBER\n"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))


def test_written_once_for_all_processes(tmp_path: Path) -> None:
    written: list[tuple[int, str]] = []

    def write(number: int, effort: str = Effort.ALL) -> KernelText:
        written.append((number, effort))
        return kernel_text("some", IR.replace("NUMBER", str(number)), effort)

    first = cached_text(write)
    texts = [first(1), first(2), first(1, Effort.CODE), first(1)]
    assert written == [(1, "all"), (2, "all"), (1, "code")]
    another_process = cached_text(write)
    again = [another_process(1), another_process(2), another_process(1, Effort.CODE)]
    assert written == [(1, "all"), (2, "all"), (1, "code")]
    assert [(t.symbol, t.ir, t.effort) for t in again] == [(t.symbol, t.ir, t.effort) for t in texts[:3]]
    assert len({t.ir for t in again}) == 2
    for path in tmp_path.rglob("text-*"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-2])
    assert cached_text(write)(2).ir == texts[1].ir
    assert written[3:] == [(2, "all")]


def test_a_packed_text_is_a_text() -> None:
    def write(number: int) -> KernelText:
        return kernel_text("some", IR.replace("NUMBER", str(number)))

    texts = [cached_text(write)(number) for number in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert len({*texts}) == 2
    assert texts[0].size > 0
    gone = pickle.loads(pickle.dumps(texts[0]))
    assert (gone.symbol, gone.ir, gone.effort) == (texts[0].symbol, "", Effort.ALL)


def test_parts_are_kept_with_their_text() -> None:
    def write() -> KernelText:
        inner = kernel_text("inner", IR, effort=Effort.QUICK)
        call = f"declare void @{inner.symbol}(ptr, i64, i64)\n" + IR
        return kernel_text("outer", call, parts=[kernel_text("middle", IR, Effort.CODE, parts=[inner])])

    written = write()
    for text in (cached_text(write)(), cached_text(write)()):  # written, and read from the cache
        assert (text.symbol, text.ir) == (written.symbol, written.ir)
        (middle,) = text.parts
        assert (middle.symbol, middle.ir, middle.effort) == (written.parts[0].symbol, written.parts[0].ir, Effort.CODE)
        assert [(part.symbol, part.effort) for part in middle.parts] == [(written.parts[0].parts[0].symbol, Effort.QUICK)]


def test_without_a_cache_they_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert cached_text(lambda n: kernel_text("some", IR.replace("NUMBER", str(n))))(5).ir.endswith("; 5\n")
    assert not list(tmp_path.iterdir())


def test_micro_kernels_differ_by_target() -> None:
    wide = Target.create("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx2,+fma,+avx512f,+avx512vl")
    narrow = Target.create("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
    texts = [microkernel.micro_text(DType.FLOAT, t) for t in (wide, narrow)]
    assert all("<16 x float>" in part.ir for part in texts[0].parts)
    assert not any("<16 x float>" in part.ir for part in texts[1].parts)
    assert microkernel.micro_text(DType.FLOAT, wide) is texts[0]
