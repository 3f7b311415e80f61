"""Intarsia runs ONNX models on whatever hardware is there, with onnxruntime's Python API.

    import intarsia as ort
    session = ort.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

Importing this package loads what a session needs that begins from the cache; every other name, the compiler and onnx are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.session import InferenceSession as InferenceSession

__version__ = "0.1.0"

if TYPE_CHECKING:
    from intarsia.binding import IOBinding as IOBinding
    from intarsia.check import ModelCheck as ModelCheck
    from intarsia.check import check_model as check_model
    from intarsia.device_info import get_device as get_device
    from intarsia.enums import ExecutionMode as ExecutionMode
    from intarsia.enums import ExecutionOrder as ExecutionOrder
    from intarsia.enums import GraphOptimizationLevel as GraphOptimizationLevel
    from intarsia.errors import DeviceLost as DeviceLost
    from intarsia.errors import EPFail as EPFail
    from intarsia.errors import ExternalDataError as ExternalDataError
    from intarsia.errors import Fail as Fail
    from intarsia.errors import IntarsiaError as IntarsiaError
    from intarsia.errors import InvalidArgument as InvalidArgument
    from intarsia.errors import InvalidGraph as InvalidGraph
    from intarsia.errors import InvalidModelError as InvalidModelError
    from intarsia.errors import InvalidProtobuf as InvalidProtobuf
    from intarsia.errors import NoSuchFile as NoSuchFile
    from intarsia.errors import NotImplemented as NotImplemented
    from intarsia.errors import OutOfMemory as OutOfMemory
    from intarsia.errors import UnknownOption as UnknownOption
    from intarsia.explain import Explanation as Explanation
    from intarsia.log import set_default_logger_severity as set_default_logger_severity
    from intarsia.log import set_default_logger_verbosity as set_default_logger_verbosity
    from intarsia.operators.library import OperatorLibrary as OperatorLibrary
    from intarsia.operators.library import host_op as host_op
    from intarsia.operators.library import op as op
    from intarsia.operators.library import unregister_operator as unregister_operator
    from intarsia.options import RunOptions as RunOptions
    from intarsia.options import SessionOptions as SessionOptions
    from intarsia.partition.provider import ExecutionProvider as ExecutionProvider
    from intarsia.partition.provider import Support as Support
    from intarsia.providers.fallback import ProviderWarning as ProviderWarning
    from intarsia.providers.fallback import set_provider_fallback as set_provider_fallback
    from intarsia.providers.registry import get_all_providers as get_all_providers
    from intarsia.providers.registry import get_available_providers as get_available_providers
    from intarsia.providers.registry import register_execution_provider as register_execution_provider
    from intarsia.providers.registry import unregister_execution_provider as unregister_execution_provider
    from intarsia.signature import ModelMetadata as ModelMetadata
    from intarsia.signature import NodeArg as NodeArg
    from intarsia.values import OrtValue as OrtValue

_ERRORS = (
    "DeviceLost", "EPFail", "ExternalDataError", "Fail", "IntarsiaError", "InvalidArgument", "InvalidGraph",
    "InvalidModelError", "InvalidProtobuf", "NoSuchFile", "NotImplemented", "OutOfMemory", "UnknownOption",
)  # fmt: skip

_WHERE: dict[str, str] = {
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel"), "enums"),
    **dict.fromkeys(("ModelCheck", "check_model"), "check"),
    **dict.fromkeys(("OperatorLibrary", "host_op", "op", "unregister_operator"), "operators.library"),
    **dict.fromkeys(("RunOptions", "SessionOptions"), "options"),
    **dict.fromkeys(("ModelMetadata", "NodeArg"), "signature"),
    **dict.fromkeys(("set_default_logger_severity", "set_default_logger_verbosity"), "log"),
    **dict.fromkeys(("ExecutionProvider", "Support"), "partition.provider"),
    **dict.fromkeys(
        (
            "get_all_providers", "get_available_providers", "register_execution_provider",
            "unregister_execution_provider",
        ),
        "providers.registry",
    ),
    "ProviderWarning": "providers.fallback",
    "set_provider_fallback": "providers.fallback",
    "Explanation": "explain",
    "IOBinding": "binding",
    "OrtValue": "values",
    "get_device": "device_info",
}  # fmt: skip

__all__ = [*_WHERE, "InferenceSession", "__version__"]  # noqa: PLE0604 # names are listed once, in _WHERE


def __getattr__(name: str) -> Any:
    if name == "SessionIOBinding":
        name = "IOBinding"
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'intarsia' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"intarsia.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


def get_version_string() -> str:
    """The version of this package."""
    return __version__
