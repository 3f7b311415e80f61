"""Drawn cases in a process of their own: where a signal ends it, the case that it was in has a fault, and the rest go on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("guarded_cases.py")
_FRAMES = 6


@dataclass
class Report:
    """What cases of one operator, or of several, came to.

    Attributes:
        faults: (kind, case, text), as `guarded_cases.Fault`, or of the kinds "crash" and "hang".
        cases: how many runs there were and what became of them, by name.
        names: "kernels", "templates", "paths" and "drawn" that were seen.
    """

    faults: list[tuple[str, str, str]] = field(default_factory=list)
    cases: Counter[str] = field(default_factory=Counter)
    names: dict[str, set[str]] = field(default_factory=dict)

    def add(self, seen: Mapping[str, Any]) -> None:
        """`seen`: as `guarded_cases.Seen.taken` gives it."""
        self.cases.update(seen.get("cases", {}))
        for name, found in seen.items():
            if name != "cases":
                self.names.setdefault(name, set()).update(found)

    def as_dict(self) -> dict[str, Any]:
        """What `add` takes."""
        return {"cases": dict(self.cases), **{name: sorted(found) for name, found in self.names.items()}}


class GuardedProcess:
    """A process that runs cases; another takes its place when it ends."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None

    def known(self) -> dict[str, list[str]]:
        """All kernels and templates that there are."""
        process = self._ask({"known": True})
        assert process.stdout is not None
        found: dict[str, list[str]] = json.loads(process.stdout.readline())["known"]
        return found

    def run(self, source: str, seed: int, first: int, end: int) -> Report:
        """All runs of the models `first` to `end` of an operator, or the graphs of a kind."""
        report = Report()
        while first < end:
            last, number, done = "", first, False
            process = self._ask({"source": source, "seed": seed, "first": first, "end": end})
            assert process.stdout is not None
            for line in process.stdout:
                answer = json.loads(line)
                last, number = answer.get("begin", last), answer.get("number", number)
                if "fault" in answer:
                    report.faults.append(tuple(answer["fault"]))
                elif "seen" in answer:
                    report.add(answer["seen"])
                elif "done" in answer:
                    done = True
                    break
            if done:
                break
            report.faults.append(self._ended(process, last or f"#{number}"))
            report.cases["runs"] += 1
            first = number + 1
        return report

    def close(self) -> None:
        if self._process is not None:
            self._closed(self._process)

    def _closed(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """How a process ended, and what it said then."""
        with process:  # its pipes are closed, and it is waited for
            pass
        self._process = None
        with self._errors as errors:
            errors.seek(0)
            return process.returncode, errors.read()

    def _ask(self, request: Mapping[str, Any]) -> subprocess.Popen[str]:
        if self._process is None:
            self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (as long as the process)
            self._process = subprocess.Popen(
                [sys.executable, str(CASES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                env=self._environment,
            )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process

    def _ended(self, process: subprocess.Popen[str], case: str) -> tuple[str, str, str]:
        code, text = self._closed(process)
        calls = text.partition("(most recent call first)")[2]
        frames = re.findall(r'File "[^"]*?/([^/"]*/[^/"]*)", line (\d+) in (\w+)', calls)
        where = ", ".join(f"{file}:{line} {function}" for file, line, function in frames[:_FRAMES])
        if code < 0:
            return "crash", case, f"signal {-code} in {where}"
        if "Timeout" in text:
            return "hang", case, f"in {where}"
        return "error", case, f"the process ended with {code}: {text[-800:]}"
