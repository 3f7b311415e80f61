"""Weights that kernels of a plugin have packed, shared by all kernels of the process that pack them to the same bytes.

OrtKernelImpl's PrePackWeight may put what it packed into an OrtSharedPrePackedWeightCache; SetSharedPrePackedWeight then tells
the kernel where the bytes are that it is to use: its own, or those that another kernel has packed before. This is done in the
host's memory, where bytes can be compared.
"""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections.abc import Sequence

from intarsia.errors import InvalidArgument
from intarsia.machine import fork_safety
from intarsia.providers.plugin.interface.allocators import host_allocator
from intarsia.providers.plugin.interface.handles import HostObject, find, numbers, pointers
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.members import Members

_MOST_BUFFERS = 1 << 16


class PackedWeight:
    """Blocks of the host's allocator with what a kernel has packed; freed with the last reference."""

    def __init__(self, buffers: Sequence[tuple[int, int]]) -> None:
        self.buffers = list(buffers)  # address and bytes of each
        self._allocator = Members("OrtAllocator", ctypes.addressof(host_allocator()), "the host")

    def key(self, operator: str) -> str:
        """What names it among those of an operator."""
        digest = hashlib.sha256(operator.encode())
        for address, nbytes in self.buffers:
            digest.update(nbytes.to_bytes(8, "little"))
            digest.update((ctypes.c_uint8 * nbytes).from_address(address) if nbytes else b"")
        return digest.hexdigest()

    def __del__(self) -> None:
        for address, _ in self.buffers:
            self._allocator.call("Free", address)


class PackedWeightCache(HostObject):
    """OrtSharedPrePackedWeightCache: where a kernel leaves what it has packed of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: PackedWeight | None = None


_shared: weakref.WeakValueDictionary[str, PackedWeight] = weakref.WeakValueDictionary()
_lock = fork_safety.lock()


def shared(packed: PackedWeight, operator: str) -> PackedWeight:
    """The one of these bytes that kernels of this operator use: this one, where it is the first."""
    key = packed.key(operator)
    with _lock:
        return _shared.setdefault(key, packed)


@entry("OrtEpApi", "SharedPrePackedWeightCache_StoreWeightData")
def _store(handle: int, addresses: int, sizes: int, count: int) -> None:
    """Take blocks of the host's allocator; those of an earlier call are freed."""
    cache = find(handle, PackedWeightCache)
    if not 0 < count <= _MOST_BUFFERS:
        raise InvalidArgument(f"expected at least one buffer of a packed weight, got {count}")
    found = list(zip(pointers(addresses, count), numbers(sizes, count, ctypes.c_size_t), strict=True))
    if any(nbytes and not address for address, nbytes in found):
        raise InvalidArgument("a buffer of a packed weight is at null")
    cache.stored = PackedWeight(found)
