"""What a plugin's provider has made, to be returned to it before the provider itself is.

The garbage collector ends programs, their kernels and their provider in any order. So the provider holds what it has made, and
releases what is left of it in its own end; each of these knows the plugin's functions alone, and nothing that holds it.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

from intarsia.errors import EPFail
from intarsia.providers.plugin.interface.members import Members


class Owned(Protocol):
    """Something of a plugin's that is released once, by whoever comes first."""

    def release(self) -> None:
        """Give it back to the plugin; nothing where that is done."""


class Compiled:
    """OrtNodeComputeInfo, with the state that it made.

    Raises:
        EPFail: it has no function to compute with, or made no state.
    """

    def __init__(self, ep: Members, address: int, context: int) -> None:
        self.address, self._ep = address, ep
        self.members = Members("OrtNodeComputeInfo", address, ep.provider)
        self.state = ctypes.c_void_p(None)
        self._has_state = False
        if not self.members.has("Compute"):
            raise EPFail(f"{ep.provider} compiled a part without a function Compute")
        self.members.call("CreateState", context, ctypes.addressof(self.state))
        self._has_state = True

    def release(self) -> None:
        """Give state and info back to the plugin."""
        address, self.address = self.address, 0
        if not address:
            return
        if self._has_state:
            self.members.call_if_there("ReleaseState", self.state)
        infos = (ctypes.c_void_p * 1)(address)
        self._ep.call_if_there("ReleaseNodeComputeInfos", ctypes.addressof(infos), 1)


class Released:
    """A struct with a function Release: OrtKernelImpl, OrtDataTransferImpl, OrtSyncStreamImpl."""

    def __init__(self, members: Members) -> None:
        self._members: Members | None = members

    def release(self) -> None:
        """Call it."""
        members, self._members = self._members, None
        if members is not None:
            members.call_if_there("Release")


class Allocated:
    """A block of an allocator's memory."""

    def __init__(self, allocator: Members, address: int) -> None:
        self._allocator, self.address = allocator, address

    def release(self) -> None:
        """Free it."""
        address, self.address = self.address, 0
        if address:
            self._allocator.call("Free", address)


class FactoryAllocator:
    """An allocator that a factory takes back."""

    def __init__(self, factory: Members, address: int) -> None:
        self._factory, self._address = factory, address

    def release(self) -> None:
        """Give it back."""
        address, self._address = self._address, 0
        if address:
            self._factory.call_if_there("ReleaseAllocator", address)
