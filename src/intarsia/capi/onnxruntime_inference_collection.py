"""What programs import from onnxruntime's module of this name: classes, and `check_and_normalize_provider_args`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.errors import InvalidArgument
from intarsia.session.inference_session import InferenceSession
from intarsia.session.io_binding import IOBinding
from intarsia.session.model_compiler import ModelCompiler
from intarsia.values.lora import AdapterFormat
from intarsia.values.ort_device import OrtDevice, check_device_type
from intarsia.values.ort_value import OrtValue, copy_tensors
from intarsia.values.sparse_tensor import SparseTensor

Session = InferenceSession

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
    "get_ort_device_type",
]


def get_ort_device_type(device_type: str, device_id: int = 0) -> int:
    """The number of a kind of device: 0 CPU, 1 GPU, 3 NPU.

    Raises:
        InvalidArgument: no such kind.
    """
    return OrtDevice.make(check_device_type(device_type), device_id).device_type()


def check_and_normalize_provider_args(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Names and options of providers, given in either form, as two lists; keys and values of options become text.

    A name that is not available gives a warning and stays where the runtime does not know it, else it is dropped; a name
    given twice gives a warning, the first counts.

    Raises:
        InvalidArgument: lists of different lengths, options in both forms, or entries of other types.
    """
    if providers is None:
        return [], []
    found: dict[str, dict[str, str]] = {}

    def add(name: str, options: Mapping[Any, Any]) -> None:
        if name not in available_provider_names:
            shown = ", ".join(repr(n) for n in available_provider_names)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{shown}'", stacklevel=3
            )
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=3)
            return
        found[name] = {str(key): str(value) for key, value in options.items()}

    if not isinstance(providers, Sequence) or isinstance(providers, (str, bytes)):
        raise InvalidArgument(f"'providers' should be a sequence, got {providers!r}")
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise InvalidArgument(f"'provider_options' should be a sequence, got {provider_options!r}")
        if len(providers) != len(provider_options):
            raise InvalidArgument("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(name, str) for name in providers):
            raise InvalidArgument("Only string values for 'providers' are supported if 'provider_options' is given.")
        if not all(isinstance(options, dict) for options in provider_options):
            raise InvalidArgument("'provider_options' values must be dicts.")
        for name, options in zip(providers, provider_options, strict=True):
            add(name, options)
        return list(found), list(found.values())
    for entry in providers:
        if isinstance(entry, str):
            add(entry, {})
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict):
            add(*entry)
        else:
            raise InvalidArgument("'providers' values must be either strings or (string, dict) tuples.")
    return list(found), list(found.values())
