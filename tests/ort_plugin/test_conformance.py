"""ONNX's backend cases through onnxruntime with IntarsiaCPU in front: whatever it takes, results are right.

A case that onnxruntime alone runs rightly has to be right with the plugin, in runs by Python and in native ones. One that it
does not run, or not rightly, may be better with the plugin, and else is as it was.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from backend_cases import cases, check, model_and_data
from plugin_sessions import Sessions

from intarsia.graph.dtypes import DType
from intarsia.graph.formats.tensor_proto import unpack_bits

SAMPLE = 24  # every so many-th case belongs to the sample
RUNS = 3


def parameters() -> list[Any]:
    sampled = {name for name in cases() if zlib.crc32(name.encode()) % SAMPLE == 0}
    return [pytest.param(name, marks=[] if name in sampled else [pytest.mark.conformance], id=name) for name in cases()]


@pytest.mark.parametrize("name", parameters())
def test_case(sessions: Sessions, name: str) -> None:
    model, sets = model_and_data(name)
    source = model.SerializeToString()
    alone = outcome(lambda: sessions.alone(source), model, sets, name, 1)
    ours = outcome(lambda: sessions.make(source, {"take_all": "1"}), model, sets, name, RUNS)
    if alone == "":
        assert ours == ""
    elif ours:
        assert kind(ours) == kind(alone)


def outcome(make: Any, model: onnx.ModelProto, sets: Sequence[Any], name: str, runs: int) -> str:
    """What is wrong with a session's results; "" where nothing is."""
    try:
        session = make()
        for given, wanted in sets:
            feed = {v.name: fed(x) for v, x in zip(model.graph.input, given, strict=False) if x is not None}
            for _ in range(runs):
                for actual, expected in zip(results(session, model, feed), wanted, strict=True):
                    check(cases()[name], actual, expected)
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:  # noqa: BLE001 # onnxruntime's have no base of their own
        return f"{type(error).__name__}: {error}"
    return ""


def kind(outcome: str) -> str:
    return outcome.partition(":")[0]


def fed(value: Any) -> Any:
    """An input as onnxruntime takes it: types that NumPy has not are OrtValues."""
    import onnxruntime

    if isinstance(value, list):
        return value
    dtype = DType.of(value.dtype)
    if dtype.numpy.isbuiltin == 1 or dtype is DType.STRING:
        return np.array(value, order="C")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array(value, order="C"), int(dtype))


def results(session: Any, model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    """The outputs; tensors of types that NumPy has not by their bytes."""
    names = [v.name for v in model.graph.output]
    if all(v.type.WhichOneof("value") != "tensor_type" or numpy_has(v) for v in model.graph.output):
        return list(session.run(names, feed))
    values = session.run_with_ort_values(names, {name: as_value(x) for name, x in feed.items()})
    return [array_of(x) for x in values]


def numpy_has(value: onnx.ValueInfoProto) -> bool:
    return DType(value.type.tensor_type.elem_type).numpy.isbuiltin == 1


def as_value(x: Any) -> Any:
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(x) if isinstance(x, np.ndarray) else x


def array_of(value: Any) -> np.ndarray:
    dtype, nbytes = DType(value.element_type()), value.tensor_size_in_bytes()
    data = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(value.data_ptr()), np.uint8).copy()
    shape = value.shape()
    return (
        unpack_bits(data, dtype, math.prod(shape)).reshape(shape) if dtype.bits % 8 else data.view(dtype.numpy).reshape(shape)
    )
