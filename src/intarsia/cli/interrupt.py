"""Ctrl-C ends a command also while it is in native code, whose end Python's own handler would wait for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

GRACE_SECONDS = 1.0
INTERRUPTED = 130  # what a shell reports for SIGINT


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ends the process with exit code 130 where the block is still running a second after SIGINT.

    Until then the block may end by KeyboardInterrupt, as it does between native calls. Outside the main thread, which alone
    gets signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(reader, ended), name="intarsia-interrupt", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        writer.close()
        watcher.join()
        reader.close()


def _watch(reader: socket.socket, ended: threading.Event) -> None:
    while numbers := reader.recv(64):
        if signal.SIGINT in numbers and not ended.wait(GRACE_SECONDS):
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
