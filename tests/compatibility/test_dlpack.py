"""Tensors to and from other libraries by DLPack, with the types that NumPy lacks."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from intarsia.capi import _pybind_state as state
from intarsia.errors import InvalidArgument, WrongType
from intarsia.values.dlpack import array_of, capsule_of
from intarsia.values.ort_value import OrtValue, OrtValueVector

TYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
EXOTIC = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", [*TYPES, "complex64", *EXOTIC])
def test_a_capsule_brings_the_same_memory_back(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name)) if name in EXOTIC else np.dtype(name)
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = OrtValue.ortvalue_from_numpy(array)
    back = OrtValue.from_dlpack(value.to_dlpack())
    assert back.numpy().dtype == dtype
    assert back.data_ptr() == array.ctypes.data
    assert back.numpy().tobytes() == array.tobytes()


def test_values_are_made_from_their_low_level_form_and_what_keeps_it() -> None:
    array = np.arange(3, dtype=np.float32)
    value = OrtValue(state.OrtValue.from_dlpack(array.__dlpack__(), False), array)
    assert value.data_ptr() == array.ctypes.data
    again = OrtValue(value._ortvalue, numpy_obj=array, session=None)
    del value, array
    gc.collect()
    np.testing.assert_array_equal(again.numpy(), [0, 1, 2])


@pytest.mark.parametrize("name", [*TYPES, *EXOTIC])
def test_torch_both_ways(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the library at the other end")
    kind = getattr(torch, name, None)
    if kind is None:
        pytest.skip(f"this PyTorch has no {name}")
    tensor = torch.arange(6).reshape(2, 3).to(kind)
    try:
        value = OrtValue.from_dlpack(tensor)
    except (BufferError, RuntimeError):
        pytest.skip(f"this PyTorch exports no {name}")
    assert value.data_ptr() == tensor.data_ptr()
    assert value.shape() == [2, 3]
    back = torch.from_dlpack(value)
    assert back.dtype == kind
    assert back.data_ptr() == tensor.data_ptr()
    del value, tensor
    gc.collect()
    assert back.to(torch.float32).reshape(-1)[1].item() == 1


def test_a_transposed_tensor_keeps_its_strides() -> None:
    torch = pytest.importorskip("torch", reason="the library at the other end")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
    assert array_of(tensor).strides == (4, 12)
    assert OrtValue.from_dlpack(tensor).numpy().flags.c_contiguous


def test_the_producer_gets_its_memory_back() -> None:
    torch = pytest.importorskip("torch", reason="the library at the other end")
    storage = torch.ones(1 << 20)
    value = OrtValue.from_dlpack(storage)
    view = value.numpy()[:3]
    del value, storage
    gc.collect()
    assert view.tolist() == [1, 1, 1]


def test_what_is_exported_stays_alive_and_is_freed() -> None:
    from intarsia.values import dlpack

    array = np.ones(4, ml_dtypes.bfloat16)
    before = len(dlpack._exported)
    capsule = capsule_of(array)
    assert len(dlpack._exported) == before + 1
    del capsule  # never consumed
    gc.collect()
    assert len(dlpack._exported) == before
    held = array_of(capsule_of(array))
    del array
    assert held.tolist() == [1, 1, 1, 1]
    assert len(dlpack._exported) == before + 1
    del held
    gc.collect()
    assert len(dlpack._exported) == before


def test_empty_tensors_and_scalars() -> None:
    assert array_of(capsule_of(np.zeros((0, 3), ml_dtypes.bfloat16))).shape == (0, 3)
    scalar = np.array(2, ml_dtypes.bfloat16)
    assert array_of(capsule_of(scalar)).shape == ()


def test_booleans_that_are_called_bytes() -> None:
    capsule = OrtValue.ortvalue_from_numpy(np.array([1, 0], np.uint8)).to_dlpack()
    assert state.is_dlpack_uint8_tensor(capsule)
    assert OrtValue.from_dlpack(capsule, True).numpy().tolist() == [True, False]
    assert not state.is_dlpack_uint8_tensor(OrtValue.ortvalue_from_numpy(np.float32([1])).to_dlpack())


def test_errors() -> None:
    capsule = OrtValue.ortvalue_from_numpy(np.float32([1])).to_dlpack()
    OrtValue.from_dlpack(capsule)
    with pytest.raises(InvalidArgument, match="a DLPack capsule that has not been consumed yet"):
        OrtValue.from_dlpack(capsule)
    with pytest.raises(WrongType, match="expected a DLPack capsule or an object with __dlpack__, got list"):
        OrtValue.from_dlpack([1])
    with pytest.raises(InvalidArgument, match="DLPack has no type for int4"):
        OrtValue.ortvalue_from_numpy(np.zeros(2, ml_dtypes.int4)).to_dlpack()

    class Remote:
        device = (8, 0)

        def __dlpack__(self) -> object:
            raise AssertionError("must not be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device

    with pytest.raises(InvalidArgument, match=r"a tensor on DLPack device 8:0; expected host memory \(1\), cuda \(2\)"):
        OrtValue.from_dlpack(Remote())
    Remote.device = (2, 99)
    with pytest.raises(InvalidArgument, match="device cuda:99 cannot be used"):
        OrtValue.from_dlpack(Remote())


class TestOrtValueVector:
    def test_is_a_list(self) -> None:
        vector = OrtValueVector()
        vector.reserve(3)
        vector.push_back(OrtValue.ortvalue_from_numpy(np.float32([1])))
        vector.push_back(OrtValue.ortvalue_from_numpy(np.array([1], np.uint8)).to_dlpack(), True)
        vector.shrink_to_fit()
        assert len(vector) == 2
        assert [v.data_type() for v in vector] == ["tensor(float)", "tensor(bool)"]
        assert vector.bool_tensor_indices() == [1]
        assert vector.element_type_at(0) == 1
        assert array_of(vector.dlpack_at(0)).tolist() == [1]
        assert [array_of(c).tolist() for c in vector.to_dlpacks()] == [[1], [True]]
        assert [a.tolist() for a in vector.to_dlpacks(array_of)] == [[1], [True]]
        assert repr(vector).startswith("OrtValueVector([OrtValue(tensor(float), [1])")

    def test_tensors_by_address(self) -> None:
        array = np.arange(4, dtype=np.float32)
        vector = OrtValueVector()
        device = state.OrtDevice(0, 0, 0)
        vector.push_back_batch([array], [array.ctypes.data], [np.float32], [[2, 2]], [device])
        assert vector[0].data_ptr() == array.ctypes.data
        with pytest.raises(InvalidArgument, match=r"push_back_batch: expected lists of one length, got \[1, 0, 0, 0, 0\]"):
            vector.push_back_batch([array], [], [], [], [])
