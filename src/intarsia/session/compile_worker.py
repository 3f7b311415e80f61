"""What runs in a process of `model.compile_process`: it makes a session, which leaves it in the cache, and ends.

It stands back behind the program that started it, and ends some seconds after that, or with it where the cache lies in a
folder for temporary files, which programs remove. What it has compiled by then is in the cache, kernel by kernel.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.cache.disk_cache import content_key, get_cache

if TYPE_CHECKING:
    from intarsia.model.compile_process import Request

SECONDS_ALONE = 60.0  # that it goes on after who started it has ended
_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_NICE, _LEAST = 1, 19  # added to the program's nice value, of at most 19
_FIRST_TO_GO = 500  # of 1000, where the system runs out of memory


def main(parent: int) -> None:
    """Make the session that standard input describes, for the process `parent`."""
    _stand_back(parent)
    if _is_temporary(get_cache().place):
        _end_with(parent)
    else:
        threading.Thread(target=_end_after, args=(parent, SECONDS_ALONE), daemon=True).start()
    data = sys.stdin.buffer.read()
    request: Request = pickle.loads(data)  # noqa: S301 # the program that started this process wrote it
    from intarsia.codegen.llvm.compile_workers import share_session
    from intarsia.model.background_compile import KEY
    from intarsia.session.inference_session import InferenceSession

    share_session()
    options = request.options
    options.add_session_config_entry(KEY, "0")
    with alone(get_cache().place, content_key(data)):
        InferenceSession(request.source, options, list(request.providers), disabled_optimizers=request.disabled)
        for thread in threading.enumerate():  # large entries are written by threads of their own
            if thread.name == "intarsia-cache":
                thread.join()


@contextmanager
def alone(folder: str, key: str) -> Iterator[None]:
    """Within the block no other process is in that of this key and folder. So of many that start together (the workers of a
    server) one compiles, and the others find in the cache what it made. Where files cannot be locked, nobody waits.

    Who has the lock removes its file: those that wait have it open, and who comes later makes another one.
    """
    import fcntl

    path = Path(folder) / f".lock-{key}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def _stand_back(parent: int) -> None:
    """Leave cores, and memory where it is short, to the program. Linux shares cores among sessions of a terminal first, whose
    weights are in /proc/PID/autogroup (sched(7)), and within them by processes' nice values."""
    os.nice(_NICE)
    with suppress(OSError, ValueError, IndexError):  # the system has none, or does not let it
        before = int(Path(f"/proc/{parent}/autogroup").read_text(encoding="ascii").split()[-1])
        Path("/proc/self/autogroup").write_text(str(min(before + _NICE, _LEAST)), encoding="ascii")
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FIRST_TO_GO), encoding="ascii")


def _is_temporary(folder: str) -> bool:
    """Whether a folder is to go with the program that made it."""
    temporary = Path(tempfile.gettempdir()).resolve()
    return temporary in Path(folder).resolve().parents


def _end_with(parent: int) -> None:
    """Have the system end this process with its parent (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _end_after(parent: int, seconds: float) -> None:
    """End this process so long after its parent."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    time.sleep(seconds)
    os._exit(1)
