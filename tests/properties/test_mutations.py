"""Every operator given what it cannot take: a result or an error of Intarsia's own, on both providers; never a crash.

Three changes of each operator's example, or as many as INTARSIA_PROPERTY_EXAMPLES says. A case that fails is run alone by
`echo "OPERATOR SEED" | python tests/properties/mutations.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

from mutations import PROVIDERS, case_of, examples, operators

PROGRAM = Path(__file__).with_name("mutations.py")
COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0")) or 3
SHARDS = 4
SECONDS = 60  # that a case may take: a hang is a failure, a slow machine is not
# Gradient is of a graph around it; the others' examples say how they run, with decoders that are none.
SEARCHES = ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")
NO_RESULT = ("ai.onnx.preview.training::Gradient", *(f"com.microsoft::{n}" for n in SEARCHES))
WRITTEN = {line.partition("|")[0].strip() for line in examples().values() if "float[2,3]; float[2,3]" not in line}


class Worker:
    """A process that runs cases, so that one that crashes or hangs is seen, and the others go on."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, operator: str, seed: int) -> dict[str, Any] | str:
        """The answer, or how the process ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{operator} {seed}\n")
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


@pytest.mark.parametrize("shard", range(SHARDS))
def test_changed_examples(shard: int) -> None:
    wrong, worker = [], Worker()
    try:
        for operator in operators()[shard::SHARDS]:
            for seed in range(COUNT + 1):
                answer = worker.ask(operator, seed)
                if isinstance(answer, str):
                    wrong.append(f"{operator} {seed} ({case_of(operator, seed).told}): {answer}")
                    worker.close()
                    worker = Worker()
                    continue
                wrong += [f"{operator} {seed} ({answer['told']}): {what}" for what in answer["found"]]
                if not seed and operator in WRITTEN and operator not in NO_RESULT and set(answer["ran"]) != set(PROVIDERS):
                    wrong.append(f"{operator}: its example gives results only on {answer['ran']}")
    finally:
        worker.close()
    assert not wrong, "\n".join(wrong)


def test_cases_are_the_same_every_time() -> None:
    first, again = (case_of("Gather", 3) for _ in range(2))
    assert (first.model, first.told) == (again.model, again.told)
    assert case_of("Gather", 4).model != first.model
