"""The simulated libneuralnetworks itself: against the numbers that Android expects, and what it refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import nnapi_operands as kinds
import pytest
from nnapi_operations import CODES
from recorded_cases import Caller, cases, difference, missing, run_case
from simulated_nnapi import BAD_DATA, BAD_STATE, Device, OperandType, SimulatedLibrary

NOT_SIMULATED = {
    "QUANTIZED_LSTM": "its gates are computed in 16-bit fixed point, with a layer normalisation of its own; ONNX has none",
}
"""Operations whose recorded cases are not run, and why."""


def outcome(name: str) -> dict[str, str]:
    """Of each case about an operation: what is wrong with it."""
    found = {}
    for case in cases()[name]:
        try:
            wrong = difference(case, run_case(case))
        except AssertionError as error:
            wrong = str(error)
        if wrong:
            found[case["case"]] = wrong
    return found


@pytest.mark.skipif(bool(missing()), reason=missing() or "it is there")
@pytest.mark.parametrize("name", sorted(cases()) or ["none of them"])
def test_numbers_of_android(name: str) -> None:
    if name in NOT_SIMULATED:
        assert len(outcome(name)) == len(cases()[name])
        return
    assert not outcome(name)


def operand(call: Caller, model: Any, kind: int, *dims: int, scale: float = 0.0, zero_point: int = 0) -> int:
    """The error code of adding an operand."""
    shape = (ctypes.c_uint32 * len(dims))(*dims)
    given = OperandType(kind, len(dims), shape, scale, zero_point)
    return int(call.library.ANeuralNetworksModel_addOperand(model, ctypes.addressof(given)))


def sum_of_two(call: Caller, kind: int = kinds.TENSOR_FLOAT32) -> Any:
    """A model of ADD, without an activation, that is not finished."""
    model = call.made("Model_create")
    for dims in ((2,), (2,), (), (2,)):
        assert not operand(call, model, kind if dims else kinds.INT32, *dims)
    zero = ctypes.c_int32(0)
    call("Model_setOperandValue", model, 2, ctypes.addressof(zero), 4)
    call("Model_addOperation", model, CODES["ADD"], 3, call.numbers((0, 1, 2)), 1, call.numbers((3,)))
    call("Model_identifyInputsAndOutputs", model, 2, call.numbers((0, 1)), 1, call.numbers((3,)))
    return model


def test_operands_have_to_be_of_their_types() -> None:
    call = Caller(SimulatedLibrary(29))
    model = call.made("Model_create")
    assert operand(call, model, kinds.TENSOR_QUANT8_ASYMM, 2) == BAD_DATA  # no scale
    assert operand(call, model, kinds.TENSOR_QUANT8_ASYMM, 2, scale=1.0, zero_point=256) == BAD_DATA
    assert operand(call, model, kinds.TENSOR_FLOAT32, 2, scale=1.0) == BAD_DATA
    assert operand(call, model, kinds.INT32, 2) == BAD_DATA
    assert operand(call, model, kinds.TENSOR_QUANT8_ASYMM_SIGNED, 2, scale=1.0) == BAD_DATA  # from level 30
    assert not operand(call, model, kinds.TENSOR_QUANT8_ASYMM, 2, scale=1.0, zero_point=255)
    short = (ctypes.c_uint8 * 3)()
    assert call.library.ANeuralNetworksModel_setOperandValue(model, 0, ctypes.addressof(short), 3) == BAD_DATA


def test_calls_come_in_order() -> None:
    call = Caller(SimulatedLibrary(30))
    library, model = call.library, sum_of_two(call)
    handle = ctypes.c_void_p()
    assert library.ANeuralNetworksCompilation_create(model, ctypes.addressof(handle)) == BAD_STATE
    call("Model_finish", model)
    assert library.ANeuralNetworksModel_finish(model) == BAD_STATE
    compilation = call.made("Compilation_create", model)
    assert library.ANeuralNetworksExecution_create(compilation, ctypes.addressof(handle)) == BAD_STATE
    call("Compilation_finish", compilation)
    execution = call.made("Execution_create", compilation)
    assert library.ANeuralNetworksExecution_compute(execution) == BAD_DATA  # nothing was set
    call("Execution_free", execution)
    call("Compilation_free", compilation)
    call("Model_free", model)
    assert not library.alive
    assert library.ANeuralNetworksModel_finish(model) == BAD_STATE  # of what was freed


def test_an_execution_runs_once_unless_it_is_reusable() -> None:
    call = Caller(SimulatedLibrary(31))
    model = sum_of_two(call)
    call("Model_finish", model)
    compilation = call.made("Compilation_create", model)
    call("Compilation_finish", compilation)
    memory = (ctypes.c_float * 6)(1, 2, 3, 4, 0, 0)
    start = ctypes.addressof(memory)
    for reusable in (False, True):
        execution = call.made("Execution_create", compilation)
        if reusable:
            call("Execution_setReusable", execution, True)
        for at in (0, 1):
            call("Execution_setInput", execution, at, None, start + 8 * at, 8)
        call("Execution_setOutput", execution, 0, None, start + 16, 8)
        call("Execution_compute", execution)
        assert list(memory)[4:] == [4, 6]
        assert call.library.ANeuralNetworksExecution_compute(execution) == (0 if reusable else BAD_STATE)


def test_levels_decide_what_is_taken() -> None:
    old = Caller(SimulatedLibrary(29))
    with pytest.raises(AssertionError, match="ADD: takes TENSOR_INT32 from feature level 30 on; this is 29"):
        sum_of_two(old, kinds.TENSOR_INT32)
    phone = SimulatedLibrary(30, [Device(level=29), Device(level=30)])
    call = Caller(phone)
    model = sum_of_two(call, kinds.TENSOR_INT32)
    call("Model_finish", model)
    answers = (ctypes.c_bool * 1)()
    for device, taken in ((1, False), (2, True)):
        handles = (ctypes.c_void_p * 1)(device)
        place, answer = ctypes.addressof(handles), ctypes.addressof(answers)
        call("Model_getSupportedOperationsForDevices", model, place, 1, answer)
        assert answers[0] is taken
    assert not hasattr(SimulatedLibrary(28), "ANeuralNetworks_getDeviceCount")
