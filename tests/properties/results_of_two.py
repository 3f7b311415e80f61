"""Results of two providers for one model, compared: kinds, types, shapes and elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from damaged import fields_of_message
from onnx import TensorProto, numpy_helper

from intarsia import SparseTensor

MODERATE = 1e4  # beyond, or below its inverse, float32 may overflow on one way to a result and not on another
OF_SCALE = {2: 0.03, 4: 2e-3, 8: 2e-3}  # by bytes of an element: what rounding explains, of the largest element
BYTES_OFF = 1  # integers of rounded floats may be neighbours


def has_moderate_numbers(given: bytes | dict[str, Any]) -> bool:
    """Whether all floating-point numbers of a model, or of feeds, are finite, and neither very large nor very small."""
    return all(_moderate(x) for x in (_of_feeds(given) if isinstance(given, dict) else _of_model(given)))


def _moderate(x: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        sizes = np.abs(x.astype(np.float64))
    return bool(((sizes <= MODERATE) & ((sizes >= 1 / MODERATE) | (sizes == 0))).all())


def _of_feeds(feeds: dict[str, Any]) -> Iterator[np.ndarray]:
    for value in feeds.values():
        for x in value if isinstance(value, list) else [value]:
            if not isinstance(x, np.ndarray):
                if isinstance(x, (float, int)):
                    yield np.array(float(x))
            elif x.dtype.kind in "fcV" and x.dtype.names is None:
                yield np.abs(x) if x.dtype.kind == "c" else x


def _of_model(data: bytes) -> Iterator[np.ndarray]:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # noqa: BLE001 (what protobuf does not read, in several ways, has any numbers)
        yield np.array(np.nan)
        return
    for message, field, _ in fields_of_message(model):
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            values = getattr(message, field.name)
            yield np.array(values if field.is_repeated else [values], np.float64)
        elif isinstance(message, TensorProto) and field.name == "raw_data":
            try:
                x = numpy_helper.to_array(message)
            except (ValueError, TypeError, KeyError, MemoryError, OverflowError):
                yield np.array(np.nan)
                continue
            if x.dtype.kind in "fV":
                yield x


def difference(a: Any, b: Any, exact: bool) -> str:
    """How a result is another than the reference's; "" where rounding explains it.

    `exact`: the model's numbers are moderate. Without, elements that are not finite may be others, and those that are be off by
    a part of the largest.
    """
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return f"{len(a)} elements, of the reference {len(b)}"
        differences = (difference(x, y, exact) for x, y in zip(a, b, strict=True))
        return next((f"[{i}] {what}" for i, what in enumerate(differences) if what), "")
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"keys {list(a)[:5]}, of the reference {list(b)[:5]}"
        return difference(list(a.values()), list(b.values()), exact)
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return difference(a.to_dense(), b.to_dense(), exact)
    if isinstance(a, (float, np.floating)) and isinstance(b, (float, np.floating)):
        return difference(np.array(a), np.array(b), exact)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return "" if type(a) is type(b) and (a == b or not exact) else f"{a!r}, of the reference {b!r}"[:200]
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype}{list(a.shape)}, of the reference {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "OSU":
        return "" if bool((a == b).all()) else f"{a.tolist()!r}, of the reference {b.tolist()!r}"[:200]
    if a.dtype.kind == "b":
        return "" if not exact or bool((a == b).all()) else "other truth values"
    return _numbers(a, b, exact)


def _numbers(a: np.ndarray, b: np.ndarray, exact: bool) -> str:
    if a.dtype.kind == "c":
        return _numbers(a.view(a.real.dtype), b.view(b.real.dtype), exact)
    x, y = a.astype(np.float64), b.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    whole = a.dtype.kind in "iu" or (a.dtype.kind == "V" and "int" in a.dtype.name)
    if not whole and exact and (~both & ~((np.isnan(x) & np.isnan(y)) | (x == y))).any():
        at = int(np.argmax((~both & ~((np.isnan(x) & np.isnan(y)) | (x == y))).reshape(-1)))
        return f"{x.reshape(-1)[at]:g}, of the reference {y.reshape(-1)[at]:g}"
    scale = float(np.abs(y[both]).max(initial=0.0))
    worst = float(np.abs(x[both] - y[both]).max(initial=0.0))
    if whole:
        allowed = BYTES_OFF if exact else max(BYTES_OFF, 0.02 * scale)
    elif exact:
        part = OF_SCALE.get(a.dtype.itemsize, 0.3) if a.dtype.kind == "f" else 16 * float(ml_dtypes.finfo(a.dtype).eps)
        allowed = part * max(scale, 1.0)
    else:
        allowed = np.inf if not both.all() else 0.02 * max(scale, 1.0) if scale < MODERATE else 0.02 * scale
    return f"{worst:.3g} from the reference, where numbers are up to {scale:.3g}" if worst > allowed else ""
