"""`SparseTensor`: a tensor by its non-zero elements, as coordinates (COO), compressed rows (CSR) or blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from intarsia.errors import InvalidArgument, NotImplemented, WrongType
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.values.ort_device import OrtDevice
from intarsia.values.ort_enums import OrtSparseFormat

_COO, _CSR = OrtSparseFormat.ORT_SPARSE_COO, OrtSparseFormat.ORT_SPARSE_CSRC
_BLOCKS = OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE


def _view(array: np.ndarray) -> np.ndarray:
    shown = array.view()
    shown.flags.writeable = False
    return shown


@dataclass(frozen=True)
class SparseCooView:
    """Coordinates: int64 [nnz] of row-major positions, or [nnz, rank]."""

    _indices: np.ndarray

    def indices(self) -> np.ndarray:
        """Read-only."""
        return _view(self._indices)


@dataclass(frozen=True)
class SparseCsrView:
    """Compressed rows: a column for each value, and where each row begins (rows + 1 numbers)."""

    _inner: np.ndarray
    _outer: np.ndarray

    def inner(self) -> np.ndarray:
        """Column numbers, int64 [nnz], read-only."""
        return _view(self._inner)

    def outer(self) -> np.ndarray:
        """Row starts, int64 [rows + 1], read-only."""
        return _view(self._outer)


@dataclass(frozen=True)
class SparseBlockSparseView:
    """Blocks: int32 [2, number of blocks], the block's row and column."""

    _indices: np.ndarray

    def indices(self) -> np.ndarray:
        """Read-only."""
        return _view(self._indices)


class SparseTensor:
    """Values and their places in a dense tensor of zeros, in host memory. The arrays are copied when it is made."""

    def __init__(
        self, dense_shape: Sequence[int], values: np.ndarray, indices: tuple[np.ndarray, ...], layout: OrtSparseFormat
    ) -> None:
        self._shape = tuple(int(d) for d in dense_shape)
        self._values, self._indices, self._format = values, indices, layout

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice | None = None
    ) -> SparseTensor:
        """From `values` [nnz] and int64 indices: [nnz] or [2 * nnz] row-major, or [nnz, 2].

        Raises:
            InvalidArgument: sizes or indices do not fit together.
        """
        shape = _checked_shape(dense_shape, ort_device)
        values = _checked_values(values)
        indices = _checked_indices("coo_indices", coo_indices, np.int64)
        count = values.size
        if indices.size == 2 * count and count and len(shape) == 2 and indices.ndim == 1:
            indices = indices.reshape(count, 2)
        if indices.size not in (count, count * len(shape)):
            raise InvalidArgument(
                f"coo_indices: expected {count} positions or [{count}, {len(shape)}] coordinates, got {list(indices.shape)}"
            )
        bounds = np.array(shape) if indices.ndim == 2 else np.prod(shape, dtype=np.int64)
        if indices.size and ((indices < 0).any() or (indices >= bounds).any()):
            raise InvalidArgument(f"coo_indices: an index is outside the dense shape {list(shape)}")
        return cls(shape, values.reshape(-1), (indices,), _COO)

    @classmethod
    def from_dense(cls, array: np.ndarray) -> SparseTensor:
        """The elements of a dense tensor that are not zero (not empty, of strings), as row-major positions."""
        flat = np.ascontiguousarray(array).reshape(-1)
        places = np.flatnonzero(flat != ("" if flat.dtype == object else 0)).astype(np.int64)
        return cls(array.shape, flat[places], (places,), _COO)

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int],
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice | None = None,
    ) -> SparseTensor:
        """From `values` [nnz], their columns int64 [nnz], and the starts of rows int64 [rows + 1].

        Raises:
            InvalidArgument: sizes or indices do not fit together.
        """
        shape = _checked_shape(dense_shape, ort_device)
        values = _checked_values(values).reshape(-1)
        inner = _checked_indices("inner_indices", inner_indices, np.int64)
        outer = _checked_indices("outer_indices", outer_indices, np.int64)
        if len(shape) != 2:
            raise InvalidArgument(f"compressed rows need a matrix, got the dense shape {list(shape)}")
        rows, columns = shape
        if inner.shape != values.shape or outer.shape != (rows + 1,) and outer.size:
            raise InvalidArgument(
                f"compressed rows: expected {values.size} inner indices and {rows + 1} outer indices, "
                f"got {list(inner.shape)} and {list(outer.shape)}"
            )
        ordered = not outer.size or (outer[0] == 0 and outer[-1] == values.size and bool((np.diff(outer) >= 0).all()))
        if not ordered or (inner.size and (inner.min() < 0 or inner.max() >= columns)):
            raise InvalidArgument(f"compressed rows: the indices do not fit the dense shape {list(shape)}")
        return cls(shape, values, (inner, outer), _CSR)

    @classmethod
    def blocksparse_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, indices: np.ndarray, ort_device: OrtDevice | None = None
    ) -> SparseTensor:
        """From `values` [blocks, height, width] and the blocks' rows and columns int32 [2, blocks].

        Raises:
            InvalidArgument: sizes or indices do not fit together.
        """
        shape = _checked_shape(dense_shape, ort_device)
        values = _checked_values(values)
        places = _checked_indices("indices", indices, np.int32)
        fits = len(shape) == 2 and values.ndim == 3 and places.shape == (2, len(values))
        if fits and values.size:
            ends = (places + 1) * np.array(values.shape[1:])[:, None]
            fits = bool((places >= 0).all() and (ends <= np.array(shape)[:, None]).all())
        if not fits:
            raise InvalidArgument(
                f"blocks {list(values.shape)} at indices {list(places.shape)} do not fit the dense shape {list(shape)}; "
                "expected values [blocks, height, width] and indices [2, blocks]"
            )
        return cls(shape, values, (places,), _BLOCKS)

    def format(self) -> OrtSparseFormat:
        """How its indices are laid out."""
        return self._format

    def values(self) -> np.ndarray:
        """The values, read-only (a copy for strings)."""
        return self._values.copy() if self._values.dtype == object else _view(self._values)

    def as_coo_view(self) -> SparseCooView:
        """Its indices, of a tensor in COO format. Raises InvalidArgument for others."""
        return SparseCooView(*self._indices_of(_COO))

    def as_csrc_view(self) -> SparseCsrView:
        """Its indices, of a tensor in CSR format. Raises InvalidArgument for others."""
        return SparseCsrView(*self._indices_of(_CSR))

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """Its indices, of a tensor in blocks. Raises InvalidArgument for others."""
        return SparseBlockSparseView(*self._indices_of(_BLOCKS))

    get_coo_data, get_csrc_data, get_blocksparse_data = as_coo_view, as_csrc_view, as_blocksparse_view

    def _indices_of(self, wanted: OrtSparseFormat) -> tuple[np.ndarray, ...]:
        if self._format is not wanted:
            raise InvalidArgument(f"expected a sparse tensor in {wanted.name}, this one is in {self._format.name}")
        return self._indices

    def to_cuda(self, ort_device: OrtDevice) -> NoReturn:
        """Raises NotImplemented: sparse tensors stay in host memory."""
        raise NotImplemented(f"sparse tensors stay in host memory: no provider takes them to {ort_device!r}")

    def dense_shape(self) -> list[int]:
        """The sizes of the tensor with its zeros."""
        return list(self._shape)

    def data_type(self) -> str:
        """ONNX's name of the type, such as 'sparse_tensor(float)'."""
        return f"sparse_tensor({DType.of(self._values.dtype if self._values.dtype != object else 'U').onnx_name})"

    def device_name(self) -> str:
        """ "cpu": sparse tensors stay in host memory."""
        return "cpu"

    def _host_value(self) -> np.ndarray:
        return self.to_dense()

    def _get_c_tensor(self) -> SparseTensor:
        return self

    def to_dense(self) -> np.ndarray:
        """The tensor with its zeros (empty strings where the values are strings)."""
        strings = self._values.dtype == object
        dense = np.full(self._shape, "", dtype=object) if strings else np.zeros(self._shape, self._values.dtype)
        if self._format is _COO and self._indices[0].ndim == 2:
            dense[tuple(self._indices[0].T)] = self._values
        elif self._format is _COO:
            dense.reshape(-1)[self._indices[0]] = self._values
        elif self._format is _CSR:
            inner, outer = self._indices
            rows = np.repeat(np.arange(self._shape[0]), np.diff(outer)) if outer.size else inner
            dense[rows, inner] = self._values
        else:
            _, height, width = self._values.shape
            for block, (row, column) in zip(self._values, self._indices[0].T, strict=True):
                dense[row * height : (row + 1) * height, column * width : (column + 1) * width] = block
        return dense

    def __repr__(self) -> str:
        return f"SparseTensor({self.data_type()}, {self.dense_shape()}, {self._format.name}, {self._values.size} values)"


def _checked_shape(dense_shape: Sequence[int], device: Any) -> tuple[int, ...]:
    if device is not None and not isinstance(device, OrtDevice):
        raise WrongType(f"ort_device: expected OrtDevice, got {device!r}")
    if device is not None and device.device_type() != OrtDevice.cpu():
        raise NotImplemented(f"sparse tensors are made in host memory; got {device!r}")
    shape = tuple(int(d) for d in dense_shape)
    if any(d < 0 for d in shape):
        raise InvalidArgument(f"dense_shape: expected sizes from 0, got {list(shape)}")
    return shape


def _checked_values(values: Any) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        raise WrongType(f"values: expected a NumPy array, got {type(values).__name__}")
    if values.dtype.kind in "USO":
        return np.array(values.astype(str) if values.dtype.kind == "S" else values, dtype=object)
    try:
        DType.of(values.dtype.newbyteorder("="))
    except TypeError as error:
        raise InvalidArgument(f"values: {error}") from error
    return np.array(values, dtype=values.dtype.newbyteorder("="), order="C")


def _checked_indices(what: str, indices: Any, dtype: type) -> np.ndarray:
    found = np.asarray(indices)
    if found.size and found.dtype.kind not in "iu":
        raise WrongType(f"{what}: expected integers, got {found.dtype.name}")
    return np.array(found, dtype=dtype, order="C")
