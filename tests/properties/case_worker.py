"""A process of its own for the cases of `mutations.py` and `damaged.py`."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
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


def answers(
    program: Path, cases: Iterable[tuple[str, int]], told: Callable[[str, int], str], wrong: list[str]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """What `program` answers to each case. What it found wrong goes to `wrong`, and so does a case that it does not
    answer, after which another process takes the next; `told`: what such a case is."""
    worker = Worker(program)
    try:
        for name, seed in cases:
            answer = worker.ask(name, seed)
            if isinstance(answer, str):
                wrong.append(f"{name} {seed} ({told(name, seed)}): {answer}")
                worker.close()
                worker = Worker(program)
                continue
            wrong += [f"{name} {seed} ({answer['told']}): {what}" for what in answer["found"]]
            yield name, seed, answer
    finally:
        worker.close()
