"""OrtApi and OrtEpApi: functions of onnxruntime that the plugin calls, by their names, and statuses.

Where a function stands in its table, and what it takes, are facts of onnxruntime's public headers (onnxruntime_c_api.h,
onnxruntime_ep_c_api.h): tables only grow at their ends, so a place is the same in all versions that have it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from intarsia import errors
from intarsia.errors import EPFail

VERSION = 24
"""The version of the interface that the plugin is written for: onnxruntime 1.24 and all later ones offer it."""

API_PLACES: Mapping[str, int] = {
    "CreateStatus": 0, "GetErrorMessage": 2, "GetTensorMutableData": 51, "CastTypeInfoToTensorInfo": 55,
    "GetOnnxTypeFromTypeInfo": 56, "GetTensorElementType": 60, "GetDimensionsCount": 61, "GetDimensions": 62,
    "GetSymbolicDimensions": 63, "KernelContext_GetInput": 90, "KernelContext_GetOutput": 91, "ReleaseStatus": 93,
    "ReleaseValue": 96, "ReadOpAttr": 272, "KernelContext_ParallelFor": 274, "GetValueInfoName": 289,
    "GetValueInfoTypeInfo": 290, "GetKeyValuePairs": 298, "ReleaseKeyValuePairs": 300, "HardwareDevice_Type": 307,
    "GetEpApi": 317, "ValueInfo_GetInitializerValue": 326, "ValueInfo_GetExternalInitializerInfo": 327,
    "ValueInfo_IsConstantInitializer": 331, "Graph_GetName": 333, "Graph_GetOnnxIRVersion": 335,
    "Graph_GetNumOperatorSets": 336, "Graph_GetOperatorSets": 337, "Graph_GetNumInputs": 338, "Graph_GetInputs": 339,
    "Graph_GetNumOutputs": 340, "Graph_GetOutputs": 341, "Graph_GetNumInitializers": 342, "Graph_GetInitializers": 343,
    "Graph_GetNumNodes": 344, "Graph_GetNodes": 345, "Graph_GetParentNode": 346, "Node_GetName": 349,
    "Node_GetOperatorType": 350, "Node_GetDomain": 351, "Node_GetSinceVersion": 352, "Node_GetNumInputs": 353,
    "Node_GetInputs": 354, "Node_GetNumOutputs": 355, "Node_GetOutputs": 356, "Node_GetNumImplicitInputs": 357,
    "Node_GetImplicitInputs": 358, "Node_GetNumAttributes": 359, "Node_GetAttributes": 360,
    "OpAttr_GetTensorAttributeAsOrtValue": 362, "OpAttr_GetType": 363, "OpAttr_GetName": 364, "Node_GetNumSubgraphs": 365,
    "Node_GetSubgraphs": 366, "ReleaseExternalInitializerInfo": 369, "ExternalInitializerInfo_GetFilePath": 370,
    "ExternalInitializerInfo_GetFileOffset": 371, "ExternalInitializerInfo_GetByteSize": 372,
    "GetSessionOptionsConfigEntries": 379, "TensorTypeAndShape_HasShape": 390,
    "GetTensorElementTypeAndShapeDataReference": 414,
}  # fmt: skip
EP_PLACES: Mapping[str, int] = {"CreateEpDevice": 0, "EpGraphSupportInfo_AddNodesToFuse": 2}

FACTORY = (
    "ort_version_supported", "GetName", "GetVendor", "GetSupportedDevices", "CreateEp", "ReleaseEp", "GetVendorId",
    "GetVersion", "ValidateCompiledModelCompatibilityInfo", "CreateAllocator", "ReleaseAllocator", "CreateDataTransfer",
    "IsStreamAware",
    "CreateSyncStreamForDevice",
)  # fmt: skip
PROVIDER = (
    "ort_version_supported", "GetName", "GetCapability", "Compile", "ReleaseNodeComputeInfos", "GetPreferredDataLayout",
    "ShouldConvertDataLayoutForOp", "SetDynamicOptions", "OnRunStart", "OnRunEnd", "CreateAllocator",
    "CreateSyncStreamForDevice", "GetCompiledModelCompatibilityInfo", "GetKernelRegistry", "IsConcurrentRunSupported",
)  # fmt: skip
COMPUTE_INFO = ("ort_version_supported", "CreateState", "Compute", "ReleaseState")
"""Fields of the structures that a plugin gives, each 8 bytes, in their order up to the last that a plugin of version 24 has."""
_SPARE = 24  # words that later versions have behind these

FAIL, INVALID_ARGUMENT, NO_SUCH_FILE, NOT_IMPLEMENTED, INVALID_GRAPH, EP_FAIL = 1, 2, 3, 9, 10, 11
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (EPFail, EP_FAIL),
    (errors.InvalidGraph, INVALID_GRAPH),
    (errors.NotImplemented, NOT_IMPLEMENTED),
    (errors.InvalidArgument, INVALID_ARGUMENT),
    (errors.NoSuchFile, NO_SUCH_FILE),
)
TENSOR = 1  # of ONNXType
_MOST_ARGUMENTS = 5

_FUNCTIONS = [ctypes.PYFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * n) for n in range(_MOST_ARGUMENTS + 1)]
"""Kinds of functions by how many words they take: none calls back, so that the GIL stays where it is."""


class OrtApi:
    """The functions of one onnxruntime.

    Attributes:
        places: addresses of all functions in `API_PLACES` and `EP_PLACES`, by name.
    """

    def __init__(self, base: int) -> None:
        """`base`: the address of OrtApiBase.

        Raises:
            EPFail: this onnxruntime is older than 1.24.
        """
        get, version = (ctypes.c_uint64 * 2).from_address(base)
        table = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get)(VERSION)
        if not table:
            found = ctypes.PYFUNCTYPE(ctypes.c_char_p)(version)() or b""
            raise EPFail(f"IntarsiaCPU needs onnxruntime 1.{VERSION} or newer; this is {found.decode()}")
        self.places = _read(table, API_PLACES)
        ep_api = _FUNCTIONS[0](self.places["GetEpApi"])()
        self.places |= _read(ep_api, EP_PLACES)
        self._functions: dict[tuple[str, int], Any] = {}

    def word(self, name: str, *arguments: Any) -> int:
        """What a function returns, as a word."""
        function = self._functions.get((name, len(arguments)))
        if function is None:
            function = self._functions[name, len(arguments)] = _FUNCTIONS[len(arguments)](self.places[name])
        return function(*arguments) or 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            EPFail: the status is an error; with onnxruntime's words.
        """
        status = self.word(name, *arguments)
        if status:
            message = ctypes.string_at(self.word("GetErrorMessage", status)).decode(errors="replace")
            self.word("ReleaseStatus", status)
            raise EPFail(f"onnxruntime's {name}: {message}")

    def get(self, name: str, *arguments: Any) -> int:
        """What a function puts where its last argument points, as a word (numbers are not negative)."""
        out = ctypes.c_uint64()
        self.call(name, *arguments, ctypes.byref(out))
        return out.value

    def text(self, name: str, *arguments: Any) -> str:
        """The same, where that is the address of a text."""
        address = self.get(name, *arguments)
        return ctypes.string_at(address).decode() if address else ""

    def items(self, count: str, name: str, handle: int) -> list[int]:
        """All items of a handle: `count` is the function that counts them, `name` the one that gives them."""
        many = self.get(count, handle)
        found = (ctypes.c_uint64 * many)()
        if many:
            self.call(name, handle, found, many)
        return list(found)

    def status(self, error: BaseException) -> int:
        """A new status for an error, with its words."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), FAIL)
        text = str(error) if isinstance(error, errors.IntarsiaError) else f"{type(error).__name__}: {error}"
        return self.word("CreateStatus", code, f"IntarsiaCPU: {text}".encode())


def early_status(base: int, error: BaseException) -> int:
    """A status for an error where the tables are not known: by the first function of OrtApi, which every version has."""
    get = ctypes.c_uint64.from_address(base).value
    table = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get)(1)
    create = _FUNCTIONS[2](ctypes.c_uint64.from_address(table).value)
    return create(EP_FAIL, f"IntarsiaCPU: {error}".encode()) or 0


def structure(fields: tuple[str, ...], functions: Mapping[str, int]) -> ctypes.Array[ctypes.c_uint64]:
    """A structure of functions as onnxruntime reads it: those that are not given are 0."""
    words = (ctypes.c_uint64 * (len(fields) + _SPARE))()
    words[0] = VERSION
    for i, name in enumerate(fields[1:], 1):
        words[i] = functions.get(name, 0)
    return words


def _read(table: int, places: Mapping[str, int]) -> dict[str, int]:
    words = (ctypes.c_uint64 * (max(places.values()) + 1)).from_address(table)
    return {name: words[place] for name, place in places.items()}
