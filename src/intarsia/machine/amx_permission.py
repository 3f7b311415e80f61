"""Leave to use AMX's tile registers, which Linux gives to a process that requests it.

The 8 KiB of tiles are no part of a thread's saved registers until its process requested them (xstate.rst of Linux):
an instruction before that ends it. Leave is for all threads of the process, and is inherited by its children.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys

from intarsia.printable import get_logger

logger = get_logger("intarsia")

_ARCH_PRCTL = 158  # number of the system call on x86-64 (arch_prctl(2))
_GET_PERMITTED, _REQUEST = 0x1022, 0x1023  # ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # XFEATURE_XTILEDATA
_MEANINGS = {
    errno.EINVAL: "the kernel is older than Linux 5.16",
    errno.EOPNOTSUPP: "the CPU has no tiles, or the system (or a hypervisor) keeps them off",
    errno.ENOSPC: "a thread has an alternate signal stack that is too small for their contents",
    errno.EPERM: "a sandbox forbids arch_prctl",
    errno.EACCES: "a sandbox forbids arch_prctl",
    errno.ENOSYS: "a sandbox has no arch_prctl",
}


@functools.cache
def refusal() -> str:
    """Requests it, once in a process: "" where tiles may be used from now on, else why not, which is logged."""
    why = _requested()
    if why:
        logger.info("AMX is not used: %s", why)
    else:
        logger.debug("AMX is used: the system gives this process the tile registers")
    return why


def _requested() -> str:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return f"it is not known how a process gets tile registers on this system ({sys.platform})"
    if code := _arch_prctl(_REQUEST, _TILE_DATA):
        return f"asking for tile registers failed: {_MEANINGS.get(code, os.strerror(code))} (errno {code})"
    permitted = ctypes.c_uint64()
    if code := _arch_prctl(_GET_PERMITTED, ctypes.addressof(permitted)):
        return f"the system does not say whether it gave tile registers: {os.strerror(code)} (errno {code})"
    return "" if permitted.value >> _TILE_DATA & 1 else "the system took the request for tile registers and did not grant it"


def _arch_prctl(code: int, argument: int) -> int:
    """0, or the error's number."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    ctypes.set_errno(0)
    done = call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(code), ctypes.c_ulong(argument))
    return 0 if done == 0 else ctypes.get_errno() or errno.EINVAL
