"""What native code knows of the interpreter that it works in: addresses of its functions, and where objects have their fields.

Native code reads fields of Python's and NumPy's objects where CPython's and NumPy's headers have them, and calls their
functions by address. That is tried out on objects of several kinds first; other interpreters, builds for debugging or without
a GIL, and 32 bits are not known.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, TypeVar

import numpy as np

from intarsia.runtime import spmd_state as word

_T = TypeVar("_T")
_TAKES_ONE_ARGUMENT = 8  # METH_O
_NEW_FROM_DESCR, _SET_BASE_OBJECT = 94, 282  # places in NumPy's table of functions, which its binary interface fixes
_ARRAYS = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_FUNCTIONS = (
    "PyDict_GetItemWithError", "PyDict_Size", "Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyList_New", "PyList_SetItem", "PyObject_CallObject", "PyTuple_GetItem", "PyTuple_Size",
    "PyLong_AsSsize_t", "PyLong_FromSsize_t", "PyCapsule_New", "PyMem_RawMalloc", "PyMem_RawFree",
)  # fmt: skip


class Words(np.ndarray):
    """The words of one call; `held` are the objects whose addresses they have."""

    held: tuple[object, ...]


class Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )

    @classmethod
    def of(cls, name: str, address: int, doc: str) -> Method:
        """A function of one argument; its first one is what it is made with."""
        return lasting(cls(name.encode(), address, _TAKES_ONE_ARGUMENT, doc.encode()))


def native_function(words: Words, method: Method) -> Any:
    """A built-in function that works on these words."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), words, None)


@functools.cache
def functions() -> np.ndarray | None:
    """Addresses of the functions that native code calls, in the order of `spmd_state.API_...`; None where it would not
    understand this interpreter's objects."""
    if sys.implementation.name != "cpython" or not _laid_out_as_known():
        return None
    new, set_base = array_function(_NEW_FROM_DESCR), array_function(_SET_BASE_OBJECT)
    if not new or not set_base:
        return None
    found = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return lasting(np.array([*found, new, set_base], np.int64))


def array_function(place: int) -> int | None:
    """The address of NumPy's C function at this place of its table; None where it has none."""
    module = next((sys.modules[name] for name in _ARRAYS if name in sys.modules), None)
    capsule = getattr(module, "_ARRAY_API", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return (ctypes.c_void_p * (place + 1)).from_address(pointer(capsule, None))[place]


def lasting(found: _T) -> _T:
    """An object that is never freed: threads may be in native code, which reads it, until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found


def _laid_out_as_known() -> bool:
    """Whether objects' fields are where native code reads them: tried on arrays of several kinds."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or object.__basicsize__ != word.ARRAY_DATA:
        return False
    if "t" in getattr(sys, "abiflags", "") or hasattr(sys, "gettotalrefcount"):
        return False
    samples: list[np.ndarray] = [
        np.zeros(3),
        np.zeros((4, 5), np.float32)[1:, 2:],
        np.zeros((), np.int64),
        np.zeros((0, 2), np.uint8),
    ]
    samples.append(np.zeros((2, 3)).T)
    samples[0].flags.writeable = False
    return all(_as_known(array) for array in samples) and _capsule_as_known()


def _capsule_as_known() -> bool:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = make(4096, None, None)
    return ctypes.c_size_t.from_address(id(capsule) + word.ARRAY_DATA).value == 4096


def _as_known(array: np.ndarray) -> bool:
    address = id(array)

    def at(offset: int) -> int:
        return ctypes.c_size_t.from_address(address + offset).value

    if (at(word.OBJECT_TYPE), at(word.ARRAY_DESCR)) != (id(type(array)), id(array.dtype)):
        return False
    rank = ctypes.c_int.from_address(address + word.ARRAY_ND).value
    if at(word.ARRAY_DATA) != array.ctypes.data or rank != array.ndim:
        return False
    sizes = (ctypes.c_ssize_t * rank).from_address(at(word.ARRAY_DIMS)) if rank else ()
    flags = ctypes.c_int.from_address(address + word.ARRAY_FLAGS).value
    return tuple(sizes) == array.shape and flags == array.flags.num
