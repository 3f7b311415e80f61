"""What a device requires of a library's call once it is prepared: how much scratch it needs, and to start it in a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.codegen.clike.vendor_libraries.calls import Call


class NotOfferedError(Exception):
    """A library has nothing for a call; says why."""


class LibraryProgram:
    """A call that a library has agreed to.

    Attributes:
        title: for people: the library and what it does.
        workspace_nbytes: scratch that every start needs, lent by the plan: nothing is allocated when it starts.
    """

    title: str = ""
    workspace_nbytes: int = 0

    def start(self, stream: Any, addresses: np.ndarray) -> str:
        """Start it on memory at these addresses: the operands, the result and the scratch. Returns what is wrong, or ""."""
        raise NotImplementedError


def offset_nbytes(call: Call) -> list[int]:
    """How many bytes behind its value's begin each operand of a call begins."""
    from intarsia.codegen.clike.vendor_libraries.calls import operands

    return [view.offset * view.dtype.numpy.itemsize for _, view in operands(call)]
