"""cuDNN itself, asked what it would do on an H200, without a GPU: python real_cudnn.py, prints JSON.

cuDNN plans ahead of time for a device that is described to it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). It loads
libcuda.so.1 all the same: the test puts a stand-in without any GPU in its place, so that engines that are compiled when they
are planned get as far as loading their machine code.
"""

from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_void_p
from typing import Any

from intarsia.codegen.clike.vendor_libraries.calls import Attention, Convolution
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.device import cublaslt, cudnn, cudnn_calls
from intarsia.device.cudnn import A, Cudnn, Descriptor, Heuristic, Kind, T
from intarsia.device.libraries import NotOfferedError
from intarsia.device.nvidia_libraries import load
from intarsia.graph.dtypes import DType

DEVICEPROP, DEVICEPROP_JSON, CHAR = 38, 2702, 24
HEURISTICS_DEVICEPROP, PLAN_DEVICEPROP = 204, 407
H200 = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 232448, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
    "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144,
    "l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
    "totalGlobalMem": 150754820096, "cudaDeviceId": 0,
}  # fmt: skip


class Deviceless:
    """The library without a handle, and the device that is described to it."""

    def __init__(self) -> None:
        load(cublaslt.WANTED, cublaslt.SIGNATURES, 13)  # of which some engines are made
        self.dnn: Any = object.__new__(Cudnn)
        self.dnn.library, self.dnn.handle = load(cudnn.WANTED, cudnn.SIGNATURES, 13), c_void_p()
        self.device, text = c_void_p(), json.dumps(H200).encode()
        library = self.dnn.library
        self._check(library.cudnnBackendCreateDescriptor(DEVICEPROP, byref(self.device)))
        self._check(library.cudnnBackendSetAttribute(self.device, DEVICEPROP_JSON, CHAR, len(text), text))
        self._check(library.cudnnBackendFinalize(self.device))

    def _check(self, error: int) -> None:
        if error:
            raise NotOfferedError(self.dnn.message(error))

    def _targeted(self, one: Descriptor, attribute: int) -> None:
        array = (c_void_p * 1)(self.device.value)
        self._check(self.dnn.library.cudnnBackendSetAttribute(one.pointer, attribute, 15, 1, array))
        one.finalize()

    def plans(self, operations: Any, most: int) -> list[dict[str, Any]]:
        """What becomes of the best engine configurations: scratch and notes, or why it is none."""
        graph = operations.graph()
        heuristics = self.dnn.made(Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, False,
                                   ENGINEHEUR_OPERATION_GRAPH=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, graph),
                                   ENGINEHEUR_MODE=(T.CUDNN_TYPE_HEUR_MODE, Heuristic.CUDNN_HEUR_MODE_A))  # fmt: skip
        self._targeted(heuristics, HEURISTICS_DEVICEPROP)
        count = heuristics.count(A.CUDNN_ATTR_ENGINEHEUR_RESULTS, T.CUDNN_TYPE_BACKEND_DESCRIPTOR)
        kind, found = Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, []
        for configuration in heuristics.descriptors(A.CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, count)[:most]:
            try:
                plan = self.dnn.made(Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, False,
                                     EXECUTION_PLAN_ENGINE_CONFIG=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, configuration))  # fmt: skip
                self._targeted(plan, PLAN_DEVICEPROP)
                nbytes = plan.number(A.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, T.CUDNN_TYPE_INT64)
                found.append({"workspace": nbytes, "notes": sorted(cudnn.notes_of(configuration))})
            except NotOfferedError as error:
                found.append({"error": str(error)})
        return found


def image(dtype: DType, last: bool, bias: bool, addend: bool, activation: str) -> Convolution:
    shape, axis = (8, 64, 28, 28), 1 if last else -1
    packed = View.packed(dtype, shape, axis)
    vector = View.packed(dtype, (1, 64, 1, 1), axis)
    return Convolution(
        packed, View.packed(dtype, (64, 64, 3, 3), axis), packed, (1, 1), (1, 1), (1, 1), (1, 1), vector if bias else None,
        packed if addend else None, activation,
    )  # fmt: skip


def heads(
    dtype: DType, queries: int = 256, keys: int = 256, groups: int = 12, size: int = 64, bias: tuple[int, ...] = (),
    lengths: bool = False, places: bool = False, right: int | None = None, left: int | None = None,
) -> Attention:  # fmt: skip
    """Two texts, twelve heads; `bias`: its first three axes."""

    def view(length: int, many: int) -> View:
        order = View.packed(dtype, (2, length, many, size)).strides
        return View(dtype, (2, many, length, size), tuple(order[i] for i in (0, 2, 1, 3)))

    numbers = View.packed(DType.INT32, (2, 1, 1, 1))
    given = View.packed(DType.FLOAT, (*bias, keys)) if bias else None
    return Attention(
        view(queries, 12), view(keys, groups), view(keys, groups), view(queries, 12), 0.125, given,
        numbers if lengths else None,
        numbers if places else None, numbers if lengths or places else None, right, left,
    )  # fmt: skip


ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {}, "grouped": {"groups": 4}, "causal": {"right": 0}, "after a past": {"keys": 500, "right": 244},
    "windows": {"right": 3, "left": 7}, "left alone": {"left": 5, "right": None}, "padding": {"bias": (2, 1, 1)},
    "bias of heads": {"bias": (2, 12, 256)}, "bias of odd sizes": {"queries": 77, "keys": 333, "bias": (1, 1, 77)},
    "lengths": {"lengths": True}, "a cache": {"groups": 4, "lengths": True, "places": True, "right": 0},
    "a window of a cache": {"groups": 4, "lengths": True, "places": True, "right": 0, "left": 31},
    "all": {"groups": 4, "lengths": True, "places": True, "right": 0, "left": 31, "bias": (1, 1, 256)},
    "one query": {"queries": 1, "keys": 512, "groups": 4, "lengths": True, "places": True, "right": 0},
    "one query and padding": {"queries": 1, "keys": 512, "bias": (2, 1, 1)}, "heads of 128": {"size": 128, "right": 0},
    "heads of 40": {"size": 40, "bias": (1, 1, 256)},
}  # fmt: skip
"""Calls that `attention` makes."""


def main() -> None:
    real, answers = Deviceless(), {}
    for dtype in (DType.FLOAT16, DType.FLOAT, DType.BFLOAT16):
        for last in (False, True):
            for bias, addend, activation in (
                (False, False, ""),
                (True, False, ""),
                (True, False, "relu"),
                (True, True, "relu"),
            ):
                call = image(dtype, last, bias, addend, activation)
                key = f"{dtype.onnx_name} {'last' if last else 'first'} {bias:d}{addend:d}{activation}"
                answers[key] = real.plans(cudnn_calls.convolution_graph(real.dnn, call)[0], 2)
        for name, given in ATTENTION.items() if dtype is not DType.FLOAT else ():
            graph = cudnn_calls.attention_graph(real.dnn, heads(dtype, **given))[0]
            answers[f"attention {name} {dtype.onnx_name}"] = real.plans(graph, 1)
    wrong = image(DType.FLOAT, False, False, False, "")
    try:
        ops = cudnn_calls.convolution_graph(
            real.dnn, Convolution(wrong.x, wrong.w, wrong.result, (0, 0), (1, 1), (1, 1), (1, 1))
        )
        answers["wrong"] = [{"accepted": len(ops)}]
    except NotOfferedError as error:
        answers["wrong"] = [{"error": str(error)}]
    pack = real.dnn.made(
        Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, VARIANT_PACK_UNIQUE_IDS=(T.CUDNN_TYPE_INT64, [1, 2]),
        VARIANT_PACK_DATA_POINTERS=(T.CUDNN_TYPE_VOID_PTR, [256, ctypes.addressof(ctypes.c_float())]),
        VARIANT_PACK_WORKSPACE=(T.CUDNN_TYPE_VOID_PTR, None),
    )  # fmt: skip
    answers["pack"] = [{"made": bool(pack.pointer)}]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
