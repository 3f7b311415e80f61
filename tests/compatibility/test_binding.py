"""Bindings that run on fixed memory: the results are those of `run`, whatever is bound, overlaps or changes between runs."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import intarsia as ort
from intarsia.capi import _pybind_state as state
from intarsia.errors import InvalidArgument

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
SUM = "g (float[N,3] x, float[N,3] w) => (float[N,3] y) { y = Add(x, w) }"


def bound(session: ort.InferenceSession, x: np.ndarray = X, *outputs: str) -> ort.IOBinding:
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    for name in outputs or ("y", "z"):
        binding.bind_output(name)
    return binding


def test_later_runs_are_prepared(make_session) -> None:
    session = make_session()
    binding = bound(session)
    session.run_with_iobinding(binding)
    assert binding._call is None
    session.run_with_iobinding(binding)
    assert binding._call is not None
    first = binding.get_outputs()
    session.run_with_iobinding(binding)
    second = binding.get_outputs()
    for one, two in zip(first, second, strict=True):
        assert one.data_ptr() != two.data_ptr()
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    np.testing.assert_array_equal(second[1].numpy(), np.abs(X))


def test_what_grows_is_not_prepared(make_session) -> None:
    session = make_session(
        "g (float[N,3] x, float[P,3] past) => (float[Q,3] present, float[Q,3] y) {"
        " present = Concat<axis = 0>(past, x)  y = Neg(present) }"
    )
    binding = session.io_binding()
    binding.bind_cpu_input("x", X[:1])
    past = ort.OrtValue.ortvalue_from_numpy(np.zeros((0, 3), np.float32))
    for step in range(12):
        x = X[:1] + step
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("past", past)
        for name in ("present", "y"):
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        past, y = binding.get_outputs()
        assert past.shape() == [step + 1, 3]
        np.testing.assert_array_equal(past.numpy(), [(X[0] + k) for k in range(step + 1)])
        np.testing.assert_array_equal(y.numpy(), -past.numpy())
        assert binding._call is None
    for _ in range(3):  # and now the length stays
        binding.bind_ortvalue_input("past", past)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), [*past.numpy(), x[0]])
    assert binding._call is not None


def test_inputs_are_read_and_bound_outputs_written_in_place(make_session) -> None:
    session = make_session()
    x, y = X.copy(), np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
    for k in range(3):
        x[:] = X + k
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, -x)
    assert binding.get_outputs()[0].data_ptr() == y.ctypes.data


def test_another_input_of_the_same_shape_and_of_another(make_session) -> None:
    session = make_session()
    binding = bound(session)
    for given in (X, X + 1, X[:1], X[:1] + 1, np.zeros((0, 3), np.float32), X):
        binding.bind_cpu_input("x", given)
        for _ in range(2):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -given)


def test_inputs_that_cannot_be_used_as_they_are(make_session) -> None:
    session = make_session()
    for given in (X.astype(">f4"), np.asfortranarray(X), X.tolist(), X[::-1]):
        binding = bound(session, given)
        for _ in range(2):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -np.asarray(given, np.float32))
    binding = bound(session)
    session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X.astype(np.float64))
    with pytest.raises(InvalidArgument, match=r"Unexpected input data type. Actual: \(tensor\(double\)\)"):
        session.run_with_iobinding(binding)


def test_another_target(make_session) -> None:
    session = make_session()
    binding = bound(session)
    session.run_with_iobinding(binding)
    for target in (np.zeros_like(X), np.zeros_like(X)):
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target, -X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].data_ptr() != target.ctypes.data
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([1, 3]))
    with pytest.raises(InvalidArgument, match=r"Got invalid dimensions for output: y: .* the bound buffer is float32 \[1, 3\]"):
        session.run_with_iobinding(binding)


def test_a_target_that_overlaps_an_input(make_session) -> None:
    session = make_session(SUM)
    memory = np.arange(12, dtype=np.float32)
    for shift in (0, 3, 6):
        memory[:] = np.arange(12)
        x, y = memory[:6].reshape(2, 3), memory[shift : shift + 6].reshape(2, 3)
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, [2, 3], x.ctypes.data)
        binding.bind_cpu_input("w", np.ones_like(X))
        binding.bind_output("y", "cpu", 0, np.float32, [2, 3], y.ctypes.data)
        for _ in range(2):
            expected = x + 1
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y, expected)


def test_one_target_for_two_outputs_is_refused_or_copied(make_session) -> None:
    session = make_session()
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3])
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", target)
    binding.bind_ortvalue_output("z", target)
    session.run_with_iobinding(binding)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), np.abs(X))  # the last one wins, as with copies


def test_some_outputs(make_session) -> None:
    session = make_session()
    binding = bound(session, X, "z")
    for _ in range(3):
        session.run_with_iobinding(binding)
        assert len(binding.get_outputs()) == 1
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), np.abs(X))


def test_by_onnxruntimes_low_level_classes(make_session) -> None:
    session = make_session()
    device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    y = np.zeros_like(X)
    binding = state.SessionIOBinding(session._sess)
    binding.bind_input("x", device, np.float32, [2, 3], X.ctypes.data)
    binding.bind_output("y", device, np.float32, [2, 3], y.ctypes.data)
    binding.bind_output("z", device)
    session._sess.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(y, -X)
    np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), np.abs(X))
    binding.bind_input("x", X + 1)
    session._sess.run_with_iobinding(binding._iobinding, ort.RunOptions())
    np.testing.assert_array_equal(y, -(X + 1))


def test_torch_memory(make_session) -> None:
    torch = pytest.importorskip("torch", reason="the library whose memory is bound")
    session = make_session()
    x, y = torch.arange(6, dtype=torch.float32).reshape(2, 3), torch.zeros(2, 3)
    binding = session.io_binding()
    binding.bind_input(
        name="x", device_type="cpu", device_id=0, element_type=np.float32, shape=tuple(x.shape), buffer_ptr=x.data_ptr()
    )
    binding.bind_output("y", "cpu", 0, np.float32, tuple(y.shape), y.data_ptr())
    session.run_with_iobinding(binding)
    assert torch.equal(y, -x)


def test_a_session_with_other_providers_is_followed(make_session) -> None:
    session = make_session()
    binding = bound(session)
    session.run_with_iobinding(binding)
    session.set_providers(["ReferenceExecutionProvider"])
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -X)
    session.close()
    with pytest.raises(ort.Fail, match="the session is closed"):
        session.run_with_iobinding(binding)


def test_terminate_and_errors_in_a_prepared_run(make_session) -> None:
    session = make_session("g (float[3] x, int64[N] i) => (float[N] y) { y = Gather(x, i) }")
    binding = session.io_binding()
    index = np.int64([0, 1])
    binding.bind_cpu_input("x", X[0])
    binding.bind_cpu_input("i", index)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    session.run_with_iobinding(binding)
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(ort.Fail, match="Exiting due to terminate flag being set to true"):
        session.run_with_iobinding(binding, options)
    index[:] = 7
    with pytest.raises(InvalidArgument, match="an index is out of range"):
        session.run_with_iobinding(binding)
    index[:] = 1
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [X[0, 1]] * 2


def test_two_threads_on_one_binding_stay_right(make_session) -> None:
    session = make_session()
    binding = bound(session)
    session.run_with_iobinding(binding)
    wrong: list[object] = []

    def work() -> None:
        for _ in range(200):
            session.run_with_iobinding(binding)
            if not np.array_equal(binding._results[0], -X):
                wrong.append(binding._results[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_outputs_whose_shape_depends_on_data(make_session) -> None:
    session = make_session("g (float[N] x) => (int64[1,M] y) { y = NonZero(x) }")
    binding = session.io_binding()
    x = np.float32([0, 1, 2])
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    for given, expected in (([0, 1, 2], [[1, 2]]), ([3, 0, 0], [[0]]), ([0, 0, 0], [[]])):
        x[:] = given
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == expected


def test_arguments(make_session) -> None:
    binding = make_session().io_binding()
    with pytest.raises(
        InvalidArgument, match=r"bind_input: expected name, device_type, device_id, element_type, shape, buffer"
    ):
        binding.bind_input("x", "cpu", 0)
    with pytest.raises(InvalidArgument, match="bind_input: unexpected argument 'size'"):
        binding.bind_input("x", "cpu", 0, np.float32, [1], 0, size=1)
    with pytest.raises(InvalidArgument, match="buffer_ptr: expected the address of 12 bytes, got 0"):
        binding.bind_input("x", "cpu", 0, np.float32, [1, 3], 0)
    with pytest.raises(InvalidArgument, match=r"shape of a buffer: expected sizes from 0, got \[-1, 3\]"):
        binding.bind_input("x", "cpu", 0, np.float32, [-1, 3], 8)
    with pytest.raises(InvalidArgument, match="bind_ortvalue_input: expected an OrtValue for 'x', got ndarray"):
        binding.bind_ortvalue_input("x", X)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="bind_ortvalue_output: expected an OrtValue for 'y', got ndarray"):
        binding.bind_ortvalue_output("y", X)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="device cann:0: no provider keeps values there"):
        binding.bind_output("y", "cann", 0)


def test_a_binding_stays_in_its_process(make_session) -> None:
    binding = make_session().io_binding()
    for leave in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="an IOBinding refers to this process's memory and cannot be pickled or copied"):
            leave(binding)


def test_outputs_that_somebody_has_are_not_written_again(make_session) -> None:
    session = make_session(SUM)
    binding = session.io_binding()
    w = np.ones_like(X)
    binding.bind_cpu_input("w", w)
    binding.bind_output("y")
    taken: list[np.ndarray] = []
    for i in range(6):
        binding.bind_cpu_input("x", X + i)
        session.run_with_iobinding(binding)
        if i % 3 == 0:
            taken.append(binding.get_outputs()[0].numpy())
        else:
            taken.append(binding.copy_outputs_to_cpu()[0])
    for i, y in enumerate(taken):
        np.testing.assert_array_equal(y, X + i + 1)


def test_memory_that_nobody_has_is_used_again(make_session) -> None:
    session = make_session(SUM)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("w", X)
    binding.bind_output("y")
    places = []
    for _ in range(5):
        session.run_with_iobinding(binding)
        places.append(binding._results[0].ctypes.data)
    assert len(set(places[2:])) == 1


def test_inputs_among_bound_outputs(make_session) -> None:
    """Wherever an input overlaps one of several outputs, the results are right."""
    text = "g (float[N] x) => (float[N] p, float[N] q) { p = Neg(x)  q = Add(x, x) }"
    session = make_session(text)
    block = np.zeros(5 * 16, np.float32)
    slots = [block[i * 16 : (i + 1) * 16] for i in range(5)]
    binding = session.io_binding()
    binding.bind_cpu_input("x", slots[0])
    for name, slot in (("q", 1), ("p", 3)):
        binding.bind_output(name, "cpu", 0, np.float32, (16,), slots[slot].ctypes.data)
    for start in range(0, 64, 4):
        block[:] = np.arange(80)
        x = block[start : start + 16]
        expected = x.copy()
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(slots[3], -expected)
        np.testing.assert_array_equal(slots[1], 2 * expected)


def test_a_stopped_run_leaves_no_outputs(make_session, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(SUM)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("w", X)
    binding.bind_output("y")
    for _ in range(2):
        session.run_with_iobinding(binding)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(binding._call, "_call", stopped)
        with pytest.raises(KeyboardInterrupt):
            session.run_with_iobinding(binding)
    assert binding.get_outputs() == []
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 2 * X)
