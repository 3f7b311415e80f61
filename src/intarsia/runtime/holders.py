"""Objects that hold one value each, for native code that looks inside (`spmd_feed`).

Their type (`intarsia.values.ort_value.OrtValue`) is imported late, if at all: until then no object is one.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from intarsia.runtime import spmd_state as word

WORDS = np.zeros(word.HOLDER_WORDS, np.int64)  # the type's address and the bytes to the value in an object of it, or zeros

_held: list[type] = []


def note(kind: type, attribute: str) -> None:
    """Say that objects of exactly this type have their value in a slot of this name."""
    if sys.implementation.name != "cpython":
        return
    sample: object = object.__new__(kind)
    value = object()
    setattr(sample, attribute, value)
    places = range(object.__basicsize__, kind.__basicsize__, ctypes.sizeof(ctypes.c_void_p))
    found = [place for place in places if ctypes.c_size_t.from_address(id(sample) + place).value == id(value)]
    if len(found) == 1:
        _held.append(kind)
        WORDS[word.HOLDER_PLACE], WORDS[word.HOLDER_TYPE] = found[0], id(kind)
