"""Tensors in all the forms that ONNX has for them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidModelError
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.protobuf_wire import Message
from intarsia.graph.formats.tensor_proto import MAX_RANK, pack_bits, read_sparse, read_tensor, unpack_bits
from intarsia.graph.model import Constant

NUMBERS = [d for d in DType if d not in (DType.UNDEFINED, DType.STRING)]


def constant(tensor: onnx.TensorProto | bytes) -> Constant:
    data = tensor if isinstance(tensor, bytes) else tensor.SerializeToString()
    return read_tensor(data, 0, len(data), ExternalFiles(None), "model").constant()


def sample(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Any bit patterns that are numbers of the type."""
    rng = np.random.default_rng(int(dtype))
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_complex:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    codes = rng.integers(0, 1 << min(dtype.bits, 8), (*shape, dtype.numpy.itemsize)).astype(np.uint8)
    return codes.view(dtype.numpy)[..., 0]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (5, 7), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.onnx_name)
def test_raw_data(dtype: DType, shape: tuple[int, ...]) -> None:
    expected = sample(dtype, shape)
    found = constant(numpy_helper.from_array(expected, "t"))
    assert (found.name, found.dtype, found.shape) == ("t", dtype, shape)
    assert found.numpy().dtype == dtype.numpy
    assert found.numpy().shape == shape
    assert found.numpy().tobytes() == expected.tobytes()
    assert not found.numpy().flags.writeable


@pytest.mark.parametrize("size", [0, 1, 4, 6, 200])
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.onnx_name)
def test_typed_fields(dtype: DType, size: int) -> None:
    tensor = helper.make_tensor("t", dtype, [size], sample(dtype, (size,)))
    expected = numpy_helper.to_array(tensor)
    found = constant(tensor).numpy()
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d.bits < 8], ids=lambda d: d.onnx_name)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31])
def test_packing(dtype: DType, size: int) -> None:
    expected = sample(dtype, (size,))
    packed = pack_bits(expected, dtype)
    assert packed.tobytes() == numpy_helper.from_array(expected).raw_data
    assert unpack_bits(packed, dtype, size).tobytes() == expected.tobytes()


def test_negative_small_integers() -> None:
    found = constant(numpy_helper.from_array(np.array([-8, 7, -1], ml_dtypes.int4))).numpy()
    assert found.astype(np.int32).tolist() == [-8, 7, -1]


def test_strings() -> None:
    tensor = helper.make_tensor("t", TensorProto.STRING, [2, 2], ["a", "é", "", "long text"])
    tensor.string_data[0] = b"\xff"
    found = constant(tensor).numpy()
    assert found.dtype == object
    assert found.tolist() == [[b"\xff", "é"], ["", "long text"]]


def test_unpacked_fields() -> None:
    tensor = Message()
    tensor.integer(1, 2)
    tensor.integer(2, TensorProto.INT64)
    for value in (-1, 300):
        tensor.integer(7, value)
    assert constant(tensor.join()).numpy().tolist() == [-1, 300]
    floats = Message()
    floats.packed_integers(1, [2])
    floats.integer(2, TensorProto.FLOAT)
    for number in (0.5, -2.0):
        floats.float32(4, number)
    assert constant(floats.join()).numpy().tolist() == [0.5, -2.0]


def test_packed_field_in_pieces() -> None:
    tensor = Message()
    tensor.integer(1, 3)
    tensor.integer(2, TensorProto.INT32)
    tensor.packed_integers(5, [1, -2])
    tensor.packed_integers(5, [3])
    assert constant(tensor.join()).numpy().tolist() == [1, -2, 3]


def test_raw_bools_are_zero_or_not() -> None:
    found = constant(TensorProto(name="t", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x01\xff")).numpy()
    assert found.view(np.uint8).tolist() == [0, 1, 1]


def test_raw_data_is_viewed_in_place() -> None:
    data = numpy_helper.from_array(np.arange(100, dtype=np.float32), "t").SerializeToString()
    found = read_tensor(data, 0, len(data), ExternalFiles(None), "model").array()
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    assert start < found.__array_interface__["data"][0] < start + len(data)


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_type": FLOAT, "dims": [3, 4], "raw_data": bytes(40)}, r"float\[3, 4\] needs 48 bytes of raw_data, it has 40"),
        ({"data_type": FLOAT, "dims": [], "raw_data": bytes(8)}, r"float\[\] needs 4 bytes of raw_data, it has 8"),
        ({"data_type": FLOAT, "dims": [2], "float_data": [1.0]}, "needs 2 entries of float_data, it has 1"),
        ({"data_type": TensorProto.COMPLEX64, "dims": [1], "float_data": [1.0]}, "needs 2 entries of float_data, it has 1"),
        ({"data_type": TensorProto.INT4, "dims": [3], "int32_data": [1]}, "needs 2 entries of int32_data, it has 1"),
        ({"data_type": TensorProto.INT64, "dims": [2], "int64_data": [1] * 99}, "needs 2 entries of int64_data, it has 99"),
        ({"data_type": TensorProto.STRING, "dims": [2], "string_data": [b"a"]}, "needs 2 entries of string_data, it has 1"),
        ({"data_type": TensorProto.STRING, "dims": [1], "raw_data": b"a"}, "strings cannot be stored in raw_data"),
        ({"data_type": FLOAT, "dims": [1], "int64_data": [1]}, "stored in int64_data, expected float_data or raw_data"),
        ({"data_type": FLOAT, "dims": [1], "int64_data": [1], "float_data": [1.0]}, "stored twice, in .* and in"),
        ({"data_type": FLOAT, "dims": [1]}, r"float\[1\] has no data"),
        ({"data_type": FLOAT, "dims": [-1, 2]}, r"dimensions \[-1, 2\] contain a negative size"),
        ({"data_type": FLOAT, "dims": [1 << 40, 1 << 40]}, "too large for any memory"),
        ({"data_type": FLOAT, "dims": [0, 1 << 62]}, "too large for any memory"),
        ({"data_type": FLOAT, "dims": [1 << 33]}, "has no data"),
        ({"data_type": FLOAT, "dims": [1] * (MAX_RANK + 1), "raw_data": bytes(4)}, "33 dimensions, at most 32"),
        ({"data_type": 77, "dims": [1]}, "element type 77 is unknown"),
        ({"dims": [1]}, "element type 0 is unknown"),
        ({"data_type": FLOAT, "dims": [1], "segment": TensorProto.Segment(begin=0, end=1)}, "stored in segments"),
        ({"data_type": TensorProto.STRING, "dims": [1], "data_location": 1}, "strings cannot be stored as external data"),
    ],
)
def test_contradictions(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidModelError, match=message) as caught:
        constant(TensorProto(name="w", **fields))
    assert "tensor 'w' at byte 0" in str(caught.value) or "tensor '' at byte 0" in str(caught.value)


def test_packed_and_unpacked() -> None:
    tensor = Message()
    tensor.integer(1, 2)
    tensor.integer(2, TensorProto.INT64)
    tensor.integer(7, 1)
    tensor.packed_integers(7, [1])
    with pytest.raises(InvalidModelError, match="int64_data is stored both packed and unpacked"):
        constant(tensor.join())


def test_float_data_of_a_broken_length() -> None:
    tensor = Message()
    tensor.integer(1, 1)
    tensor.integer(2, FLOAT)
    tensor.raw(4, bytes(5))
    with pytest.raises(InvalidModelError, match="the bytes of float_data are no multiple of 4"):
        constant(tensor.join())


def test_varints_that_do_not_end_are_found_when_read() -> None:
    tensor = Message()
    tensor.integer(1, 1)
    tensor.integer(2, TensorProto.INT64)
    tensor.raw(7, b"\x01\x80")
    with pytest.raises(InvalidModelError, match="the last varint does not end"):
        constant(tensor.join()).numpy()


def sparse(values: np.ndarray | None, indices: np.ndarray, dims: list[int]) -> bytes:
    proto = onnx.SparseTensorProto(dims=dims, indices=numpy_helper.from_array(indices))
    if values is not None:
        proto.values.CopyFrom(numpy_helper.from_array(values, "s"))
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("values", "indices", "dims", "message"),
    [
        (None, np.int64([0]), [2], "has no values"),
        (np.float32([1]), np.int64([5]), [2], r"a sparse tensor index lies outside \[2\]"),
        (np.float32([1]), np.int64([[0, 5]]), [2, 2], "index lies outside"),
        (np.float32([1]), np.int64([-1]), [2], "index lies outside"),
        (np.float32([1]), np.int64([0, 1]), [2], r"indices are int64\[2\], expected int64\[1\] or int64\[1, 1\]"),
        (np.float32([1]), np.int32([0]), [2], "indices are int32"),
        (np.float32([[1]]), np.int64([0]), [2], "expected numbers in one dimension"),
        (np.float32([1]), np.int64([0]), [], "expected one or more sizes"),
        (np.float32([1]), np.int64([0]), [1 << 40, 1 << 40], "bytes when dense"),
    ],
)
def test_sparse_contradictions(values: np.ndarray | None, indices: np.ndarray, dims: list[int], message: str) -> None:
    data = sparse(values, indices, dims)
    with pytest.raises(InvalidModelError, match=message):
        read_sparse(data, 0, len(data), ExternalFiles(None), "model")
