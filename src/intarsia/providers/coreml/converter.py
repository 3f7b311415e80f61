"""The package coremltools, which writes Core ML's packages on any system."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from intarsia.errors import EPFail
from intarsia.machine import fork_safety

SUPPORTED = "9.0"
"""The version of coremltools whose inner interfaces (MIL's passes, the writer of packages) are used here."""
_lock = fork_safety.recursive_lock()


def missing_converter() -> str:
    """Why packages cannot be written here; "" where they can."""
    from importlib.metadata import PackageNotFoundError, version

    if importlib.util.find_spec("coremltools") is None:
        return "the Python package coremltools is not installed: pip install 'intarsia[coreml]'"
    try:
        found = version("coremltools")
    except PackageNotFoundError:
        found = "of unknown version"
    if found != SUPPORTED:
        return f"coremltools {found} is installed, and Intarsia writes packages by {SUPPORTED}: pip install 'intarsia[coreml]'"
    return ""


@cache
def tools() -> Any:
    """The module coremltools, whose remarks about other packages and other systems are kept from the log.

    Raises:
        EPFail: it is not there, or cannot be imported.
    """
    if why := missing_converter():
        raise EPFail(f"Core ML's packages cannot be written: {why}")
    with _lock, warnings.catch_warnings(), _quiet(logging.getLogger("coremltools")):
        warnings.simplefilter("ignore")
        try:
            import coremltools
        except Exception as error:
            raise EPFail(f"coremltools cannot be imported: {type(error).__name__}: {error}") from error
    return coremltools


@contextmanager
def quiet() -> Iterator[None]:
    """Without coremltools' remarks and NumPy's warnings of overflow in what it folds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), _quiet(logging.getLogger("coremltools")):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
