"""Cases with the numbers that Android expects of NNAPI's operations, and one of them run through the C interface.

The data is no part of this repository: a file of its own that INTARSIA_NNAPI_CASES names, or that lies beside the checkout.
"""

from __future__ import annotations

import ctypes
import functools
import gzip
import json
import os
from pathlib import Path
from typing import Any

import nnapi_operands as kinds
import numpy as np
from nnapi_operations import CODES
from simulated_nnapi import ChannelScales, Device, OperandType, SimulatedLibrary

_BESIDE = Path(__file__).resolve().parents[5] / "shared" / "data" / "nnapi_cases.json.gz"
LEVELS = {"V1_0": 27, "V1_1": 28, "V1_2": 29, "V1_3": 30, "AIDL_V2": 1000006, "AIDL_V3": 1000007, "UNKNOWN": 1000008}
_LEVEL_TYPES = {name: getattr(kinds, name) for name in kinds.NAMES.values()}
Case = dict[str, Any]


def path() -> Path:
    return Path(os.environ.get("INTARSIA_NNAPI_CASES") or _BESIDE)


def missing() -> str:
    """Why the cases cannot be run; "" where they can."""
    found = path()
    return "" if found.is_file() else f"needs the recorded cases of NNAPI: {found.name} in INTARSIA_NNAPI_CASES"


@functools.cache
def cases() -> dict[str, list[Case]]:
    """By what a case is about: its last operation."""
    if missing():
        return {}
    with gzip.open(path(), "rt", encoding="utf-8") as file:
        found: dict[str, list[Case]] = {}
        for case in json.load(file):
            names = [o["op"] for o in case["operations"]]
            found.setdefault(next((n for n in names if n != "ADD"), "ADD"), []).append(case)
        return found


class Caller:
    """Calls the library and raises where it gives an error code."""

    def __init__(self, library: SimulatedLibrary) -> None:
        self.library, self.kept = library, []

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, f"ANeuralNetworks{name}")(*arguments)
        if code:
            raise AssertionError(f"{name}: {code}: {self.library.log[-1:]}")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self(name, *arguments, ctypes.addressof(handle))
        return handle

    def numbers(self, values: Any) -> int:
        array = (ctypes.c_uint32 * len(values))(*values)
        self.kept.append(array)
        return ctypes.addressof(array)


_OPTIONAL_FROM = {
    "BATCH_TO_SPACE_ND": (2, 29), "SPACE_TO_BATCH_ND": (3, 29), "DEPTH_TO_SPACE": (2, 29), "SPACE_TO_DEPTH": (2, 29),
    "L2_NORMALIZATION": (1, 29), "L2_POOL_2D": (7, 29), "DEPTHWISE_CONV_2D": (8, 29), "RESIZE_BILINEAR": (3, 30),
    "RESIZE_NEAREST_NEIGHBOR": (4, 30),
}  # fmt: skip
"""Operation -> how many inputs it has at its first level, and the level that has more."""


def level_of(case: Case) -> int:
    """The feature level whose public interface takes the case.

    A case's own level is what the drivers see: NNAPI's runtime drops arguments at the end that have their default values.
    """
    level = LEVELS[case["level"]]
    for operation in case["operations"]:
        few, since = _OPTIONAL_FROM.get(operation["op"], (99, 0))
        if len(operation["inputs"]) > few:
            level = max(level, since)
    return level


def run_case(case: Case, level: int | None = None) -> list[np.ndarray]:
    """The outputs that a device of the case's feature level gives."""
    level = level or level_of(case)
    call = Caller(SimulatedLibrary(level, [Device(level=level, narrow=False)]))
    model = call.made("Model_create")
    arrays = [_array(o) for o in case["operands"]]
    for i, (operand, array) in enumerate(zip(case["operands"], arrays, strict=True)):
        _add(call, model, i, operand, array)
    for operation in case["operations"]:
        read, written = operation["inputs"], operation["outputs"]
        call("Model_addOperation", model, CODES[operation["op"]], len(read), call.numbers(read), len(written),
             call.numbers(written))  # fmt: skip
    inputs, outputs = case["inputs"], case["outputs"]
    call("Model_identifyInputsAndOutputs", model, len(inputs), call.numbers(inputs), len(outputs), call.numbers(outputs))
    call("Model_finish", model)
    compilation = call.made("Compilation_create", model)
    call("Compilation_finish", compilation)
    return _executed(call, compilation, case, arrays)


def _executed(call: Caller, compilation: ctypes.c_void_p, case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    execution = call.made("Execution_create", compilation)
    for at, i in enumerate(case["inputs"]):
        omitted = _omitted(case["operands"][i])
        address = None if omitted else arrays[i].ctypes.data
        call("Execution_setInput", execution, at, None, address, 0 if omitted else arrays[i].nbytes)
    results = []
    for at, i in enumerate(case["outputs"]):
        results.append(np.zeros_like(arrays[i]))
        place = results[-1]
        address = place.ctypes.data if place.nbytes else ctypes.addressof(ctypes.create_string_buffer(1))
        call("Execution_setOutput", execution, at, None, address, place.nbytes)
    if hasattr(call.library, "ANeuralNetworksExecution_compute"):
        call("Execution_compute", execution)
    else:
        call("Event_wait", call.made("Execution_startCompute", execution))
    return results


def _omitted(operand: dict[str, Any]) -> bool:
    """An optional operand without a value: no numbers, though its dimensions say that there are some."""
    return not operand["values"] and (0 not in operand["dims"] or operand["dims"] in ([0], [0, 0]))


def _array(operand: dict[str, Any]) -> np.ndarray:
    kind = kinds.NUMPY[_LEVEL_TYPES[operand["type"]]]
    values = operand["values"]
    if kind in (np.float32, np.float16):
        found = np.array(values, np.float64).astype(kind)
    else:
        found = np.array(values, np.int64).astype(kind)
    return found.reshape(operand["dims"]) if values else np.zeros(0, kind)


def _add(call: Caller, model: ctypes.c_void_p, i: int, operand: dict[str, Any], array: np.ndarray) -> None:
    dims = operand["dims"]
    shape = (ctypes.c_uint32 * len(dims))(*dims)
    kind = OperandType(_LEVEL_TYPES[operand["type"]], len(dims), shape, operand.get("scale", 0.0), operand.get("zero_point", 0))
    call("Model_addOperand", model, ctypes.addressof(kind))
    if "channel_scales" in operand:
        scales = operand["channel_scales"]
        given = ChannelScales(operand["channel_dim"], len(scales), (ctypes.c_float * len(scales))(*scales))
        call("Model_setOperandSymmPerChannelQuantParams", model, i, ctypes.addressof(given))
    if operand["lifetime"].startswith("CONSTANT"):
        call("Model_setOperandValue", model, i, array.ctypes.data, array.nbytes)
    elif operand["lifetime"] == "NO_VALUE":
        call("Model_setOperandValue", model, i, None, 0)


def difference(case: Case, found: list[np.ndarray]) -> str:
    """Where the results are not what is expected, within the tolerances of Android's own tests."""
    for i, result in zip(case["outputs"], found, strict=True):
        operand = case["operands"][i]
        if operand.get("ignored"):
            continue
        expected = _array(operand)
        if result.dtype == np.bool_ or (result.dtype == np.int32):
            bad = result != expected
        elif result.dtype.kind == "f":
            relative, absolute = _tolerance(result.dtype, case["relaxed"])
            r, e = result.astype(np.float64), expected.astype(np.float64)
            bad = ~((np.abs(r - e) <= absolute + relative * np.abs(e)) | (r == e) | (np.isnan(r) & np.isnan(e)))
        else:
            bad = np.abs(result.astype(int) - expected.astype(int)) > 1
        if bad.any():
            at = tuple(int(a[0]) for a in np.nonzero(bad))
            return f"output {i} at {list(at)}: expected {expected[at]}, got {result[at]}; {int(bad.sum())} of {bad.size}"
    return ""


def _tolerance(kind: Any, relaxed: bool) -> tuple[float, float]:
    half = 5 * 2.0**-10
    return (half, half) if relaxed or kind == np.float16 else (5 * 2.0**-23, 1e-5)
