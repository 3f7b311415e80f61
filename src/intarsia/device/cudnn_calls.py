"""Convolutions and attention as graphs of cuDNN.

A convolution is followed by what is added to it and by its activation, all on virtual float32 tensors, in the order that
cuDNN's compiled engines know: addend, bias, activation. Attention is cuDNN's one operation for it (9.13 or later), with
lengths of texts (9.15) and a graph on its scores for a bias and bands (9.21).
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.codegen.clike.vendor_libraries.calls import Attention, Convolution, operands
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.device.cudnn import (
    Cudnn,
    Descriptor,
    Engine,
    Heuristic,
    Inside,
    Kind,
    Note,
    Operations,
    Pointwise,
    T,
    engines,
)
from intarsia.device.libraries import LibraryProgram, NotOfferedError, offset_nbytes
from intarsia.device.nvidia_libraries import version_text
from intarsia.graph.dtypes import DType

_ACTIVATIONS = {
    "relu": Pointwise.CUDNN_POINTWISE_RELU_FWD, "tanh": Pointwise.CUDNN_POINTWISE_TANH_FWD,
    "gelu": Pointwise.CUDNN_POINTWISE_GELU_FWD, "gelu_tanh": Pointwise.CUDNN_POINTWISE_GELU_APPROX_TANH_FWD,
}  # fmt: skip
_LESS_PRECISE = frozenset((
    Note.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, Note.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    Note.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
))  # fmt: skip
MODES = {
    "EXHAUSTIVE": (Heuristic.CUDNN_HEUR_MODE_A, Heuristic.CUDNN_HEUR_MODE_FALLBACK),
    "HEURISTIC": (Heuristic.CUDNN_HEUR_MODE_A, Heuristic.CUDNN_HEUR_MODE_FALLBACK),
    "DEFAULT": (Heuristic.CUDNN_HEUR_MODE_INSTANT, Heuristic.CUDNN_HEUR_MODE_FALLBACK),
}
"""Which heuristics are queried, in order; of EXHAUSTIVE's plans the fastest is taken, of others' the first."""
TRIED = 8
"""Plans that EXHAUSTIVE measures."""
ATTENTION_SINCE = 91300
"""Of cuDNN's versions: with its operation for attention; with lengths of texts; with a bias and bands."""
LENGTHS_SINCE, INSIDE_SINCE = 91500, 92100
_ONE = (1, 1, 1, 1)
_FILL = -(2.0**100)  # where a band does not allow: less would overflow where powers of two are taken
_PACKS = 8

Fastest = Callable[[Sequence[LibraryProgram], Sequence[View]], LibraryProgram]
"""Chooses among programs of one call by running them; the views are its operands and its result."""


class GraphProgram(LibraryProgram):
    """A plan with its tensors' numbers. `constants`: tensors by value: number -> the value's memory on the host."""

    def __init__(self, dnn: Cudnn, engine: Engine, title: str, numbers: Sequence[int], offsets: Sequence[int],
                 constants: dict[int, Any]) -> None:  # fmt: skip
        self.dnn, self.title, self.workspace_nbytes = dnn, title, engine.workspace_nbytes
        self._plan, self._offsets, self._constants = engine.plan, list(offsets), constants
        self._numbers = [*numbers, *constants]
        self._packs: OrderedDict[bytes, Descriptor] = OrderedDict()

    def start(self, stream: Any, addresses: np.ndarray) -> str:
        try:
            pack = self._pack(addresses)
        except NotOfferedError as failure:
            return str(failure)
        library, handle = self.dnn.library, self.dnn.handle
        error = library.cudnnSetStream(handle, int(stream))
        error = error or library.cudnnBackendExecute(handle, self._plan.pointer, pack.pointer)
        return self.dnn.message(error) if error else ""

    def _pack(self, addresses: np.ndarray) -> Descriptor:
        key = addresses.tobytes()
        found = self._packs.get(key)
        if found is None:
            given = [int(a) + o for a, o in zip(addresses, self._offsets, strict=False)]
            given += [ctypes.addressof(c) for c in self._constants.values()]
            scratch = int(addresses[len(self._offsets)]) if self.workspace_nbytes else None
            found = self._packs[key] = self.dnn.made(
                Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                VARIANT_PACK_UNIQUE_IDS=(T.CUDNN_TYPE_INT64, self._numbers),
                VARIANT_PACK_DATA_POINTERS=(T.CUDNN_TYPE_VOID_PTR, given),
                VARIANT_PACK_WORKSPACE=(T.CUDNN_TYPE_VOID_PTR, scratch),
            )  # fmt: skip
            if len(self._packs) > _PACKS:
                self._packs.popitem(last=False)
        return found


def convolution(
    dnn: Cudnn, call: Convolution, tf32: bool, search: str, workspace_nbytes: int, fastest: Fastest
) -> LibraryProgram:
    """A program for the call.

    Raises:
        NotOfferedError: cuDNN has no engine for it that computes in the requested precision with so much scratch.
    """
    call = _flat(call) if len(call.strides) == 1 else call
    graph, numbers = convolution_graph(dnn, call)
    words = [call.activation.replace("_", " "), "bias" if call.bias else "", "addend" if call.addend else ""]
    extra = ", ".join(w for w in words if w)
    title = f"cuDNN's convolution{f' with {extra}' if extra else ''}"
    most = TRIED if search == "EXHAUSTIVE" else 1
    plans = engines(dnn, graph.graph(), MODES[search], avoided(call.x.dtype, tf32), workspace_nbytes, most)
    programs = [GraphProgram(dnn, plan, title, numbers, [*offset_nbytes(call), 0], {}) for plan in plans]
    views = [view for _, view in operands(call)]
    return fastest(programs, [*views, call.result]) if len(programs) > 1 else programs[0]


def avoided(dtype: DType, tf32: bool) -> frozenset[Note]:
    """Notes of engines that a convolution in this type is not computed by."""
    exact = dtype is DType.FLOAT and not tf32
    return _LESS_PRECISE | {Note.CUDNN_NUMERICAL_NOTE_TENSOR_CORE} if exact else _LESS_PRECISE


def convolution_graph(dnn: Cudnn, call: Convolution) -> tuple[Operations, list[int]]:
    """The call's operations, and the numbers of its operands' and its result's tensors."""
    ops, numbers = Operations(dnn), []
    made: dict[str, Descriptor] = {}
    for name, view in operands(call):
        number, made[name] = _tensor(ops, view)
        numbers.append(number)
    number, made["result"] = _tensor(ops, call.result)
    numbers.append(number)
    steps: list[tuple[Pointwise, Descriptor | None]] = []
    steps += [(Pointwise.CUDNN_POINTWISE_ADD, made[name]) for name in ("addend", "bias") if name in made]
    steps += [(_ACTIVATIONS[call.activation], None)] if call.activation else []
    current = _virtual(ops, call.result) if steps else made["result"]
    ops.convolve(made["x"], made["w"], current, call.low, call.high, call.strides, call.dilations)
    for i, (mode, other) in enumerate(steps):
        target = made["result"] if i == len(steps) - 1 else _virtual(ops, call.result)
        ops.pointwise(mode, current, target, other, call.ceiling if other is None else None)
        current = target
    return ops, numbers


def attention(dnn: Cudnn, call: Attention, workspace_nbytes: int) -> LibraryProgram:
    """A program for the call.

    Raises:
        NotOfferedError: cuDNN is older than what the call requires of its operation, or has no engine for it.
    """
    inside = call.bias is not None or call.right is not None or call.left is not None
    needs = INSIDE_SINCE if inside else LENGTHS_SINCE if call.lengths is not None else ATTENTION_SINCE
    if dnn.library.cudnnGetVersion() < needs:
        what = "attention with a bias or band" if inside else "attention of some lengths" if call.lengths else "attention"
        raise NotOfferedError(f"cuDNN {dnn.version} has no operation for {what}; {version_text(needs)} or later has")
    ops, numbers, constants = attention_graph(dnn, call)
    modes = (Heuristic.CUDNN_HEUR_MODE_A, Heuristic.CUDNN_HEUR_MODE_FALLBACK)
    (plan,) = engines(dnn, ops.graph(), modes, frozenset({Note.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}), workspace_nbytes, 1)
    words = ["bias" if call.bias else "", "lengths" if call.lengths else "", "band" if inside and not call.bias else ""]
    extra = ", ".join(w for w in words if w)
    title = f"cuDNN's attention{f' with {extra}' if extra else ''}"
    return GraphProgram(dnn, plan, title, numbers, [*offset_nbytes(call), 0], constants)


def attention_graph(dnn: Cudnn, call: Attention) -> tuple[Operations, list[int], dict[int, Any]]:
    """The call's operation, the numbers of its operands' and its result's tensors, and tensors by value: number -> memory."""
    ops = Operations(dnn)
    made: dict[str, Descriptor] = {}
    numbers: list[int] = []
    constants: dict[int, Any] = {}

    def by_value(dtype: DType, value: Any) -> Descriptor:
        number, descriptor = ops.tensor(dtype, _ONE, _ONE, 4, by_value=True)
        constants[number] = value
        return descriptor

    for name, view in [*operands(call), ("result", call.result)]:
        number, made[name] = _tensor(ops, view)
        numbers.append(number)
    scale = by_value(DType.FLOAT, ctypes.c_float(call.scale))
    inside = Inside(ops, (*call.result.shape[:3], call.k.shape[2]))
    if call.bias is not None:
        inside.add(made["bias"])
    if call.right is not None or call.left is not None:
        fill = by_value(DType.FLOAT, ctypes.c_float(_FILL))
        places = (made["rows"], made["places"]) if call.places is not None else None
        if call.right is not None:
            right = by_value(DType.INT32, ctypes.c_int32(call.right)) if call.right else None
            inside.band(fill, None, right, places)
        if call.left is not None:  # column + bound > place
            inside.band(fill, by_value(DType.INT32, ctypes.c_int32(call.left + 1)), None, places)
    lengths = (made["rows"], made["lengths"]) if call.lengths is not None else None
    ops.attend(made["q"], made["k"], made["v"], made["result"], scale, lengths, inside)
    return ops, numbers, constants


def _tensor(ops: Operations, view: View) -> tuple[int, Descriptor]:
    return ops.tensor(view.dtype, view.shape, _positive(view), view.alignment)


def _virtual(ops: Operations, like: View) -> Descriptor:
    return ops.tensor(DType.FLOAT, like.shape, _positive(like))[1]


def _positive(view: View) -> tuple[int, ...]:
    """Strides, those of axes of one element as if more of them followed: cuDNN takes no 0."""
    strides = list(view.strides)
    for axis in reversed(range(len(strides))):
        if strides[axis] <= 0:
            inner = [s * n for s, n in zip(strides[axis + 1 :], view.shape[axis + 1 :], strict=True)]
            strides[axis] = max(inner, default=1)
    return tuple(strides)


def _flat(call: Convolution) -> Convolution:
    """A convolution along one axis as one of images one pixel wide: cuDNN has two spatial axes at least."""
    wider: dict[str, Any] = {}
    for name, view in [*operands(call), ("result", call.result)]:
        wider[name] = replace(view, shape=(*view.shape, 1), strides=(*view.strides, view.strides[-1]))
    return replace(
        call, **wider, low=(*call.low, 0), high=(*call.high, 0), strides=(*call.strides, 1), dilations=(*call.dilations, 1)
    )
