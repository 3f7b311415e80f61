"""Every fault of a provider ends in a clear error or the allowed fallback; nothing leaks, no wrong answer, no dead session."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import DeviceLost, EPFail, Fail, OutOfMemory
from intarsia.testing.faults import FaultInjectingExecutionProvider as Faulty
from intarsia.testing.faults import FaultOptions

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,4] y) { a = Relu(x)  b = Exp(a)  c = MatMul(b, w)  y = Neg(c) }""")
MODEL.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "w"))
BYTES = MODEL.SerializeToString()
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
Y = -2 * np.exp(np.maximum(X, 0))


def session(*after: str, entries: dict[str, str] | None = None, **faults: object) -> tuple[ort.InferenceSession, Faulty]:
    provider = Faulty(FaultOptions(**faults))  # type: ignore[arg-type]
    options = ort.SessionOptions()
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(BYTES, options, [provider, *after]), provider


def right(made: ort.InferenceSession) -> bool:
    return np.allclose(made.run(None, {"x": X})[0], Y)


class TestMemory:
    def test_nothing_is_left_after_runs_but_the_weights(self) -> None:
        made, provider = session()
        weights = provider.memory.live_nbytes
        assert weights >= 64
        for _ in range(3):
            assert right(made)
        assert provider.memory.live_nbytes == weights
        del made
        gc.collect()
        assert (provider.memory.live_buffers, provider.memory.live_nbytes) == (0, 0)

    @pytest.mark.parametrize("at", [2, 3, 4, 5, 6])
    def test_out_of_memory_in_a_run_is_an_error_and_the_next_run_works(self, at: int) -> None:
        made, provider = session(out_of_memory_at=at)
        live = provider.memory.live_nbytes
        with pytest.raises(
            OutOfMemory, match=r"no memory for 48 bytes on faulty:0: .* bytes are in use by .* use a smaller batch"
        ):
            made.run(None, {"x": X})
        gc.collect()
        assert provider.memory.live_nbytes == live
        assert right(made)

    def test_out_of_memory_for_the_weights(self) -> None:
        with pytest.raises(OutOfMemory, match=r"no memory for 64 bytes"):
            session(out_of_memory_at=1)

    def test_a_limit_is_a_limit(self) -> None:
        made, provider = session(memory_limit=64 + 3 * 48)
        assert right(made)
        with pytest.raises(OutOfMemory, match=r"\(limit: 208\)"):
            made.run(None, {"x": np.repeat(X, 5, axis=0)})
        assert right(made)
        assert provider.memory.peak_nbytes <= 208


class TestLost:
    def test_is_an_error_that_says_what_to_do(self) -> None:
        made, provider = session(lost_at=2)
        with pytest.raises(DeviceLost, match=r"the device faulty:0 was lost in kernel 2; make the session anew"):
            made.run(None, {"x": X})
        with pytest.raises(DeviceLost):
            made.run(None, {"x": X})
        provider.reset()
        assert right(made)

    def test_in_a_part_the_error_names_the_provider(self) -> None:
        made, _ = session(lost_at=1, takes="Exp")
        with pytest.raises(EPFail) as caught:
            made.run(None, {"x": X})
        assert caught.value.provider == Faulty.name

    def test_a_named_provider_stands_in(self) -> None:
        made, provider = session(CPU, lost_at=2)
        with pytest.warns(
            ort.ProviderWarning, match=r"failed in a run: .* was lost .*The session goes on with CPUExecutionProvi"
        ):
            assert right(made)
        assert made.get_providers() == [CPU]
        assert right(made)
        gc.collect()
        assert provider.memory.live_buffers == 0

    def test_a_run_with_taps_goes_on_with_its_taps(self) -> None:
        made, _ = session(CPU, lost_at=2)
        with pytest.warns(ort.ProviderWarning, match="failed in a run"):
            found = made.run(None, {"x": X}, taps=["b"])
        assert np.allclose(found[0], Y)
        np.testing.assert_allclose(found.taps["b"], np.exp(np.maximum(X, 0)), rtol=1e-6)  # type: ignore[attr-defined]

    def test_the_cpu_stands_in_as_in_onnxruntime_where_that_is_wanted(self) -> None:
        made, _ = session(lost_at=2, entries={"session.provider_fallback": "warn"})
        with pytest.warns(ort.ProviderWarning):
            assert right(made)
        assert made.get_providers() == [CPU]

    def test_none_stands_in_where_fallback_is_disabled(self) -> None:
        made, _ = session(CPU, lost_at=2)
        made.disable_fallback()
        with pytest.raises(DeviceLost):
            made.run(None, {"x": X})
        assert made.get_providers() == [Faulty.name, CPU]
        made.enable_fallback()
        with pytest.warns(ort.ProviderWarning):
            assert right(made)
        strict, _ = session(CPU, lost_at=2, entries={"session.provider_fallback": "error"})
        with pytest.raises(DeviceLost):
            strict.run(None, {"x": X})

    def test_as_an_argument(self) -> None:
        provider = Faulty(FaultOptions(lost_at=1))
        made = ort.InferenceSession(BYTES, providers=[provider, CPU], enable_fallback=0)
        with pytest.raises(DeviceLost):
            made.run(None, {"x": X})

    def test_threads_that_fail_together_fall_back_once(self) -> None:
        made, _ = session(CPU, lost_at=3)
        found: list[object] = []

        def work() -> None:
            try:
                found.append(right(made))
            except ort.IntarsiaError as error:
                found.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]

        def run_all() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        with pytest.warns(ort.ProviderWarning) as caught:
            run_all()
        assert found == [True] * 4
        assert len([w for w in caught if issubclass(w.category, ort.ProviderWarning)]) == 1


class TestCopies:
    @pytest.mark.parametrize("at", [1, 2])
    def test_that_fail(self, at: int) -> None:
        made, provider = session(copy_fails_at=at)
        live = provider.memory.live_buffers
        with pytest.raises(EPFail, match=f"copy {at} failed, as it was told to") as caught:
            made.run(None, {"x": X})
        assert caught.value.provider == Faulty.name
        del caught
        gc.collect()
        assert provider.memory.live_buffers == live
        assert right(made)

    def test_that_are_slow_change_nothing_and_a_run_can_be_stopped_between_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made, provider = session(CPU, slow_copy_milliseconds=2, takes="Relu,MatMul")
        assert right(made)
        options, sleep = ort.RunOptions(), time.sleep
        first = provider.memory.copies + 1

        def stop(seconds: float) -> None:
            options.terminate |= provider.memory.copies == first
            sleep(seconds)

        monkeypatch.setattr("intarsia.testing.faults.time.sleep", stop)
        with pytest.raises(Fail, match=r"terminate flag"):
            made.run(None, {"x": X}, options)
        assert provider.memory.copies == first
        assert right(made)


class TestCompilation:
    @pytest.mark.parametrize(
        ("compilation", "message"),
        [
            ("fails", "the compiler found no way to run 4 nodes"),
            ("crashes", "crashed while it compiled part 0 .first node 'Relu_0'.: ZeroDivisionError: the compiler crashed"),
        ],
    )
    def test_that_does_not_work(self, compilation: str, message: str) -> None:
        with pytest.raises(EPFail, match=message):
            session(compilation=compilation)
        with pytest.raises(EPFail, match=message):
            session(compilation=compilation, entries={"session.disable_cpu_ep_fallback": "1"})
        with pytest.warns(ort.ProviderWarning, match=message):
            made, provider = session(CPU, compilation=compilation)
        assert right(made)
        assert provider.memory.live_buffers == 0


class TestKernels:
    def test_that_crash(self) -> None:
        made, _ = session(crash_at=2)
        with pytest.raises(
            EPFail, match=r"could not run node 'Exp_1' .Exp.: ZeroDivisionError: kernel 2 crashed, as it was told"
        ):
            made.run(None, {"x": X})
        assert right(made)

    def test_that_compute_something_else_are_the_conformance_suites_to_find(self) -> None:
        from intarsia.testing.cases import cases, run_case

        provider = Faulty(FaultOptions(wrong_at=1))
        _, wrong = run_case(cases()["test_add"], [provider])
        assert "1 of 60 elements differ" in wrong
        assert run_case(cases()["test_add"], [provider])[1] == ""


def test_transfers_that_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error which is no error of Intarsia's is told by whom and where."""
    from intarsia.testing import faults

    made, _ = session(takes="Exp")
    monkeypatch.setattr(faults.FaultTransfer, "copy_in", lambda self, array, device: 1 // 0)
    with pytest.raises(
        EPFail, match=r"FaultInjectingExecutionProvider crashed in copy a: host -> faulty:0 .*: ZeroDivisionError"
    ):
        made.run(None, {"x": X})


def test_without_faults_it_is_right_on_everything_it_takes() -> None:
    from intarsia.testing.cases import cases, run_case, sample

    for name in sample(60):
        made, wrong = run_case(cases()[name], [Faulty(), REFERENCE])
        assert not wrong, (name, wrong)
        del made
