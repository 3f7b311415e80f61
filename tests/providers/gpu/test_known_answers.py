"""Devices answer kernels with known results before they are used; one that is wrong is refused with what it got wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_kinds import Kind

import intarsia
from intarsia.device import known_answers
from intarsia.device.gpu import Gpu
from intarsia.device.known_answers import answered_wrong, questions

X = {"x": np.arange(9, dtype=np.float32).reshape(3, 3) / 8}


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(known_answers.VARIABLE)
    monkeypatch.setattr(known_answers, "_answered", {})


@pytest.fixture
def device(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A kind of which no device is open, before the test and after it."""
    monkeypatch.setattr(gpu.module._opened, "_devices", {})
    return gpu


def test_answers_are_what_numpy_says() -> None:
    """The primitives' interpreter, which knows nothing of devices, has the same answers, and no two elements beside each
    other are always equal: a device cannot pass by writing one number everywhere."""
    from intarsia.primitives.interpreter import interpret

    for question in questions():
        (found,) = interpret([question.root], list(question.operands))
        np.testing.assert_allclose(found, question.answer, rtol=1e-6, err_msg=question.title)
        assert len(np.unique(question.answer)) > 2


def test_devices_that_work_pass(gpu: Kind) -> None:
    assert answered_wrong(gpu.open()) == ""


# --- faults -----------------------------------------------------------------------------------------------------------


def writes_nothing(run: Any) -> Callable[[Gpu, Sequence[Any]], None]:
    return lambda self, bound: None


def runs_the_last_alone(run: Any) -> Callable[[Gpu, Sequence[Any]], None]:
    return lambda self, bound: run(self, bound[-1:])


def copies_nothing(copy: Any) -> Callable[..., None]:
    return lambda self, source, target, nbytes: None


def copies_to_the_beginning(copy: Any) -> Callable[..., None]:
    return lambda self, source, target, nbytes: copy(self, source, replace(target, offset=0), nbytes)


def reads_garbage(read: Any) -> Callable[..., memoryview]:
    def changed(self: Gpu, buffer: Any, offset: int, nbytes: int) -> memoryview:
        found = bytearray(read(self, buffer, offset, nbytes))
        found[-3] ^= 0x40
        return memoryview(found)

    return changed


UNWRITTEN = "which the device has not written"
FAULTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "kernels write nothing": ("run", writes_nothing, f"arithmetic of float32: 1,000 of 1,000 elements are wrong, {UNWRITTEN}"),
    "one launch of several runs": (
        "run", runs_the_last_alone, r"launches that read what those before them wrote: \d+ of 300 elements are wrong; element"
    ),
    "copies do nothing": ("_copy", copies_nothing, f"copies within the device: 2,048 of 4,096 elements are wrong, {UNWRITTEN}"),
    "copies go elsewhere": (
        "_copy", copies_to_the_beginning,
        "copies within the device: 2,304 of 4,096 elements are wrong; element 0 is 0 and should be 2145756581",
    ),
    "one bit is wrong": (
        "_read", reads_garbage, "copies to the device and back: 1 of 2,048 elements are wrong; element 2047 is"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_devices_that_are_wrong_are_refused(device: Kind, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, wrong, message = FAULTS[fault]
    kind = type(device.open())
    known_answers._answered.clear()
    device.module._opened._devices.clear()
    monkeypatch.setattr(kind, method, wrong(getattr(kind, method)))
    monkeypatch.setenv(known_answers.VARIABLE, "always")
    full = rf"{device.kind}:0 \(.*\) is refused, since it failed its known-answer test: .*{message}"
    with pytest.raises(intarsia.EPFail, match=f"^{device.provider} cannot be used on this machine: {full}"):
        device.session()
    with pytest.raises(intarsia.EPFail, match=f"^{full}"):
        device.open()


def test_another_provider_stands_in(device: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(device.open())
    device.module._opened._devices.clear()
    known_answers._answered.clear()
    monkeypatch.setattr(kind, "run", writes_nothing(None))
    monkeypatch.setenv(known_answers.VARIABLE, "always")
    from onnx import helper

    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [3, 3])],
                              [helper.make_tensor_value_info("y", 1, [3, 3])])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    with pytest.warns(intarsia.ProviderWarning, match=r"which the device has not written.*The session goes on with CPU"):
        session = intarsia.InferenceSession(model, providers=[device.provider, "CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, X)[0], -X["x"])
    with pytest.raises(intarsia.EPFail, match="failed its known-answer test"):
        intarsia.InferenceSession(model, providers=[device.provider])


# --- what is remembered -----------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """Devices that were asked, in order; none is, and all answers are right."""
    found: list[Gpu] = []

    def right(gpu: Gpu) -> str:
        found.append(gpu)
        return ""

    monkeypatch.setattr(known_answers, "answered_wrong", right)
    return found


def test_right_answers_are_remembered_on_the_machine(device: Kind, asked: list[Gpu], monkeypatch: pytest.MonkeyPatch) -> None:
    made = device.open()
    device.open(memory_limit=1 << 30)  # another way to open the same one
    assert asked == [made]
    device.module._opened._devices.clear()
    known_answers._answered.clear()  # as in another process
    made = device.open()
    assert len(asked) == 1
    monkeypatch.setattr(type(made), "identity", lambda self: ("another driver",))
    device.module._opened._devices.clear()
    device.open()
    assert len(asked) == 2


def test_wrong_answers_are_forgotten_with_the_process(device: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["sums of rows: 5 of 5 elements are wrong", ""]
    monkeypatch.setattr(known_answers, "answered_wrong", lambda gpu: answers.pop(0))
    for _ in range(2):
        with pytest.raises(intarsia.EPFail, match="sums of rows: 5 of 5 elements are wrong"):
            device.open()
    known_answers._answered.clear()
    device.open()
    assert not answers


def test_a_lost_device_is_asked_again(device: Kind, asked: list[Gpu]) -> None:
    first = device.open()
    first.lost = "removed"
    if hasattr(first, "answers"):
        first.answers = lambda: False
    second = device.open()
    assert asked == [first, second]


@pytest.mark.parametrize(("value", "times"), [("", 1), ("always", 2), ("0", 0)])
def test_how_often_a_device_is_asked(
    device: Kind, asked: list[Gpu], value: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(known_answers.VARIABLE, value)
    for _ in range(2):
        device.module._opened._devices.clear()
        device.open()
    assert len(asked) == times


def test_another_word_is_an_error(device: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(known_answers.VARIABLE, "never")
    with pytest.raises(intarsia.InvalidArgument, match=r"INTARSIA_DEVICE_TEST: expected 'always', '0' or nothing, got 'never'"):
        device.open()


def test_the_limit_of_memory_and_the_counters_know_nothing_of_it(
    device: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(known_answers.VARIABLE, "always")
    with caplog.at_level(logging.INFO, "intarsia"):
        made = device.open(memory_limit=512)
    assert (made.memory_limit, made.counters, made.holders()) == (512, type(made.counters)(), {})
    assert any("known-answer test in" in record.message and "passed" in record.message for record in caplog.records)
