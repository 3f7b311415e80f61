"""Leave to use AMX: asked for once, refused for reasons that people can read."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Iterator

import pytest

from intarsia.cache import fingerprint
from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.target import Target
from intarsia.machine import amx_permission

FEATURES = "+avx512f,+avx512vl,+avx2,+amx-tile,+amx-bf16,+amx-int8"


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was asked yet, on a Linux that can be asked; and nothing of it is remembered."""
    monkeypatch.setattr(amx_permission.sys, "platform", "linux")
    monkeypatch.setattr(amx_permission.os, "uname", lambda: type("Name", (), {"machine": "x86_64"}), raising=False)
    amx_permission.refusal.cache_clear()
    yield
    amx_permission.refusal.cache_clear()


def answers(monkeypatch: pytest.MonkeyPatch, request: int, permitted: int = 0, get: int = 0) -> list[tuple[int, int]]:
    """Calls that were made, answered by these error numbers."""
    import ctypes

    calls = []

    def call(code: int, argument: int) -> int:
        calls.append((code, argument if code == 0x1023 else 0))
        if code == 0x1022 and not get:
            ctypes.c_uint64.from_address(argument).value = permitted
        return request if code == 0x1023 else get

    monkeypatch.setattr(amx_permission, "_arch_prctl", call)
    return calls


def test_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = answers(monkeypatch, 0, permitted=1 << 18 | 0xE7)
    assert amx_permission.refusal() == "" and amx_permission.refusal() == ""
    assert calls == [(0x1023, 18), (0x1022, 0)], "asked once, by the numbers of Linux's asm/prctl.h"
    target = targets._permitted(Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES))
    assert target.has_tiles


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.EINVAL, "older than Linux 5.16"), (errno.EOPNOTSUPP, "keeps them off"), (errno.ENOSPC, "signal stack"),
        (errno.EPERM, "sandbox forbids"), (errno.ENOSYS, "sandbox has no arch_prctl"), (errno.EIO, "failed: .*errno 5"),
    ],
)  # fmt: skip
def test_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, why: str) -> None:
    import re

    answers(monkeypatch, code)
    with caplog.at_level(logging.INFO, "intarsia"):
        assert re.search(why, amx_permission.refusal())
    assert re.search(f"AMX is not used: .*{why}", caplog.text)
    target = targets._permitted(Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES))
    assert not target.has_tiles and not target.has("amx-tile") and not target.has("amx-bf16") and target.has("avx512f")


def test_what_is_taken_and_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 0, permitted=0xE7)
    assert "did not grant" in amx_permission.refusal()


def test_answers_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 0, get=errno.EINVAL)
    assert "does not say whether" in amx_permission.refusal()


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx_permission.sys, "platform", "win32")
    assert "not known how a process gets tile registers" in amx_permission.refusal()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such call")
def test_this_machine_answers() -> None:
    """The real system call: granted, or refused for a reason; never an exception."""
    why = amx_permission.refusal()
    assert why == "" or "errno" in why or "not known" in why or "did not grant" in why


def test_targets_that_are_not_this_machine_keep_their_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, errno.EPERM)
    assert Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES).has_tiles


def test_the_caches_keys_tell_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with tiles must not be found by a process that may not use them; a CPU without them is not asked for them."""
    cpus = {
        "with": b"model name : a\nflags : fpu amx_bf16 amx_tile amx_int8\n\n",
        "without": b"model name : a\nflags : fpu\n\n",
    }

    def key(cpu: str, code: int) -> str:
        amx_permission.refusal.cache_clear()
        calls = answers(monkeypatch, code, permitted=1 << 18)
        monkeypatch.setattr(fingerprint, "open", lambda *_: io.BytesIO(cpus[cpu]), raising=False)
        found = fingerprint._cpu()
        assert bool(calls) == (cpu == "with"), "asked before a program is looked up, in every process"
        return found

    assert key("with", 0) != key("with", errno.EPERM)
    assert key("without", 0) == key("without", errno.EPERM)


def test_without_tiles_nothing_else_of_amx_is_left() -> None:
    target = Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", f"{FEATURES},-amx-tile")
    assert not target.has("amx-bf16") and not target.has("amx-int8") and target.has("avx512f")
