"""Structs behind the handles that native code follows: values, contexts of calls, and descriptions of tensors.

Each begins with a mark of its kind, so that a handle of something else is told apart.
"""

from __future__ import annotations

import ctypes

VALUE_MARK, CONTEXT_MARK, INFO_MARK, MEMORY_MARK = (
    0x4F5256414C554531, 0x4F524B4354583031, 0x4F5254494E464F31, 0x4F524D454D303031
)  # fmt: skip
_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p


class ValueFields(ctypes.Structure):
    """A value: its ONNXType; of a tensor its element type, elements, sizes, and how many elements and bytes there are."""

    _fields_ = (
        ("mark", _NUMBER), ("kind", _NUMBER), ("dtype", _NUMBER), ("data", _POINTER), ("nbytes", _NUMBER),
        ("rank", _NUMBER), ("count", _NUMBER), ("dims", _POINTER), ("memory", _POINTER),
    )  # fmt: skip


class ContextFields(ctypes.Structure):
    """A call: how many inputs and outputs there are, arrays of their handles (0: not there), and those of outputs that the
    plugin may write to before it knows their sizes."""

    _fields_ = (
        ("mark", _NUMBER), ("input_count", _NUMBER), ("output_count", _NUMBER), ("inputs", _POINTER), ("outputs", _POINTER),
        ("preallocated", _POINTER),
    )  # fmt: skip


class MemoryInfoFields(ctypes.Structure):
    """A memory, with its fields where onnxruntime 1.32 has them on Linux.

    The interface has functions for them, and says nothing of places. But plugins that are made of onnxruntime's own sources
    (WebGPU) read them as C++ objects, the name as libstdc++'s string, whose characters may be anywhere.
    """

    _fields_ = (
        ("name", _POINTER), ("name_nbytes", _NUMBER), ("unused", _NUMBER * 2), ("mem_type", ctypes.c_int32),
        ("allocator", ctypes.c_int32), ("kind", ctypes.c_int8), ("memory", ctypes.c_int8), ("device_id", ctypes.c_int16),
        ("vendor_id", ctypes.c_uint32), ("alignment", ctypes.c_uint64),
    )  # fmt: skip


class MarkedMemoryInfo(ctypes.Structure):
    """The same behind a mark of its kind: its place in it is the handle."""

    _fields_ = (("mark", _NUMBER), ("fields", MemoryInfoFields))


class InfoFields(ctypes.Structure):
    """What a tensor is: -1 stands for sizes, and a count, that are not known. `native`: made by native code, which frees it."""

    _fields_ = (
        ("mark", _NUMBER), ("dtype", _NUMBER), ("rank", _NUMBER), ("dims", _POINTER), ("count", _NUMBER), ("native", _NUMBER),
    )  # fmt: skip
