"""What is compiled before a model is looked at: who goes on with it, and what becomes of it otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="compiles with llvmlite")

from intarsia.codegen.llvm import compile_ahead, target
from intarsia.codegen.llvm.jit import Engine, KernelText, get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail

TEXT = "define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) nounwind {\n  store i64 NUMBER, ptr %a\n  ret void\n}"


def number(value: int) -> KernelText:
    return kernel_text("number", TEXT.replace("NUMBER", str(value)))


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """With an empty cache, and nothing begun."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    yield get_engine()
    with compile_ahead.compilation(get_engine()):
        pass


def test_a_compilation_goes_on_with_what_began(engine: Engine) -> None:
    compile_ahead.begin(lambda: number(1))
    with compile_ahead.compilation(engine) as compilation:
        (begun,) = compilation._codes.values()
        ((kernel, code),) = compilation.results([number(1)])
        assert kernel == number(1)
        assert code == begun.result()
        assert len(compilation._codes) == 1
    with compile_ahead.compilation(engine) as another:
        assert not another._codes


def test_it_begins_once(engine: Engine) -> None:
    for value in (1, 2):
        compile_ahead.begin(lambda value=value: number(value))  # type: ignore[misc]
    with compile_ahead.compilation(engine) as compilation:
        assert [*compilation._codes] == [number(1).key]


def test_another_engine_does_not_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ahead.begin(lambda: number(1))
    compile_ahead._begun[0].result()
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "other"))
    with compile_ahead.compilation(get_engine()) as compilation:
        assert not compilation._codes


def test_nothing_to_compile_and_errors_leave_a_compilation_of_its_own(engine: Engine) -> None:
    def failing() -> KernelText:
        raise EPFail("no compiler")

    for text in (lambda: None, failing):
        compile_ahead.begin(text)
        with compile_ahead.compilation(engine) as compilation:
            assert compilation.engine is engine
            assert not compilation._codes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_begins_anew() -> None:
    compile_ahead.begin(lambda: number(1))
    compile_ahead._begun[0].result()
    child = os.fork()
    if child == 0:
        os._exit(len(compile_ahead._begun))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compile_ahead._begun


@pytest.mark.skipif(sys.platform != "linux", reason="processes that compile are started on Linux only")
def test_the_executor_is_begun_where_nothing_is_known_of_the_machine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.cpu import CPUExecutionProvider
    from intarsia.runtime import executor

    monkeypatch.setattr(target, "is_known", lambda: False)
    monkeypatch.setattr(executor, "missing_text", lambda: number(7))
    CPUExecutionProvider(CPUExecutionProvider.Options()).warm_up()
    with compile_ahead.compilation(engine) as compilation:
        assert [*compilation._codes] == [number(7).key]
    assert Target.host() == engine.target
