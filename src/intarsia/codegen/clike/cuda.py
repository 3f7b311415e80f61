"""CUDA C as NVRTC takes it, without any header."""

from __future__ import annotations

from typing import ClassVar

from intarsia.codegen.clike.dialect import Dialect, Limits


class Cuda(Dialect):
    """What `Dialect` writes is CUDA C.

    Args:
        limits: of the device.
    """

    name: ClassVar[str] = "CUDA C"

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(buffers=64, threads=256, shared_nbytes=49152, groups=65535)
