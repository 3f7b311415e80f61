"""What a process gives up before it sees a model of a stranger. Everything here is the system's to hold, and cannot be taken
back.

On every POSIX system: no core dumps, no files written, few descriptors. On Linux memory too, and, on x86-64 and ARM64, the
system calls that reach further than the process: other programs, other processes, the network, what changes files. Files can
still be read.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = 256


def limit_resources(data_nbytes: int) -> list[str]:
    """Set the limits of the system for this process; `data_nbytes`: memory beyond what it has now.

    Returns:
        What is held from now on, in words.
    """
    if os.name == "nt":
        return []
    import resource

    wanted = {"core dumps": (resource.RLIMIT_CORE, 0), "written files": (resource.RLIMIT_FSIZE, 0)}
    wanted["descriptors"] = (resource.RLIMIT_NOFILE, _DESCRIPTORS)
    if sys.platform == "linux":
        wanted["memory"] = (resource.RLIMIT_DATA, _private_nbytes() + data_nbytes)
    for kind, number in wanted.values():
        _, most = resource.getrlimit(kind)
        value = number if most == resource.RLIM_INFINITY else min(number, most)
        resource.setrlimit(kind, (value, value))
    return list(wanted)


def _private_nbytes() -> int:
    """What RLIMIT_DATA compares: memory of this process that it may write to."""
    with Path("/proc/self/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


# Linux's numbers of system calls: x86-64, and the others' common table (ARM64).
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None), "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "kill": (62, 129),
    "tgkill": (234, 131), "tkill": (200, 130), "creat": (85, None), "openat": (257, 56), "openat2": (437, 437),
    "clone3": (435, 435), "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "sendto": (44, 206),
    "bind": (49, 200), "listen": (50, 201), "socketpair": (53, 199), "accept4": (288, 242), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "prlimit64": (302, 261), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "open_by_handle_at": (304, 265), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "truncate": (76, 45), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "link": (86, None), "linkat": (265, 37), "unlink": (87, None),
    "unlinkat": (263, 35), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utimensat": (280, 88), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "sched_setaffinity": (203, 122),
    "setpriority": (141, 140), "ioperm": (173, None), "iopl": (172, None), "init_module": (175, 105),
    "finit_module": (313, 273), "kexec_load": (246, 104), "swapon": (167, 224), "reboot": (169, 142), "setrlimit": (160, 164),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "delete_module": (176, 106), "kexec_file_load": (320, 294), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161), "setdomainname": (171, 162),
}  # fmt: skip
_ABSENT = {"clone3", "openat2"}  # their arguments are in memory, where a filter cannot look; libraries then call the older ones
# Calls that are let through where these halves of their arguments are 0: for this process or thread; limits that are requested
# and not set, since root could raise them again.
_WHERE_ZERO = {"sched_setaffinity": (0,), "prlimit64": (0, 4, 5)}
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_CLONE_THREAD = 0x10000
_ARCHITECTURES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}  # audit's number, column above, seccomp
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NO_NEW_PRIVILEGES, _FILTER_MODE, _ALL_THREADS = 38, 1, 1
_Step = tuple[int, int, int, int]


def _program(audit: int, column: int, own: int) -> Iterator[_Step]:
    """The filter, as instructions (code, steps to jump over where true, where false, operand) of Linux's classic BPF."""
    refuse = _RETURN, 0, 0, _ERRNO | _EPERM
    yield _LOAD, 0, 0, 4  # architecture
    yield _EQUAL, 1, 0, audit
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, 0  # number of the call
    if column == 0:
        yield _AT_LEAST, 0, 1, 0x40000000  # the table of x32
        yield refuse
    for name, numbers in _CALLS.items():
        number = numbers[column]
        if number is None:
            continue
        if name in ("open", "openat"):
            yield from _if_argument(number, 1 if name == "open" else 2, _ANY_BIT, _WRITING, refused_where=True)
        elif name == "clone":
            yield from _if_argument(number, 0, _ANY_BIT, _CLONE_THREAD, refused_where=False)
        elif name in ("tgkill", "kill"):  # what ends the process itself may
            yield from _if_argument(number, 0, _EQUAL, own, refused_where=False)
        elif name in _WHERE_ZERO:
            yield from _if_zero(number, _WHERE_ZERO[name])
        else:
            yield _EQUAL, 0, 1, number
            yield (_RETURN, 0, 0, _ERRNO | _ENOSYS) if name in _ABSENT else refuse
    yield _RETURN, 0, 0, _ALLOW


def _if_argument(number: int, argument: int, test: int, operand: int, *, refused_where: bool) -> Iterator[_Step]:
    """A call that depends on the low half of an argument: it is refused where the test holds, or where it does not."""
    yield _EQUAL, 0, 4, number
    yield _LOAD, 0, 0, 16 + 8 * argument
    yield (test, 0, 1, operand) if refused_where else (test, 1, 0, operand)
    yield _RETURN, 0, 0, _ERRNO | _EPERM
    yield _RETURN, 0, 0, _ALLOW


def _if_zero(number: int, halves: tuple[int, ...]) -> Iterator[_Step]:
    """A call that is refused unless these halves of its arguments (2 i: the low one of argument i) are 0."""
    left = 2 * len(halves)
    yield _EQUAL, 0, left + 2, number
    for half in halves:
        left -= 2
        yield _LOAD, 0, 0, 16 + 4 * half
        yield _EQUAL, 0, left + 1, 0
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _ERRNO | _EPERM


def filter_system_calls() -> list[str]:
    """Refuse this process, all threads of it, the calls above from now on. A call that is refused is an error to who makes it.

    Returns:
        What is held from now on, in words: nothing where the system does not have such filters.
    """
    known = _ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or known is None or struct.calcsize("P") != 8:
        return []
    audit, column, seccomp = known
    steps = list(_program(audit, column, os.getpid()))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return []
    libc.syscall.restype = ctypes.c_long
    done = libc.syscall(ctypes.c_long(seccomp), ctypes.c_ulong(_FILTER_MODE), ctypes.c_ulong(_ALL_THREADS), program)
    return ["programs and processes", "network", "changes of files"] if done == 0 else []
