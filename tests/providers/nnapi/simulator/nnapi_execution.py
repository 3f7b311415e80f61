"""Runs a finished model: reads operands, calls kernels one after the other, checks the shapes of what they give."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import nnapi_detection  # noqa: F401 # registers its kernels
import nnapi_movement  # noqa: F401
import nnapi_operands as kinds
import nnapi_recurrent  # noqa: F401
import nnapi_windows  # noqa: F401
import numpy as np
from nnapi_kernels import RAW, REALS, Failed
from nnapi_operands import Operand, real, stored
from nnapi_operations import OPERATIONS

_BIASED = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "GROUPED_CONV_2D": 2, "TRANSPOSE_CONV_2D": 2}
SHAPED_BY_DATA = frozenset(("BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS"))


def constant(operand: Operand) -> Any:
    """The operand's value; a large one is read where the caller keeps it, at every run."""
    if operand.pointer is None:
        return operand.value
    address, nbytes = operand.pointer
    return np.frombuffer(ctypes.string_at(address, nbytes), kinds.NUMPY[operand.type]).reshape(operand.dims)


def run(operands: Sequence[Operand], operations: Sequence[Any], inputs: Mapping[int, Any], wanted: Sequence[int], *,
        narrow: bool) -> list[np.ndarray]:  # fmt: skip
    """Results of the operands `wanted`. `narrow`: float32 is computed in 16 bits, as a relaxed model may be.

    Raises:
        Failed: an operation cannot be computed of these inputs, or its result has not the operand's shape.
    """
    values: dict[int, Any] = {}

    def value(i: int) -> Any:
        if i in inputs:
            return inputs[i]
        if i not in values:
            values[i] = None if operands[i].omitted else constant(operands[i])
        return values[i]

    for code, sources, targets in operations:
        name = OPERATIONS[code].name
        given = [(operands[i], value(i)) for i in sources]
        with np.errstate(all="ignore"):
            results = _computed(name, given, [operands[i] for i in targets])
        for i, result in zip(targets, results, strict=False):
            _check_shape(name, operands[i], result.shape)
            if narrow and operands[i].type == kinds.TENSOR_FLOAT32:
                with np.errstate(over="ignore"):
                    result = result.astype(np.float16).astype(np.float32)
            values[i] = result
    return [value(i) for i in wanted]


def _check_shape(name: str, operand: Operand, shape: tuple[int, ...]) -> None:
    if operand.scalar and shape == ():
        return
    known = operand.dims
    if known and (len(known) != len(shape) or any(k not in (0, s) for k, s in zip(known, shape, strict=True))):
        raise Failed(f"{name} gives {list(shape)}, its operand has {list(known)}")


def _computed(name: str, given: Sequence[tuple[Operand, Any]], targets: Sequence[Operand]) -> list[np.ndarray]:
    if name == "CAST":
        return [_cast(given[0][1], targets[0])]
    if name in RAW:
        found = RAW[name](*(_number(operand, x) for operand, x in given))
        listed = found if isinstance(found, list) else [found]
        return [np.asarray(r).astype(kinds.NUMPY[t.type]) for r, t in zip(listed, targets, strict=False)]
    if name not in REALS:
        raise Failed(f"{name} is not simulated")
    arguments = [_real(operand, x) for operand, x in given]
    at = _BIASED.get(name)
    if at is not None and given[at][0].type == kinds.TENSOR_INT32:
        (x, _), (weights, _) = given[:2]
        arguments[at] = given[at][1].astype(np.float64) * x.scale * np.ravel(weights.scales(given[1][1].ndim))
    found = REALS[name](*arguments)
    listed = found if isinstance(found, list) else [found]
    return [stored(np.asarray(r), t) for r, t in zip(listed, targets, strict=False)]


def _number(operand: Operand, x: Any) -> Any:
    return x.item() if x is not None and operand.scalar else x


def _real(operand: Operand, x: Any) -> Any:
    if x is None or operand.scalar:
        return _number(operand, x)
    if operand.type in kinds.QUANTIZED:
        return real(x, operand)
    if operand.type == kinds.TENSOR_INT32:
        return x.astype(np.float64) * operand.scale if operand.scale else x.astype(np.int64)
    return x.astype(np.float32) if operand.type == kinds.TENSOR_FLOAT16 else x


def _cast(x: np.ndarray, target: Operand) -> np.ndarray:
    """Of the elements as they are: scales do not count; towards zero, and 8-bit results saturate."""
    kind = np.dtype(kinds.NUMPY[target.type])
    if kind == np.bool_:
        return x != 0
    if kind.kind in "iu":
        whole = np.trunc(x.astype(np.float64))
        limits = np.iinfo(kind)
        return np.clip(np.nan_to_num(whole), limits.min, limits.max).astype(kind)
    return x.astype(kind)
