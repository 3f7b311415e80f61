"""cuDNN's graph interface (version 9), through ctypes: descriptors with attributes, operation graphs, engines, plans.

A graph is operations on tensors; a tensor that no memory belongs to is virtual. cuDNN's heuristics name engine
configurations for it, the best first; one that becomes a plan says how much scratch it needs, and runs in the handle's stream
on the addresses of a variant pack.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from enum import IntEnum
from typing import Any

from intarsia.device.libraries import NotOfferedError
from intarsia.device.nvidia_libraries import LibraryMissingError, Signature, Wanted, load, version_text
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

PACKAGES = {13: "nvidia-cudnn-cu13", 12: "nvidia-cudnn-cu12"}
WANTED = Wanted("cuDNN", "cudnn", PACKAGES, {13: 9, 12: 9})


class Kind(IntEnum):
    """cudnnBackendDescriptorType_t."""

    CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0
    CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR = 1
    CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2
    CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3
    CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4
    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10
    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13
    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16
    CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17
    CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR = 41
    CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR = 44


class Attribute(IntEnum):
    """cudnnBackendAttributeName_t."""

    CUDNN_ATTR_POINTWISE_MODE = 0
    CUDNN_ATTR_POINTWISE_MATH_PREC = 1
    CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP = 4
    CUDNN_ATTR_CONVOLUTION_COMP_TYPE = 100
    CUDNN_ATTR_CONVOLUTION_CONV_MODE = 101
    CUDNN_ATTR_CONVOLUTION_DILATIONS = 102
    CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES = 103
    CUDNN_ATTR_CONVOLUTION_POST_PADDINGS = 104
    CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS = 105
    CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS = 106
    CUDNN_ATTR_ENGINEHEUR_MODE = 200
    CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201
    CUDNN_ATTR_ENGINEHEUR_RESULTS = 202
    CUDNN_ATTR_ENGINECFG_ENGINE = 300
    CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400
    CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA = 701
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W = 703
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X = 704
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y = 705
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750
    CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751
    CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753
    CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800
    CUDNN_ATTR_OPERATIONGRAPH_OPS = 801
    CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900
    CUDNN_ATTR_TENSOR_DATA_TYPE = 901
    CUDNN_ATTR_TENSOR_DIMENSIONS = 902
    CUDNN_ATTR_TENSOR_STRIDES = 903
    CUDNN_ATTR_TENSOR_UNIQUE_ID = 906
    CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907
    CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908
    CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000
    CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003
    CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303
    CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC = 2800
    CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC = 2801
    CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC = 2802
    CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC = 2803
    CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC = 2805
    CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC = 2809
    CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC = 2810
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH = 2811
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID = 2812
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID = 2813
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC = 3000
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_KVDESC = 3001
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_QDESC = 3002
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC = 3003
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC = 3004
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC = 3005
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC = 3006
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE = 3007


class AttributeType(IntEnum):
    """cudnnBackendAttributeType_t."""

    CUDNN_TYPE_HANDLE = 0
    CUDNN_TYPE_DATA_TYPE = 1
    CUDNN_TYPE_BOOLEAN = 2
    CUDNN_TYPE_INT64 = 3
    CUDNN_TYPE_FLOAT = 4
    CUDNN_TYPE_DOUBLE = 5
    CUDNN_TYPE_VOID_PTR = 6
    CUDNN_TYPE_CONVOLUTION_MODE = 7
    CUDNN_TYPE_HEUR_MODE = 8
    CUDNN_TYPE_NUMERICAL_NOTE = 11
    CUDNN_TYPE_POINTWISE_MODE = 14
    CUDNN_TYPE_BACKEND_DESCRIPTOR = 15


class DataType(IntEnum):
    """cudnnDataType_t."""

    CUDNN_DATA_FLOAT = 0
    CUDNN_DATA_DOUBLE = 1
    CUDNN_DATA_HALF = 2
    CUDNN_DATA_INT32 = 4
    CUDNN_DATA_BFLOAT16 = 9


class ConvolutionMode(IntEnum):
    """cudnnConvolutionMode_t."""

    CUDNN_CROSS_CORRELATION = 1


class Pointwise(IntEnum):
    """cudnnPointwiseMode_t."""

    CUDNN_POINTWISE_ADD = 0
    CUDNN_POINTWISE_RELU_FWD = 100
    CUDNN_POINTWISE_TANH_FWD = 101
    CUDNN_POINTWISE_GELU_FWD = 104
    CUDNN_POINTWISE_GELU_APPROX_TANH_FWD = 107
    CUDNN_POINTWISE_CMP_GT = 302
    CUDNN_POINTWISE_CMP_GE = 303


class Heuristic(IntEnum):
    """cudnnBackendHeurMode_t."""

    CUDNN_HEUR_MODE_INSTANT = 0
    CUDNN_HEUR_MODE_B = 1
    CUDNN_HEUR_MODE_FALLBACK = 2
    CUDNN_HEUR_MODE_A = 3


class Note(IntEnum):
    """cudnnBackendNumericalNote_t."""

    CUDNN_NUMERICAL_NOTE_TENSOR_CORE = 0
    CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS = 1
    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION = 2
    CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4
    CUDNN_NUMERICAL_NOTE_TYPE_COUNT = 10


_DESCRIPTOR = c_void_p
SIGNATURES: dict[str, Signature] = {
    "cudnnGetVersion": (c_size_t, ()),
    "cudnnGetCudartVersion": (c_size_t, ()),
    "cudnnGetErrorString": (c_char_p, (c_int,)),
    "cudnnGetLastErrorString": (None, (c_char_p, c_size_t)),
    "cudnnCreate": (c_int, (POINTER(c_void_p),)),
    "cudnnDestroy": (c_int, (c_void_p,)),
    "cudnnSetStream": (c_int, (c_void_p, c_void_p)),
    "cudnnBackendCreateDescriptor": (c_int, (c_int, POINTER(_DESCRIPTOR))),
    "cudnnBackendDestroyDescriptor": (c_int, (_DESCRIPTOR,)),
    "cudnnBackendFinalize": (c_int, (_DESCRIPTOR,)),
    "cudnnBackendSetAttribute": (c_int, (_DESCRIPTOR, c_int, c_int, c_int64, c_void_p)),
    "cudnnBackendGetAttribute": (c_int, (_DESCRIPTOR, c_int, c_int, c_int64, POINTER(c_int64), c_void_p)),
    "cudnnBackendExecute": (c_int, (c_void_p, _DESCRIPTOR, _DESCRIPTOR)),
}

TYPES: dict[DType, DataType] = {
    DType.FLOAT: DataType.CUDNN_DATA_FLOAT, DType.DOUBLE: DataType.CUDNN_DATA_DOUBLE,
    DType.FLOAT16: DataType.CUDNN_DATA_HALF, DType.BFLOAT16: DataType.CUDNN_DATA_BFLOAT16,
    DType.INT32: DataType.CUDNN_DATA_INT32,
}  # fmt: skip

T, A = AttributeType, Attribute
_C_TYPES: dict[AttributeType, Any] = {
    T.CUDNN_TYPE_HANDLE: c_void_p, T.CUDNN_TYPE_VOID_PTR: c_void_p, T.CUDNN_TYPE_BACKEND_DESCRIPTOR: c_void_p,
    T.CUDNN_TYPE_INT64: c_int64, T.CUDNN_TYPE_FLOAT: ctypes.c_float, T.CUDNN_TYPE_DOUBLE: ctypes.c_double,
    T.CUDNN_TYPE_BOOLEAN: ctypes.c_bool,
}  # fmt: skip


class Cudnn:
    """The library, started for the thread's current context.

    Args:
        most: CUDA version of the driver.
        library: instead of looking for one.

    Raises:
        LibraryMissingError: it is not found, or does not start here.
    """

    def __init__(self, most: int, library: Any = None) -> None:
        package = PACKAGES.get(most, PACKAGES[12])
        self.library = load(WANTED, SIGNATURES, most) if library is None else library
        of_cuda = self.library.cudnnGetCudartVersion() // 1000
        handle = c_void_p()
        error = self.library.cudnnCreate(byref(handle)) if of_cuda <= most else 0
        if of_cuda > most or error:
            why = f"does not start: {self.message(error)}" if error else f"is for CUDA {of_cuda}, and the driver has {most}"
            raise LibraryMissingError(f"cuDNN {self.version} {why}", f"install the one for CUDA {most}: pip install {package}")
        self.handle = handle

    @property
    def version(self) -> str:
        return version_text(self.library.cudnnGetVersion())

    def message(self, error: int) -> str:
        """The error's name, and what cuDNN says of the last one."""
        buffer = ctypes.create_string_buffer(512)
        self.library.cudnnGetLastErrorString(buffer, len(buffer))
        name = (self.library.cudnnGetErrorString(error) or b"").decode(errors="replace")
        detail = buffer.value.decode(errors="replace").strip()
        return f"{name} ({detail})" if detail else name

    def made(self, kind: Kind, finalized: bool = True, **attributes: tuple[AttributeType, Any]) -> Descriptor:
        """A descriptor with these attributes (their names without "CUDNN_ATTR_"), finalized."""
        made = Descriptor(self, kind)
        for name, (what, values) in attributes.items():
            made.set(Attribute[f"CUDNN_ATTR_{name}"], what, values)
        if finalized:
            made.finalize()
        return made


class Descriptor:
    """A descriptor, and what it refers to, which lives as long."""

    def __init__(self, dnn: Cudnn, kind: Kind) -> None:
        self.dnn, self.kind = dnn, kind
        self.pointer = c_void_p()
        self._held: list[Any] = []
        if error := dnn.library.cudnnBackendCreateDescriptor(kind, byref(self.pointer)):
            raise NotOfferedError(f"{kind.name} cannot be made: {dnn.message(error)}")

    def __del__(self) -> None:
        if self.pointer:
            self.dnn.library.cudnnBackendDestroyDescriptor(self.pointer)

    def set(self, attribute: Attribute, what: AttributeType, values: Any) -> None:
        """`values`: one, or a sequence."""
        given = list(values) if isinstance(values, (list, tuple)) else [values]
        self._held += given
        plain = [v.pointer.value if isinstance(v, Descriptor) else v.value if isinstance(v, c_void_p) else v for v in given]
        array = (_C_TYPES.get(what, c_int) * len(plain))(*plain)
        if error := self.dnn.library.cudnnBackendSetAttribute(self.pointer, attribute, what, len(plain), array):
            raise NotOfferedError(f"{attribute.name}: {self.dnn.message(error)}")

    def finalize(self) -> None:
        if error := self.dnn.library.cudnnBackendFinalize(self.pointer):
            raise NotOfferedError(f"{self.kind.name}: {self.dnn.message(error)}")

    def count(self, attribute: Attribute, what: AttributeType) -> int:
        """How many elements an attribute has."""
        found = c_int64()
        self._get(attribute, what, 0, found, None)
        return found.value

    def number(self, attribute: Attribute, what: AttributeType) -> int:
        value, found = _C_TYPES.get(what, c_int)(), c_int64()
        self._get(attribute, what, 1, found, byref(value))
        return int(value.value)

    def numbers(self, attribute: Attribute, what: AttributeType, most: int) -> list[int]:
        values, found = (_C_TYPES.get(what, c_int) * most)(), c_int64()
        self._get(attribute, what, most, found, values)
        return [int(v) for v in values[: found.value]]

    def descriptors(self, attribute: Attribute, kind: Kind, most: int) -> list[Descriptor]:
        """The attribute's descriptors, which cuDNN fills in."""
        made = [Descriptor(self.dnn, kind) for _ in range(most)]
        array, found = (c_void_p * most)(*[d.pointer.value for d in made]), c_int64()
        self._get(attribute, T.CUDNN_TYPE_BACKEND_DESCRIPTOR, most, found, array)
        for one in made:
            one._held.append(self)
        return made[: found.value]

    def _get(self, attribute: Attribute, what: AttributeType, most: int, found: c_int64, target: Any) -> None:
        error = self.dnn.library.cudnnBackendGetAttribute(self.pointer, attribute, what, most, byref(found), target)
        if error:
            raise NotOfferedError(f"{attribute.name}: {self.dnn.message(error)}")


@dataclass
class Operations:
    """Operations on tensors, in order. Tensors are numbered as they are made; virtual ones have no memory."""

    dnn: Cudnn

    def __post_init__(self) -> None:
        self._ops: list[Descriptor] = []
        self._tensors = 0

    def tensor(
        self, dtype: DType, shape: Sequence[int], strides: Sequence[int], alignment: int = 0, by_value: bool = False
    ) -> tuple[int, Descriptor]:
        """A tensor and its number. `alignment` in bytes; 0: it is virtual."""
        self._tensors += 1
        size = dtype.numpy.itemsize
        made = self.dnn.made(
            Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, False,
            TENSOR_UNIQUE_ID=(T.CUDNN_TYPE_INT64, self._tensors), TENSOR_DATA_TYPE=(T.CUDNN_TYPE_DATA_TYPE, TYPES[dtype]),
            TENSOR_BYTE_ALIGNMENT=(T.CUDNN_TYPE_INT64, min(alignment, 16) or size),
            TENSOR_DIMENSIONS=(T.CUDNN_TYPE_INT64, list(shape)), TENSOR_STRIDES=(T.CUDNN_TYPE_INT64, list(strides)),
        )  # fmt: skip
        if not alignment:
            made.set(A.CUDNN_ATTR_TENSOR_IS_VIRTUAL, T.CUDNN_TYPE_BOOLEAN, True)
        if by_value:
            made.set(A.CUDNN_ATTR_TENSOR_IS_BY_VALUE, T.CUDNN_TYPE_BOOLEAN, True)
        made.finalize()
        return self._tensors, made

    def convolve(
        self, x: Descriptor, w: Descriptor, y: Descriptor, low: Sequence[int], high: Sequence[int], strides: Sequence[int],
        dilations: Sequence[int],
    ) -> None:  # fmt: skip
        how = self.dnn.made(
            Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
            CONVOLUTION_COMP_TYPE=(T.CUDNN_TYPE_DATA_TYPE, DataType.CUDNN_DATA_FLOAT),
            CONVOLUTION_CONV_MODE=(T.CUDNN_TYPE_CONVOLUTION_MODE, ConvolutionMode.CUDNN_CROSS_CORRELATION),
            CONVOLUTION_SPATIAL_DIMS=(T.CUDNN_TYPE_INT64, len(strides)),
            CONVOLUTION_DILATIONS=(T.CUDNN_TYPE_INT64, list(dilations)),
            CONVOLUTION_FILTER_STRIDES=(T.CUDNN_TYPE_INT64, list(strides)),
            CONVOLUTION_PRE_PADDINGS=(T.CUDNN_TYPE_INT64, list(low)),
            CONVOLUTION_POST_PADDINGS=(T.CUDNN_TYPE_INT64, list(high)),
        )  # fmt: skip
        self._ops.append(self.dnn.made(
            Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            OPERATION_CONVOLUTION_FORWARD_ALPHA=(T.CUDNN_TYPE_FLOAT, 1.0),
            OPERATION_CONVOLUTION_FORWARD_BETA=(T.CUDNN_TYPE_FLOAT, 0.0),
            OPERATION_CONVOLUTION_FORWARD_CONV_DESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, how),
            OPERATION_CONVOLUTION_FORWARD_X=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, x),
            OPERATION_CONVOLUTION_FORWARD_W=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, w),
            OPERATION_CONVOLUTION_FORWARD_Y=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, y),
        ))  # fmt: skip

    def pointwise(
        self, mode: Pointwise, x: Descriptor, y: Descriptor, b: Descriptor | None = None, ceiling: float | None = None
    ) -> None:
        how = self.dnn.made(
            Kind.CUDNN_BACKEND_POINTWISE_DESCRIPTOR, False, POINTWISE_MODE=(T.CUDNN_TYPE_POINTWISE_MODE, mode),
            POINTWISE_MATH_PREC=(T.CUDNN_TYPE_DATA_TYPE, DataType.CUDNN_DATA_FLOAT),
        )  # fmt: skip
        if ceiling is not None:
            how.set(A.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, T.CUDNN_TYPE_DOUBLE, ceiling)
        how.finalize()
        second: dict[str, Any] = {} if b is None else {"OPERATION_POINTWISE_BDESC": (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, b)}
        self._ops.append(self.dnn.made(
            Kind.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
            OPERATION_POINTWISE_PW_DESCRIPTOR=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, how),
            OPERATION_POINTWISE_XDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, x),
            OPERATION_POINTWISE_YDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, y), **second,
        ))  # fmt: skip

    def attend(
        self, q: Descriptor, k: Descriptor, v: Descriptor, o: Descriptor, scale: Descriptor,
        lengths: tuple[Descriptor, Descriptor] | None = None, inside: Inside | None = None,
    ) -> None:  # fmt: skip
        """o = softmax(inside(scale q k')) v; all [batch, heads, length, size], heads of k and v perhaps fewer, scale
        [1, 1, 1, 1]. `lengths`: how many queries and keys of each text count, [batch, 1, 1, 1]."""
        more: dict[str, Any] = {}
        if lengths is not None:
            names = ("OPERATION_SDPA_FWD_SEQ_LEN_QDESC", "OPERATION_SDPA_FWD_SEQ_LEN_KVDESC")
            more = {name: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, one) for name, one in zip(names, lengths, strict=True)}
        if inside is not None and inside.first != inside.last:
            more |= {
                "OPERATION_SDPA_FWD_SUBGRAPH": (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, inside.graph()),
                "OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID": (T.CUDNN_TYPE_INT64, inside.first),
                "OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID": (T.CUDNN_TYPE_INT64, inside.last),
            }
        self._ops.append(self.dnn.made(
            Kind.CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
            OPERATION_SDPA_FWD_QDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, q),
            OPERATION_SDPA_FWD_KDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, k),
            OPERATION_SDPA_FWD_VDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, v),
            OPERATION_SDPA_FWD_ODESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, o),
            OPERATION_SDPA_FWD_SCALEDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, scale), **more,
        ))  # fmt: skip

    def band(
        self, x: Descriptor, y: Descriptor, fill: Descriptor, left: Descriptor | None, right: Descriptor | None,
        lengths: tuple[Descriptor, Descriptor] | None,
    ) -> None:  # fmt: skip
        """y = x where column + left > row or, without `left`, row + right >= column, else `fill`. With `lengths` rows begin
        at the number of keys less that of queries."""
        more: dict[str, Any] = {}
        if left is not None:
            more["OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC"] = (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, left)
        if right is not None:
            more["OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC"] = (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, right)
        if lengths is not None:
            for name, one in zip("Q KV".split(), lengths, strict=True):
                more[f"OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_{name}DESC"] = (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, one)
        mode = Pointwise.CUDNN_POINTWISE_CMP_GT if left is not None else Pointwise.CUDNN_POINTWISE_CMP_GE
        self._ops.append(self.dnn.made(
            Kind.CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR,
            OPERATION_DIAGONAL_BAND_MASK_XDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, x),
            OPERATION_DIAGONAL_BAND_MASK_BDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, fill),
            OPERATION_DIAGONAL_BAND_MASK_YDESC=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, y),
            OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE=(T.CUDNN_TYPE_POINTWISE_MODE, mode), **more,
        ))  # fmt: skip

    def graph(self) -> Descriptor:
        """The operations as a finalized graph. Raises NotOfferedError where cuDNN knows no such graph."""
        handle: dict[str, Any] = {"OPERATIONGRAPH_HANDLE": (T.CUDNN_TYPE_HANDLE, self.dnn.handle)} if self.dnn.handle else {}
        return self.dnn.made(
            Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
            OPERATIONGRAPH_OPS=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, self._ops), **handle,
        )  # fmt: skip


class Inside:
    """What is done to attention's scores before their softmax: a graph in the graph, from the virtual tensor `first` to
    `last`. Its tensors are numbered with those around it."""

    def __init__(self, around: Operations, shape: Sequence[int]) -> None:
        self.around, self.shape = around, list(shape)
        self._ops = Operations(around.dnn)
        self.first, self.scores = self._next()
        self.last = self.first

    def _next(self) -> tuple[int, Descriptor]:
        strides = [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        return self.around.tensor(DType.FLOAT, self.shape, strides)

    def add(self, bias: Descriptor) -> None:
        self.last, y = self._next()
        self._ops.pointwise(Pointwise.CUDNN_POINTWISE_ADD, self.scores, y, bias)
        self.scores = y

    def band(
        self, fill: Descriptor, left: Descriptor | None = None, right: Descriptor | None = None,
        lengths: tuple[Descriptor, Descriptor] | None = None,
    ) -> None:  # fmt: skip
        """See `Operations.band`."""
        self.last, y = self._next()
        self._ops.band(self.scores, y, fill, left, right, lengths)
        self.scores = y

    def graph(self) -> Descriptor:
        return self._ops.graph()


@dataclass(frozen=True)
class Engine:
    """A plan that has been finalized, with its scratch in bytes."""

    plan: Descriptor
    workspace_nbytes: int


def engines(
    dnn: Cudnn, graph: Descriptor, modes: Sequence[Heuristic], avoided: frozenset[Note], workspace_nbytes: int, most: int
) -> list[Engine]:
    """Plans for a graph, as heuristics rank them; `avoided`: notes of engines that are left out.

    Raises:
        NotOfferedError: there is none.
    """
    found: list[Engine] = []
    why = "no engine is known for it"
    for mode in modes:
        heuristics = dnn.made(Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, False,
                              ENGINEHEUR_OPERATION_GRAPH=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, graph),
                              ENGINEHEUR_MODE=(T.CUDNN_TYPE_HEUR_MODE, mode))  # fmt: skip
        try:
            heuristics.finalize()
            count = heuristics.count(A.CUDNN_ATTR_ENGINEHEUR_RESULTS, T.CUDNN_TYPE_BACKEND_DESCRIPTOR)
            configurations = heuristics.descriptors(
                A.CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count
            )
        except NotOfferedError as error:
            why = str(error)
            continue
        for configuration in configurations:
            if len(found) == most:
                return found
            try:
                if avoided & notes_of(configuration):
                    why = "its engines compute with less precision than is requested, or not alike each time"
                    continue
                plan = dnn.made(
                    Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                    EXECUTION_PLAN_HANDLE=(T.CUDNN_TYPE_HANDLE, dnn.handle),
                    EXECUTION_PLAN_ENGINE_CONFIG=(T.CUDNN_TYPE_BACKEND_DESCRIPTOR, configuration),
                )  # fmt: skip
                nbytes = plan.number(A.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, T.CUDNN_TYPE_INT64)
            except NotOfferedError as error:
                why = str(error)
                continue
            if nbytes <= workspace_nbytes:
                found.append(Engine(plan, nbytes))
            else:
                why = f"its engines need {nbytes:,} bytes of scratch, and {workspace_nbytes:,} are allowed"
    if not found:
        raise NotOfferedError(f"cuDNN {dnn.version}: {why}")
    return found


def notes_of(configuration: Descriptor) -> set[Note]:
    (engine,) = configuration.descriptors(A.CUDNN_ATTR_ENGINECFG_ENGINE, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)
    numbers = engine.numbers(
        A.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, T.CUDNN_TYPE_NUMERICAL_NOTE, Note.CUDNN_NUMERICAL_NOTE_TYPE_COUNT
    )
    return {Note(n) for n in numbers if n in set(Note)}
