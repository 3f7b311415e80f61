"""When a file on Windows changed last: what `os.stat` does not say there, whose `st_ctime` is when a file was made."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_READ_ATTRIBUTES, _SHARE_ALL, _OPEN_EXISTING, _FOLDERS_TOO = 0x80, 7, 3, 0x02000000
_BASIC_INFO = 0
_NOT_OPENED = ctypes.c_void_p(-1).value
_EPOCH = 116_444_736_000_000_000  # of Unix, in Windows' units of 100 ns since 1601


def changed_ns(path: str | os.PathLike[str]) -> int:
    """Nanoseconds since 1970 at the last change of a file's bytes or attributes, which no program puts back by `os.utime`.

    FILE_BASIC_INFO's ChangeTime (winbase.h); 0 where the file system keeps none. Raises OSError where it cannot be read.
    """
    system: Any = ctypes
    kernel = system.WinDLL("kernel32", use_last_error=True)
    kernel.CreateFileW.restype = ctypes.c_void_p
    kernel.GetFileInformationByHandleEx.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32]
    kernel.CloseHandle.argtypes = [ctypes.c_void_p]
    name = ctypes.c_wchar_p(os.fspath(path))
    handle = kernel.CreateFileW(name, _READ_ATTRIBUTES, _SHARE_ALL, None, _OPEN_EXISTING, _FOLDERS_TOO, None)
    if handle == _NOT_OPENED:
        raise system.WinError(system.get_last_error())
    try:
        times = (ctypes.c_int64 * 5)()  # made, read, written, changed; attributes
        if not kernel.GetFileInformationByHandleEx(handle, _BASIC_INFO, times, ctypes.sizeof(times)):
            raise system.WinError(system.get_last_error())
    finally:
        kernel.CloseHandle(handle)
    return (times[3] - _EPOCH) * 100 if times[3] else 0
