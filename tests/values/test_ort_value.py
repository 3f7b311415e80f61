"""`OrtValue` and `IOBinding` in host memory."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import intarsia as ort
from intarsia.ep.device import Device, DeviceTensor
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.values.ort_value import OrtValue

AFFINE = "g (float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Neg(x)  z = Abs(x) }"
X = np.float32([[1, -2, 3]])


class TestOrtValue:
    def test_shares_the_arrays_memory(self) -> None:
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        value = OrtValue.ortvalue_from_numpy(array)
        array[0, 0] = 7
        assert value.numpy()[0, 0] == 7
        assert value.data_ptr() == array.ctypes.data
        assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", 1)
        assert (value.device_name(), value.tensor_size_in_bytes()) == ("cpu", 24)
        assert (value.has_value(), value.is_tensor(), value.is_tensor_sequence(), value.is_sparse_tensor()) == (
            True,
            True,
            False,
            False,
        )
        assert repr(value) == "OrtValue(tensor(float), [2, 3])"

    def test_converts_byte_order_and_strides(self) -> None:
        assert OrtValue.ortvalue_from_numpy(np.array([1], ">i4")).numpy().tolist() == [1]
        assert OrtValue.ortvalue_from_numpy(np.ones((2, 3)).T).numpy().flags.c_contiguous

    def test_other_onnx_types_of_the_same_size(self) -> None:
        value = OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3F80], np.uint16), int(DType.BFLOAT16))
        assert value.numpy().dtype == ml_dtypes.bfloat16
        assert float(value.numpy()[0]) == 1.0
        assert value.data_type() == "tensor(bfloat16)"
        with pytest.raises(InvalidArgument, match="expected elements of 2 bytes for bfloat16, got float32"):
            OrtValue.ortvalue_from_numpy_with_onnx_type(X, int(DType.BFLOAT16))

    def test_from_shape_and_type(self) -> None:
        assert OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).numpy().dtype == np.int64
        assert OrtValue.ortvalue_from_shape_and_type([2], 11).data_type() == "tensor(double)"
        assert OrtValue.ortvalue_from_shape_and_type([2], DType.STRING).numpy().tolist() == ["", ""]
        with pytest.raises(
            InvalidArgument, match=r"element type: expected a NumPy type or a TensorProto.DataType number, got 99"
        ):
            OrtValue.ortvalue_from_shape_and_type([2], 99)

    def test_dlpack_both_ways(self) -> None:
        value = OrtValue.from_dlpack(X)
        assert value.data_ptr() == X.ctypes.data
        assert np.shares_memory(np.from_dlpack(value), X)
        assert value.__dlpack_device__() == (1, 0)

    def test_as_an_array(self) -> None:
        value = OrtValue.ortvalue_from_numpy(X)
        assert np.asarray(value) is X
        assert np.array(value, dtype=np.float64).dtype == np.float64
        assert not np.shares_memory(np.array(value), X)

    def test_update_inplace(self) -> None:
        value = OrtValue.ortvalue_from_shape_and_type([1, 3])
        value.update_inplace(X)
        value.update_inplace(OrtValue(X.astype(">f4")))
        assert value.numpy().tolist() == X.tolist()
        with pytest.raises(InvalidArgument, match=r"update_inplace: expected an array float32 \[1, 3\], got float32 \[3\]"):
            value.update_inplace(X[0])
        with pytest.raises(InvalidArgument, match="got list"):
            value.update_inplace([1])

    def test_sequences_and_optionals(self) -> None:
        assert OrtValue([X]).data_type() == "seq(tensor(float))"
        assert OrtValue([]).is_tensor_sequence()
        assert not OrtValue(None).has_value()
        assert repr(OrtValue(None)) == "OrtValue(an empty optional)"
        with pytest.raises(InvalidArgument, match=r"OrtValue.shape: expected a tensor, this value is a sequence"):
            OrtValue([X]).shape()
        with pytest.raises(InvalidArgument, match=r"OrtValue.data_ptr: expected a tensor in host memory, this value is a map"):
            OrtValue({}).data_ptr()

    def test_device_tensors(self) -> None:
        value = OrtValue(DeviceTensor(DType.FLOAT, (2,), Device("acc"), None))
        assert (value.device_name(), value.shape(), value.data_type(), value.tensor_size_in_bytes()) == (
            "acc",
            [2],
            "tensor(float)",
            8,
        )
        with pytest.raises(InvalidArgument, match="this value is a tensor on acc:0"):
            value.data_ptr()

    def test_arguments(self) -> None:
        with pytest.raises(InvalidArgument, match="Creation of OrtValues is only supported from numpy arrays: got list"):
            OrtValue.ortvalue_from_numpy([1, 2])  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="Unsupported device type: 'xpu'; did you mean 'npu'"):
            OrtValue.ortvalue_from_numpy(X, "xpu")
        with pytest.raises(
            InvalidArgument,
            match="device cann:0: no provider keeps values there; expected one of 'cpu', 'webgpu', 'cuda'",
        ):
            OrtValue.ortvalue_from_numpy(X, "cann", 0)
        with pytest.raises(InvalidArgument, match="element type"):
            OrtValue.ortvalue_from_numpy(np.zeros(1, "M8[s]"))


class TestIOBinding:
    def test_outputs_in_the_order_they_were_bound(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("z")
        binding.bind_output("y", "cpu")
        session.run_with_iobinding(binding)
        assert [v.tolist() for v in binding.copy_outputs_to_cpu()] == [[[1, 2, 3]], [[-1, 2, -3]]]
        assert [v.shape() for v in binding.get_outputs()] == [[1, 3], [1, 3]]
        assert len(binding.get_outputs_as_ortvaluevector()) == 2
        binding.synchronize_inputs()
        binding.synchronize_outputs()

    def test_writes_into_bound_memory(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        source, y, z = X.copy(), np.zeros((1, 3), np.float32), OrtValue.ortvalue_from_shape_and_type([1, 3])
        binding.bind_input("x", "cpu", 0, np.float32, [1, 3], source.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, [1, 3], y.ctypes.data)
        binding.bind_ortvalue_output("z", z)
        session.run_with_iobinding(binding)
        assert y.tolist() == [[-1, 2, -3]]
        assert z.numpy().tolist() == [[1, 2, 3]]
        source[:] = 5
        session.run_with_iobinding(binding)
        assert y.tolist() == [[-5, -5, -5]]
        assert binding.get_outputs()[1].data_ptr() == z.data_ptr()

    def test_ort_values_as_inputs(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", OrtValue.ortvalue_from_numpy(X))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [[-1, 2, -3]]
        binding.clear_binding_inputs()
        with pytest.raises(InvalidArgument, match=r"Required inputs \(\['x'\]\) are missing"):
            session.run_with_iobinding(binding)

    def test_wrong_names(self, make_session) -> None:
        binding = make_session(AFFINE).io_binding()
        with pytest.raises(InvalidArgument, match="Failed to find NodeArg with name: q in the def list; inputs: valid: 'x'"):
            binding.bind_cpu_input("q", X)
        with pytest.raises(
            InvalidArgument, match="Failed to find NodeArg with name: q in the def list; outputs: valid: 'y', 'z'"
        ):
            binding.bind_output("q")

    def test_wrong_buffers(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        with pytest.raises(InvalidArgument, match="output 'y': a buffer needs `element_type` and `shape`, got None and None"):
            binding.bind_output("y", buffer_ptr=1)
        binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_shape_and_type([2, 3]))
        with pytest.raises(InvalidArgument, match=r"output 'y' is float32 \[1, 3\], the bound buffer is float32 \[2, 3\]"):
            session.run_with_iobinding(binding)
        with pytest.raises(InvalidArgument, match="a buffer of strings cannot be bound by its address"):
            binding.bind_input("x", "cpu", 0, DType.STRING, [1], 0)

    @pytest.mark.parametrize(
        ("shape", "pointer", "expected"),
        [
            ([2.5], 4096, "shape of a buffer: expected a sequence of integers, got [2.5]"),
            (["a"], 4096, "shape of a buffer: expected a sequence of integers, got ['a']"),
            (3, 4096, "shape of a buffer: expected a sequence of integers, got 3"),
            ([-1, 3], 4096, "shape of a buffer: expected sizes from 0, got [-1, 3]"),
            ([2**32, 2**32], 4096, "shape of a buffer: expected less than 2^63 bytes"),
            ([2**33, 2**31 + 1], 4096, "shape of a buffer: expected less than 2^63 bytes"),
            ([0, 2**62, 2**62], 4096, "shape of a buffer: expected less than 2^63 bytes"),
            ([2**64], 4096, "shape of a buffer: expected less than 2^63 bytes"),
            ([2, 3], 0, "buffer_ptr: expected the address of 24 bytes, got 0"),
            ([2, 3], None, "buffer_ptr: expected the address of 24 bytes, got None"),
            ([2, 3], -4096, "buffer_ptr: expected the address of 24 bytes, got -4096"),
            ([2, 3], 1.5, "buffer_ptr: expected the address of 24 bytes, got 1.5"),
            ([2, 3], "4096", "buffer_ptr: expected the address of 24 bytes, got '4096'"),
            ([2, 3], 2**64 - 8, "buffer_ptr: expected the address of 24 bytes"),
        ],
    )
    def test_addresses_and_shapes_that_are_none(self, shape: Any, pointer: Any, expected: str, make_session) -> None:
        binding = make_session(AFFINE).io_binding()
        if pointer is not None:  # which means memory that the run makes, for an output
            with pytest.raises(InvalidArgument, match=re.escape(expected)):
                binding.bind_output("y", "cpu", 0, np.float32, shape, pointer)
        with pytest.raises(InvalidArgument, match=re.escape(expected)):
            binding.bind_input("x", "cpu", 0, np.float32, shape, pointer)

    def test_empty_buffers(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, [0, 3], 0)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert binding.get_outputs()[0].shape() == [0, 3]

    def test_no_output_and_other_sessions(self, make_session) -> None:
        session = make_session(AFFINE)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        with pytest.raises(InvalidArgument, match="Error in execution: At least one output should be requested"):
            session.run_with_iobinding(binding)
        binding.bind_output("y")
        with pytest.raises(InvalidArgument, match="expected a binding made by this session's io_binding"):
            make_session(AFFINE).run_with_iobinding(binding)
        binding.clear_binding_outputs()
        assert binding.get_outputs() == []


def test_top_level_names() -> None:
    assert ort.OrtValue is OrtValue
    assert ort.IOBinding is ort.SessionIOBinding
