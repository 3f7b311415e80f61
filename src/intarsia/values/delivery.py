"""Results as tensors of the library that the caller works with (PyTorch, JAX, CuPy, TensorFlow), or as OrtValues."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument, nearest
from intarsia.values.ort_value import OrtValue

FRAMEWORKS = ("numpy", "torch", "jax", "cupy", "tensorflow", "ortvalue")


def delivered(results: Sequence[Any], framework: str) -> list[Any]:
    """Results as tensors of the named library, on the same memory where it takes DLPack.

    Raises:
        InvalidArgument: not one of `FRAMEWORKS`, or a library that cannot be imported.
    """
    if framework == "numpy":
        return list(results)
    if framework not in FRAMEWORKS:
        raise InvalidArgument(f"framework: {framework!r} is not known; {nearest(str(framework), FRAMEWORKS)}")
    if framework == "ortvalue":
        return [OrtValue(r) for r in results]
    convert = _converter(framework)
    return [_converted(r, convert) for r in results]


def _converted(result: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(result, list):
        return [_converted(element, convert) for element in result]
    if isinstance(result, dict) or result is None or (isinstance(result, np.ndarray) and result.dtype == object):
        return result
    return convert(result)


def _converter(framework: str) -> Callable[[Any], Any]:
    name = {"jax": "jax.dlpack", "tensorflow": "tensorflow.experimental.dlpack"}.get(framework, framework)
    try:
        module = sys.modules.get(name) or importlib.import_module(name)
    except ImportError as error:
        raise InvalidArgument(f"framework={framework!r}: {error}; install it or choose 'numpy'") from error
    if framework == "cupy":
        convert: Callable[[Any], Any] = module.asarray
        return convert
    if framework == "tensorflow":
        return lambda array: module.from_dlpack(OrtValue(array).to_dlpack())
    return lambda array: module.from_dlpack(OrtValue(array))
