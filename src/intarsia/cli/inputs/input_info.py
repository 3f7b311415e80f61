"""What commands ask about a session's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType


class InputInfo(Protocol):
    """What commands read of a session's `NodeArg`: name, type such as `tensor(float)`, shape of ints, symbols and None."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None]: ...


def element_type(info: InputInfo) -> DType:
    """The element type of a tensor input.

    Raises:
        InvalidArgument: the input is no tensor.
    """
    inner = info.type.removeprefix("tensor(").removesuffix(")")
    if f"tensor({inner})" != info.type:
        raise InvalidArgument(f"input {info.name!r} is a {info.type}; the command line can make tensors only")
    return DType[inner.upper()]


def picture_axes(info: InputInfo) -> tuple[int, int, int] | None:
    """The axes of channels, height and width of an input [N, C, H, W], [N, H, W, C] or one of these without N; None: it is no
    picture. Where no size says which axis has the channels, it is the first."""
    rank = len(info.shape)
    if rank not in (3, 4):
        return None
    first, last = info.shape[rank - 3], info.shape[-1]
    if first in (1, 3, 4) or (rank == 4 and not isinstance(first, int) and last not in (1, 3, 4)):
        return rank - 3, rank - 2, rank - 1
    return (rank - 1, rank - 3, rank - 2) if last in (1, 3, 4) else None
