"""A process of its own for the cases of `mutations.py` and `damaged.py`."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SECONDS = 300  # that a case may take: a hang is a failure, a slow machine is not


class Worker:
    """A process that runs cases, so that one that crashes or hangs is seen, and the others go on."""

    def __init__(self, program: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, name: str, seed: int) -> dict[str, Any] | str:
        """The answer, or how the process ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {seed}\n")
        self.process.stdin.flush()
        try:
            line = self.answers.get(timeout=SECONDS)
        except queue.Empty:
            return f"no answer in {SECONDS} s"
        found: dict[str, Any] = json.loads(line) if line else {}
        return found or f"the process ended with {self.process.wait()}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):  # what is still to be written to a process that ended
                stream.close()
