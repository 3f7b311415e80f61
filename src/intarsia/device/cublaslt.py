"""Matrix products by cuBLASLt, through ctypes.

cuBLASLt's matrices are stored by columns; a matrix by rows is its own transpose there. So R = L W by rows is R' = W' L' by
columns: the right factor is cuBLASLt's A, the left one its B, m and n change places, and a vector that is added to every row
of R is added to every column of R', which is what an epilogue with a bias does.

Descriptors, layouts and the algorithm are made once for a call, with the scratch that it needs; a start sets the bias's
address and gives the work to the stream, which allocates nothing and can be captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from intarsia.codegen.clike.vendor_libraries.calls import MatrixProduct
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.device.libraries import LibraryProgram, NotOfferedError, offset_nbytes
from intarsia.device.nvidia_libraries import LibraryMissingError, Signature, Wanted, load, version_text
from intarsia.graph.dtypes import DType

WANTED = Wanted("cuBLASLt", "cublasLt", {13: "nvidia-cublas", 12: "nvidia-cublas-cu12"})


class Status(IntEnum):
    """cublasStatus_t."""

    CUBLAS_STATUS_SUCCESS = 0
    CUBLAS_STATUS_NOT_INITIALIZED = 1
    CUBLAS_STATUS_ALLOC_FAILED = 3
    CUBLAS_STATUS_INVALID_VALUE = 7
    CUBLAS_STATUS_ARCH_MISMATCH = 8
    CUBLAS_STATUS_MAPPING_ERROR = 11
    CUBLAS_STATUS_EXECUTION_FAILED = 13
    CUBLAS_STATUS_INTERNAL_ERROR = 14
    CUBLAS_STATUS_NOT_SUPPORTED = 15
    CUBLAS_STATUS_LICENSE_ERROR = 16


class DataType(IntEnum):
    """cudaDataType (of CUDA's library_types.h)."""

    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_R_16F = 2
    CUDA_R_8I = 3
    CUDA_R_32I = 10
    CUDA_R_16BF = 14


class Compute(IntEnum):
    """cublasComputeType_t."""

    CUBLAS_COMPUTE_32F = 68
    CUBLAS_COMPUTE_64F = 70
    CUBLAS_COMPUTE_32I = 72
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77


class Operation(IntEnum):
    """cublasOperation_t."""

    CUBLAS_OP_N = 0
    CUBLAS_OP_T = 1


class LayoutAttribute(IntEnum):
    """cublasLtMatrixLayoutAttribute_t."""

    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6


class ProductAttribute(IntEnum):
    """cublasLtMatmulDescAttributes_t."""

    CUBLASLT_MATMUL_DESC_TRANSA = 3
    CUBLASLT_MATMUL_DESC_TRANSB = 4
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26


class Epilogue(IntEnum):
    """cublasLtEpilogue_t. GELU is the approximation by tanh."""

    CUBLASLT_EPILOGUE_DEFAULT = 1
    CUBLASLT_EPILOGUE_RELU = 2
    CUBLASLT_EPILOGUE_BIAS = 4
    CUBLASLT_EPILOGUE_RELU_BIAS = 6
    CUBLASLT_EPILOGUE_GELU = 32
    CUBLASLT_EPILOGUE_GELU_BIAS = 36


class PreferenceAttribute(IntEnum):
    """cublasLtMatmulPreferenceAttributes_t."""

    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_: ClassVar = [("data", c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_: ClassVar = [
        ("algo", Algorithm), ("workspaceSize", c_size_t), ("state", c_int), ("wavesCount", c_float), ("reserved", c_int * 4),
    ]  # fmt: skip


_HANDLE, _HANDLES = c_void_p, POINTER(c_void_p)
SIGNATURES: dict[str, Signature] = {
    "cublasLtCreate": (c_int, (_HANDLES,)),
    "cublasLtDestroy": (c_int, (_HANDLE,)),
    "cublasLtGetVersion": (c_size_t, ()),
    "cublasLtGetStatusName": (c_char_p, (c_int,)),
    "cublasLtMatmulDescCreate": (c_int, (_HANDLES, c_int, c_int)),
    "cublasLtMatmulDescDestroy": (c_int, (_HANDLE,)),
    "cublasLtMatmulDescSetAttribute": (c_int, (_HANDLE, c_int, c_void_p, c_size_t)),
    "cublasLtMatrixLayoutCreate": (c_int, (_HANDLES, c_int, c_uint64, c_uint64, c_int64)),
    "cublasLtMatrixLayoutDestroy": (c_int, (_HANDLE,)),
    "cublasLtMatrixLayoutSetAttribute": (c_int, (_HANDLE, c_int, c_void_p, c_size_t)),
    "cublasLtMatmulPreferenceCreate": (c_int, (_HANDLES,)),
    "cublasLtMatmulPreferenceDestroy": (c_int, (_HANDLE,)),
    "cublasLtMatmulPreferenceSetAttribute": (c_int, (_HANDLE, c_int, c_void_p, c_size_t)),
    "cublasLtMatmulAlgoGetHeuristic": (
        c_int, (_HANDLE, _HANDLE, _HANDLE, _HANDLE, _HANDLE, _HANDLE, _HANDLE, c_int, POINTER(HeuristicResult), POINTER(c_int)),
    ),
    "cublasLtMatmul": (
        c_int,
        (_HANDLE, _HANDLE, c_void_p, c_void_p, _HANDLE, c_void_p, _HANDLE, c_void_p, c_void_p, _HANDLE, c_void_p, _HANDLE,
         POINTER(Algorithm), c_void_p, c_size_t, c_void_p),
    ),
}  # fmt: skip

TYPES: dict[DType, DataType] = {
    DType.FLOAT: DataType.CUDA_R_32F, DType.DOUBLE: DataType.CUDA_R_64F, DType.FLOAT16: DataType.CUDA_R_16F,
    DType.BFLOAT16: DataType.CUDA_R_16BF, DType.INT8: DataType.CUDA_R_8I, DType.INT32: DataType.CUDA_R_32I,
}  # fmt: skip
_EPILOGUES = {
    ("", False): Epilogue.CUBLASLT_EPILOGUE_DEFAULT, ("", True): Epilogue.CUBLASLT_EPILOGUE_BIAS,
    ("relu", False): Epilogue.CUBLASLT_EPILOGUE_RELU, ("relu", True): Epilogue.CUBLASLT_EPILOGUE_RELU_BIAS,
    ("gelu_tanh", False): Epilogue.CUBLASLT_EPILOGUE_GELU, ("gelu_tanh", True): Epilogue.CUBLASLT_EPILOGUE_GELU_BIAS,
}  # fmt: skip
_RESULTS = 4  # algorithms that are requested; the first that the workspace allows is taken


class CublasLt:
    """The library, started for the thread's current context.

    Args:
        most: CUDA version of the driver.
        library: instead of looking for one.

    Raises:
        LibraryMissingError: it is not found, or does not start here.
    """

    def __init__(self, most: int, library: Any = None) -> None:
        self.library = load(WANTED, SIGNATURES, most) if library is None else library
        handle = c_void_p()
        if error := self.library.cublasLtCreate(byref(handle)):
            raise LibraryMissingError(
                f"cuBLASLt {self.version} does not start: {self.name_of(error)}",
                f"install the one for CUDA {most}: pip install {WANTED.package(most)}",
            )
        self.handle = handle

    @property
    def version(self) -> str:
        return version_text(self.library.cublasLtGetVersion())

    def name_of(self, error: int) -> str:
        try:
            return Status(error).name
        except ValueError:
            return f"error {error}"

    def made(self, create: str, *arguments: Any) -> Made:
        """A descriptor by this function's name, destroyed with its last reference."""
        handle = c_void_p()
        self.check(getattr(self.library, f"{create}Create")(byref(handle), *arguments), create)
        return Made(handle, getattr(self.library, f"{create}Destroy"), getattr(self.library, f"{create}SetAttribute"))

    def check(self, error: int, what: str) -> None:
        if error:
            raise NotOfferedError(f"{what}: {self.name_of(error)}")

    def prepared(self, call: MatrixProduct, tf32: bool, workspace_nbytes: int) -> Product:
        """The call with the algorithm that cuBLASLt expects to be the fastest with so much scratch.

        Raises:
            NotOfferedError: there is none.
        """
        return Product(self, call, tf32, workspace_nbytes)


class Made:
    """A descriptor of the library's."""

    def __init__(self, handle: c_void_p, destroy: Callable[[Any], int], setter: Callable[..., int]) -> None:
        self.handle, self._destroy, self._set = handle, destroy, setter

    def set(self, attribute: IntEnum, value: Any) -> None:
        """Set an attribute to a value of the type that the header names."""
        if error := self._set(self.handle, int(attribute), ctypes.addressof(value), sizeof(value)):
            raise NotOfferedError(f"{attribute.name} cannot be {value.value}: {Status(error).name}")

    def __del__(self) -> None:
        self._destroy(self.handle)


class Product(LibraryProgram):
    """One product with its algorithm."""

    def __init__(self, blas: CublasLt, call: MatrixProduct, tf32: bool, workspace_nbytes: int) -> None:
        self.blas, self.call = blas, call
        self._compute, scale = _compute(call, tf32)
        self._product = blas.made("cublasLtMatmulDesc", self._compute, scale)
        number: Any = {
            DataType.CUDA_R_32F: c_float, DataType.CUDA_R_64F: ctypes.c_double, DataType.CUDA_R_32I: c_int32,
        }[scale]  # fmt: skip
        self._alpha: Any = number(1 if number is c_int32 else call.alpha)
        self._beta: Any = number(call.addend is not None)
        _, m, n = call.result.shape
        self._layouts = []
        for view, attribute in ((call.right, ProductAttribute.CUBLASLT_MATMUL_DESC_TRANSA),
                                (call.left, ProductAttribute.CUBLASLT_MATMUL_DESC_TRANSB)):  # fmt: skip
            by_columns, distance = _leading(view)
            self._product.set(attribute, c_int32(Operation.CUBLAS_OP_T if by_columns else Operation.CUBLAS_OP_N))
            rows, columns = view.shape[1:]
            shape = (rows, columns) if by_columns else (columns, rows)
            self._layouts.append(self._layout(view, *shape, distance))
        self._layouts.append(self._layout(call.result, n, m, n))
        epilogue = _EPILOGUES[call.activation, call.bias is not None]
        self._product.set(ProductAttribute.CUBLASLT_MATMUL_DESC_EPILOGUE, c_uint32(epilogue))
        if call.bias is not None:
            self._product.set(ProductAttribute.CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, c_int32(TYPES[call.bias.dtype]))
            self._product.set(ProductAttribute.CUBLASLT_MATMUL_DESC_BIAS_POINTER, c_void_p(call.bias.alignment))
        self._offsets = offset_nbytes(call)
        self._algorithm, self.workspace_nbytes = self._chosen(workspace_nbytes)
        words = [call.activation.replace("_", " "), "bias" if call.bias else "", "addend" if call.addend else ""]
        extra = ", ".join(w for w in words if w)
        self.title = f"cuBLASLt's product{f' with {extra}' if extra else ''}"

    def _layout(self, view: View, rows: int, columns: int, distance: int) -> Made:
        made = self.blas.made("cublasLtMatrixLayout", TYPES[view.dtype], rows, columns, distance)
        made.set(LayoutAttribute.CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, c_int32(view.shape[0]))
        step = view.strides[0] if view.shape[0] > 1 else 0
        made.set(LayoutAttribute.CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, c_int64(step))
        return made

    def _chosen(self, workspace_nbytes: int) -> tuple[Algorithm, int]:
        blas, call = self.blas, self.call
        preference = blas.made("cublasLtMatmulPreference")
        preference.set(PreferenceAttribute.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, c_uint64(workspace_nbytes))
        views = (call.right, call.left, call.addend or call.result, call.result)
        for letter, view in zip("ABCD", views, strict=True):
            attribute = PreferenceAttribute[f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{letter}_BYTES"]
            preference.set(attribute, c_uint32(view.alignment))
        results, count = (HeuristicResult * _RESULTS)(), c_int()
        a, b, d = (layout.handle for layout in self._layouts)
        error = blas.library.cublasLtMatmulAlgoGetHeuristic(
            blas.handle, self._product.handle, a, b, d, d, preference.handle, _RESULTS, results, byref(count)
        )
        blas.check(error, "cuBLASLt has no algorithm for it")
        for result in results[: count.value]:
            if result.state == Status.CUBLAS_STATUS_SUCCESS and result.workspaceSize <= workspace_nbytes:
                return result.algo, result.workspaceSize
        raise NotOfferedError(f"cuBLASLt has no algorithm for it with {workspace_nbytes:,} bytes of scratch")

    def start(self, stream: Any, addresses: np.ndarray) -> str:
        """`addresses`: the operands in the order of the call's fields, the result, the scratch (if it needs any)."""
        given = [int(a) + o for a, o in zip(addresses, self._offsets, strict=False)]
        rest = [int(a) for a in addresses[len(given) :]]
        left, right = given[:2]
        result, scratch = rest[0], rest[1] if self.workspace_nbytes else None
        addend = given[2] if self.call.addend is not None else result
        if self.call.bias is not None:
            self._product.set(ProductAttribute.CUBLASLT_MATMUL_DESC_BIAS_POINTER, c_void_p(given[-1]))
        a, b, d = (layout.handle for layout in self._layouts)
        error = self.blas.library.cublasLtMatmul(
            self.blas.handle, self._product.handle, byref(self._alpha), right, a, left, b, byref(self._beta), addend, d, result,
            d, byref(self._algorithm), scratch, self.workspace_nbytes, int(stream),
        )  # fmt: skip
        return self.blas.name_of(error) if error else ""


def _leading(view: View) -> tuple[bool, int]:
    """Whether a matrix lies by columns, and how far a row (a column) is from the next."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return False, down if rows > 1 else columns
    return True, along if columns > 1 else rows


def _compute(call: MatrixProduct, tf32: bool) -> tuple[Compute, DataType]:
    """How sums are formed, and the type of alpha and beta."""
    if call.left.dtype is DType.INT8:
        return Compute.CUBLAS_COMPUTE_32I, DataType.CUDA_R_32I
    if call.left.dtype is DType.DOUBLE:
        return Compute.CUBLAS_COMPUTE_64F, DataType.CUDA_R_64F
    fast = tf32 and call.left.dtype is DType.FLOAT
    return Compute.CUBLAS_COMPUTE_32F_FAST_TF32 if fast else Compute.CUBLAS_COMPUTE_32F, DataType.CUDA_R_32F
