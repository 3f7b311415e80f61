"""Sparse tensors."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia as ort
from intarsia.capi._pybind_state import OrtDevice
from intarsia.errors import InvalidArgument, NotImplemented, WrongType

CPU = ort.OrtDevice.make("cpu", 0)
VALUES = np.float32([1, 2, 3])
DENSE = [[1, 0, 0], [0, 2, 0], [0, 0, 3]]


@pytest.mark.parametrize("indices", [np.int64([0, 4, 8]), np.int64([0, 0, 1, 1, 2, 2]), np.int64([[0, 0], [1, 1], [2, 2]])])
def test_coordinates(indices: np.ndarray) -> None:
    tensor = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, indices, CPU)
    assert tensor.format() is ort.OrtSparseFormat.ORT_SPARSE_COO
    assert (tensor.dense_shape(), tensor.data_type(), tensor.device_name()) == ([3, 3], "sparse_tensor(float)", "cpu")
    assert tensor.values().tolist() == [1, 2, 3]
    assert tensor.as_coo_view().indices().size == indices.size
    assert tensor.to_dense().tolist() == DENSE
    assert not tensor.values().flags.writeable
    assert not tensor.as_coo_view().indices().flags.writeable


def test_compressed_rows() -> None:
    tensor = ort.SparseTensor.sparse_csr_from_numpy([3, 3], VALUES, np.int64([0, 1, 2]), np.int64([0, 1, 2, 3]), CPU)
    assert tensor.format() is ort.OrtSparseFormat.ORT_SPARSE_CSRC
    assert tensor.as_csrc_view().inner().tolist() == [0, 1, 2]
    assert tensor.as_csrc_view().outer().tolist() == [0, 1, 2, 3]
    assert tensor.to_dense().tolist() == DENSE


def test_blocks() -> None:
    values = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
    tensor = ort.SparseTensor.blocksparse_from_numpy([4, 4], values, np.int32([[0, 1], [1, 0]]), OrtDevice(0, 0, 0))
    assert tensor.format() is ort.OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE
    assert tensor.as_blocksparse_view().indices().dtype == np.int32
    assert tensor.to_dense().tolist() == [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]


def test_strings() -> None:
    tensor = ort.SparseTensor.sparse_coo_from_numpy([2, 2], np.array(["a", "bc"]), np.int64([0, 3]), CPU)
    assert tensor.data_type() == "sparse_tensor(string)"
    assert tensor.values().tolist() == ["a", "bc"]
    assert tensor.to_dense().tolist() == [["a", ""], ["", "bc"]]


def test_is_a_copy() -> None:
    values = VALUES.copy()
    tensor = ort.SparseTensor.sparse_coo_from_numpy([9], values, np.int64([0, 4, 8]), CPU)
    values[:] = 0
    assert tensor.values().tolist() == [1, 2, 3]


def test_as_a_value_and_as_an_input(make_session) -> None:
    tensor = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.int64([0, 4, 8]), CPU)
    value = ort.OrtValue.ort_value_from_sparse_tensor(tensor)
    assert (value.is_sparse_tensor(), value.is_tensor(), value.has_value()) == (True, False, True)
    assert (value.shape(), value.data_type(), value.element_type()) == ([3, 3], "sparse_tensor(float)", 1)
    assert value.as_sparse_tensor().values().tolist() == [1, 2, 3]
    session = make_session()
    for given in (tensor, value):
        assert session.run(["z"], {"x": given})[0].tolist() == DENSE
    with pytest.raises(InvalidArgument, match=r"OrtValue.numpy: only dense tensors.*use as_sparse_tensor"):
        value.numpy()
    with pytest.raises(InvalidArgument, match="as_sparse_tensor: expected a sparse tensor, this value is a tensor"):
        ort.OrtValue.ortvalue_from_numpy(VALUES).as_sparse_tensor()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.int64([0, 4, 9])), "an index is outside"),
        (lambda: ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.int64([0, 4])), r"expected 3 positions or \[3, 2\]"),
        (lambda: ort.SparseTensor.sparse_coo_from_numpy([-1], VALUES, np.int64([0])), "dense_shape: expected sizes from 0"),
        (
            lambda: ort.SparseTensor.sparse_csr_from_numpy([3, 3], VALUES, np.int64([0, 1, 2]), np.int64([0, 1])),
            "expected 3 inner indices and 4 outer indices",
        ),
        (
            lambda: ort.SparseTensor.sparse_csr_from_numpy([3, 3], VALUES, np.int64([0, 1, 9]), np.int64([0, 1, 2, 3])),
            "the indices do not fit the dense shape",
        ),
        (
            lambda: ort.SparseTensor.sparse_csr_from_numpy([9], VALUES, np.int64([0, 1, 9]), np.int64([0, 1, 2, 3])),
            "compressed rows need a matrix",
        ),
        (
            lambda: ort.SparseTensor.blocksparse_from_numpy([4, 4], np.ones((1, 2, 2)), np.int32([[2], [0]])),
            "do not fit the dense shape",
        ),
        (
            lambda: ort.SparseTensor.sparse_coo_from_numpy([3], VALUES, np.int64([0, 1, 2])).as_csrc_view(),
            "expected a sparse tensor in ORT_SPARSE_CSRC, this one is in ORT_SPARSE_COO",
        ),
    ],
)
def test_what_does_not_fit(make, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_other_types_and_places() -> None:
    with pytest.raises(WrongType, match="values: expected a NumPy array, got list"):
        ort.SparseTensor.sparse_coo_from_numpy([3], [1], np.int64([0]))  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="coo_indices: expected integers, got float64"):
        ort.SparseTensor.sparse_coo_from_numpy([3], VALUES, np.float64([0, 1, 2]))
    with pytest.raises(NotImplemented, match="sparse tensors are made in host memory"):
        ort.SparseTensor.sparse_coo_from_numpy([3], VALUES, np.int64([0, 1, 2]), ort.OrtDevice.make("cuda", 0))
    with pytest.raises(NotImplemented, match="sparse tensors stay in host memory"):
        ort.SparseTensor.sparse_coo_from_numpy([3], VALUES, np.int64([0, 1, 2])).to_cuda(ort.OrtDevice.make("cuda", 0))
    with pytest.raises(WrongType, match="expected a SparseTensor, got int"):
        ort.OrtValue.ort_value_from_sparse_tensor(5)  # type: ignore[arg-type]
